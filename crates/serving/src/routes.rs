//! The paths and their handlers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query};
use axum::middleware::from_fn;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use serde_json::Value;

use super::health::{Checks, Probe};
use super::origin::refuse_foreign;
use super::slis::{self, Slis};
use super::statusz::Statusz;
use super::text::{self, answer, json, not_found, plain, plain_line};
use supercargo_telemetry::logs::LogLevel;
use supercargo_telemetry::metrics::CONTENT_TYPE;

/// Maximum size of a request body in bytes. The only body is a log level.
const MOST_BODY: usize = 4096;

/// Text that is generated for each request.
pub type TextPage = Arc<dyn Fn() -> BoxFuture<'static, String> + Send + Sync>;
/// JSON that is generated for each request.
pub type JsonPage = Arc<dyn Fn() -> BoxFuture<'static, Value> + Send + Sync>;

/// Answers the query of a request.
pub type QueryPage = Arc<dyn Fn(Vec<(String, String)>) -> BoxFuture<'static, QueryResponse> + Send + Sync>;

/// Parts of a text that follow each other.
pub type Parts = BoxStream<'static, Bytes>;

/// The response to a query.
pub enum QueryResponse {
    /// A text.
    Text {
        /// The status.
        status: StatusCode,
        /// The text.
        text: String,
        /// The content type.
        content_type: &'static str,
        /// Headers.
        headers: Vec<(&'static str, String)>,
    },
    /// Parts of a text, each sent when it is there. The next one is made once the client takes it.
    Stream {
        /// The parts.
        parts: Parts,
        /// The content type.
        content_type: &'static str,
        /// Headers.
        headers: Vec<(&'static str, String)>,
    },
    /// 429: too many queries wait.
    Busy,
}

impl QueryResponse {
    /// 200.
    pub fn answer(text: String, is_json: bool) -> Self {
        Self::file(if is_json { text::JSON } else { text::PLAIN }, text)
    }

    /// 200, with this content type.
    pub fn file(content_type: &'static str, text: impl Into<String>) -> Self {
        Self::Text { status: StatusCode::OK, text: text.into(), content_type, headers: Vec::new() }
    }

    /// 200, and parts that follow each other.
    pub fn stream(content_type: &'static str, parts: Parts) -> Self {
        Self::Stream { parts, content_type, headers: Vec::new() }
    }

    /// 400.
    pub fn bad_request(text: String) -> Self {
        Self::error(StatusCode::BAD_REQUEST, text)
    }

    /// 422: the query is valid and has no answer.
    pub fn unprocessable(text: String) -> Self {
        Self::error(StatusCode::UNPROCESSABLE_ENTITY, text)
    }

    /// 503: there is no answer yet.
    pub fn unavailable(text: String) -> Self {
        Self::error(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    /// An error.
    pub fn error(status: StatusCode, text: String) -> Self {
        Self::Text { status, text, content_type: text::PLAIN, headers: Vec::new() }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Text { status, .. } => *status,
            Self::Stream { .. } => StatusCode::OK,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// With this header. A value that no header can have is left out.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: String) -> Self {
        if let Self::Text { headers, .. } | Self::Stream { headers, .. } = &mut self {
            headers.push((name, value));
        }
        self
    }

    fn into_response(self) -> Response {
        let (mut response, headers) = match self {
            Self::Text { status, text, content_type, headers } => {
                (answer(status, content_type, text), headers)
            }
            Self::Stream { parts, content_type, headers } => {
                let body = Body::from_stream(parts.map(Ok::<_, Infallible>));
                let mut response = answer(StatusCode::OK, content_type, body);
                response.extensions_mut().insert(Streamed);
                (response, headers)
            }
            Self::Busy => return text::too_many_requests(),
        };
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

/// Marks a response whose body lasts.
#[derive(Clone, Copy)]
pub(super) struct Streamed;

/// The routes of endpoints that answer queries.
pub(super) fn query_routes(pages: &BTreeMap<String, QueryPage>) -> Router {
    let route = |routes: Router, (path, answer): (&String, &QueryPage)| {
        let answer = Arc::clone(answer);
        let page =
            async move |Query(query): Query<Vec<(String, String)>>| answer(query).await.into_response();
        routes.route(path, get(page))
    };
    pages.iter().fold(Router::new(), route)
}

/// The content of the endpoints.
#[derive(Clone)]
pub struct Endpoints {
    /// `/healthz`, `/livez`, `/readyz`.
    pub checks: Checks,
    /// `/metrics`, in the text format of Prometheus.
    pub metrics: TextPage,
    /// `/metrics/resources`, in the same format; empty on standbys.
    pub resource_metrics: TextPage,
    /// `/configz`: the configuration in effect, a KubeSchedulerConfiguration.
    pub configz: Arc<dyn Fn() -> Value + Send + Sync>,
    /// `/flagz`: lines of `name=value`.
    pub flagz: Arc<dyn Fn() -> String + Send + Sync>,
    /// Debugging pages by path, such as `/debug/cache`.
    pub debug: BTreeMap<&'static str, JsonPage>,
    /// Endpoints that answer queries, by path.
    pub queries: BTreeMap<String, QueryPage>,
    /// `/debug/flags/v`; not served if `None`. kube-scheduler serves it if profiling is enabled.
    pub log_level: Option<LogLevel>,
    /// The version whose features are emulated, for `/statusz`.
    pub emulated_version: String,
    /// When the process started, for `/statusz`.
    pub started: Timestamp,
}

impl Endpoints {
    pub(super) fn into_routes(self) -> Router {
        let Self { checks, metrics, resource_metrics, configz, flagz, debug, queries, log_level, .. } = self;
        let slis = Arc::new(Slis::default());
        let mut routes = Router::new()
            .route("/metrics", text_page(metrics))
            .route("/metrics/resources", text_page(resource_metrics))
            .route("/metrics/slis", slis::page(Arc::clone(&slis)))
            .route("/configz", get(async move || json(&serde_json::json!({"componentconfig": configz()}))))
            .route("/flagz", get(async move || text::zpage("flagz", &flagz())))
            .route("/debug/pprof/{*profile}", get(no_profiles))
            .route("/debug/pprof", get(no_profiles))
            .merge(probe("healthz", checks.healthz, &slis))
            .merge(probe("livez", checks.livez, &slis))
            .merge(probe("readyz", checks.readyz, &slis));
        let mut paths: Vec<&str> =
            vec!["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz"];
        paths.extend(debug.keys());
        // A page has many files.
        paths.extend(queries.keys().map(String::as_str).filter(|path| !path.contains("/assets/")));
        for (path, page) in debug {
            routes = routes.route(path, get(async move || json(&page().await)));
        }
        routes = routes.merge(query_routes(&queries).layer(from_fn(refuse_foreign)));
        if let Some(level) = log_level {
            paths.push("/debug/flags/v");
            routes = routes.route("/debug/flags/v", log_level_page(level));
        }
        paths.sort_unstable();
        let statusz = Statusz::new(self.started, self.emulated_version, &paths);
        routes
            .route("/statusz", get(async move || text::zpage("statusz", &statusz.text())))
            .fallback(async || not_found())
            .layer(DefaultBodyLimit::max(MOST_BODY))
    }
}

fn text_page(page: TextPage) -> MethodRouter {
    get(async move || answer(StatusCode::OK, CONTENT_TYPE, page().await))
}

fn probe(name: &'static str, probe: Probe, slis: &Arc<Slis>) -> Router {
    let probe = Arc::new(probe);
    let (all, slis) = (Arc::clone(&probe), Arc::clone(slis));
    let all = async move |Query(query): Query<Vec<(String, String)>>| all.all(name, &query, &slis);
    let one = async move |Path(check): Path<String>| probe.one(&check).unwrap_or_else(not_found);
    // A trailing `/` is ignored, as upstream.
    Router::new()
        .route(&format!("/{name}"), get(all.clone()))
        .route(&format!("/{name}/"), get(all))
        .route(&format!("/{name}/{{check}}"), get(one))
}

/// Shows and sets the log level: a number as for `-v`, or a value of `--log-level`.
fn log_level_page(level: LogLevel) -> MethodRouter {
    let now = level.clone();
    let set = async move |body: Bytes| {
        let text = str::from_utf8(&body).map_err(|error| error.to_string());
        match text.and_then(|text| level.set(text.trim()).map_err(|error| error.to_string())) {
            Ok(()) => {
                tracing::info!(level = level.text(), "log level changed");
                plain_line(StatusCode::OK, format!("logging {} from now on", level.text()))
            }
            Err(problem) => plain_line(StatusCode::BAD_REQUEST, problem),
        }
    };
    let unsupported = async || {
        let text = "unsupported http method: GET shows the log level, PUT sets it".to_owned();
        plain_line(StatusCode::NOT_ACCEPTABLE, text)
    };
    get(async move || plain_line(StatusCode::OK, now.text())).put(set).fallback(unsupported)
}

async fn no_profiles() -> Response {
    let text = "pprof is not available: supercargo is not a Go program\n";
    plain(StatusCode::NOT_FOUND, text)
}

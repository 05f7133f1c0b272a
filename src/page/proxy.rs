//! The data of another process's page. This process adds the token, so no browser has it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use supercargo_client::api::full_text;
use supercargo_client::watch_service::WatchService;
use supercargo_serving::{QueryPage, QueryResponse};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::live::EVENTS;
use super::{data_paths, endpoint};
use crate::insight::endpoint::AS_OF;
use crate::insight::{GOOD, Target, Way, refusal};

/// The largest answer in bytes. That of a pod names all nodes of a large cluster several times.
const MOST_BYTES: usize = 64 << 20;
/// Minimum time between two attempts to open a way.
const RETRY_PERIOD: Duration = Duration::from_secs(5);

/// A running supercargo, and how to find it again.
pub(super) struct Proxy {
    target: Target,
    open: Mutex<Option<Result<Arc<Opened>, Failed>>>,
}

/// An attempt to open a way that failed: when, and why.
struct Failed {
    at: Instant,
    why: String,
}

/// A way to a running supercargo. It is open as long as this lives.
struct Opened {
    client: Client,
    way: Way,
    since: Instant,
}

impl Proxy {
    /// Finds it, and asks whether it has a page.
    pub(super) async fn open(target: Target) -> Result<Arc<Self>> {
        let proxy = Arc::new(Self { target, open: Mutex::default() });
        let opened = proxy.way().await?;
        let answer = opened.send("/insight/overview", &[]).await?;
        match answer.status() {
            // It may be starting.
            StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE => Ok(proxy),
            status => Err(refusal(status, &opened.way.name, "")),
        }
    }

    /// The data, by path.
    pub(super) fn pages(self: &Arc<Self>) -> BTreeMap<String, QueryPage> {
        let page = |path: String| {
            let (proxy, asked) = (Arc::clone(self), path.clone());
            let page = endpoint(move |query| {
                let (proxy, path) = (Arc::clone(&proxy), asked.clone());
                async move { proxy.answer(&path, &query).await }
            });
            (path, page)
        };
        data_paths().into_iter().map(page).collect()
    }

    async fn answer(&self, path: &str, query: &[(String, String)]) -> QueryResponse {
        match self.try_answer(path, query).await {
            Ok(answer) => answer,
            Err(error) => QueryResponse::unavailable(full_text(&*error)),
        }
    }

    async fn try_answer(&self, path: &str, query: &[(String, String)]) -> Result<QueryResponse> {
        let opened = self.way().await?;
        match opened.send(path, query).await {
            Ok(answer) if answer.status() != StatusCode::UNAUTHORIZED => passed_on(answer, opened).await,
            // A newer way would do no better.
            answer if opened.since.elapsed() < RETRY_PERIOD => passed_on(answer?, opened).await,
            // Another pod leads, or the token has expired. The question changes nothing, so it can
            // be asked again.
            _ => {
                self.forget(&opened).await;
                let opened = self.way().await?;
                passed_on(opened.send(path, query).await?, opened).await
            }
        }
    }

    /// The way that is open, or a new one.
    async fn way(&self) -> Result<Arc<Opened>> {
        let mut open = self.open.lock().await;
        match &*open {
            Some(Ok(opened)) => return Ok(Arc::clone(opened)),
            Some(Err(Failed { at, why })) if at.elapsed() < RETRY_PERIOD => bail!("{why}"),
            _ => {}
        }
        let opened = self.new_way().await;
        *open = Some(match &opened {
            Ok(opened) => Ok(Arc::clone(opened)),
            Err(error) => Err(Failed { at: Instant::now(), why: full_text(&**error) }),
        });
        opened
    }

    async fn new_way(&self) -> Result<Arc<Opened>> {
        let way = self.target.open().await?;
        let client = Client::new(WatchService::connect(way.config.clone())?, "default");
        Ok(Arc::new(Opened { client, way, since: Instant::now() }))
    }

    async fn forget(&self, opened: &Arc<Opened>) {
        let is_open = |open: &mut Result<_, _>| open.as_ref().is_ok_and(|open| Arc::ptr_eq(open, opened));
        self.open.lock().await.take_if(is_open);
    }
}

impl Opened {
    async fn send(&self, path: &str, query: &[(String, String)]) -> Result<Response<Body>> {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        let request = Request::get(format!("{path}?{query}")).body(Body::empty())?;
        let answer = self.client.send(request).await.map_err(|error| match error {
            kube::Error::Service(source) => anyhow::Error::from_boxed(source),
            other => other.into(),
        });
        answer.with_context(|| format!("cannot ask {}", self.way.name))
    }
}

/// The same response for the browser. A stream keeps its way open, while others take a new one.
async fn passed_on(answer: Response<Body>, opened: Arc<Opened>) -> Result<QueryResponse> {
    let (head, body) = answer.into_parts();
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if text(header::CONTENT_TYPE.as_str()) == EVENTS {
        let chunks = body.into_data_stream().inspect(move |_| _ = &opened);
        let chunks = chunks.take_while(|chunk| std::future::ready(chunk.is_ok()));
        return Ok(QueryResponse::stream(EVENTS, chunks.filter_map(async |chunk| chunk.ok()).boxed()));
    }
    let is_json = text(header::CONTENT_TYPE.as_str()) == "application/json";
    let kept = [GOOD, AS_OF].map(|name| (name, text(name).to_owned()));
    let too_large = |error| anyhow!("the answer is cut off or larger than {} MiB: {error}", MOST_BYTES >> 20);
    let bytes: Bytes =
        http_body_util::Limited::new(body, MOST_BYTES).collect().await.map_err(too_large)?.to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if head.status == StatusCode::OK {
        let response = QueryResponse::answer(text, is_json);
        return Ok(kept.into_iter().fold(response, |response, (name, value)| response.with(name, value)));
    }
    Ok(QueryResponse::error(head.status, text))
}

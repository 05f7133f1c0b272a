//! Requests to the API server, and what a failure says about its state.

use std::error::Error as _;
use std::io;
use std::path::Path;
use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::Status;
use kube::{Client, Config};
use serde_json::Value;
use supercargo_framework::binding::{ApiError, Certainty};
use thiserror::Error;

use crate::rate_limit::RateLimiter;

/// A server that is too busy is asked so often again.
const BUSY_ATTEMPTS: usize = 5;
/// The longest wait that a server may ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);
/// No request takes longer than this; then its fate is unknown. Above the 60 s after which the API server gives up itself.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(65);

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig is no YAML of its kind. What is there is not told: it may be a token.
    #[error("kubeconfig {path}:{place}: not a kubeconfig")]
    Malformed {
        /// The file.
        path: String,
        /// Line and column, if known.
        place: String,
    },
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}: {source}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// Why.
        source: Box<kube::config::KubeconfigError>,
    },
    /// There is no kubeconfig, and this is no pod with a service account either.
    #[error(
        "not running in a cluster ({0}); give --kubeconfig FILE, or clientConnection.kubeconfig in the configuration"
    )]
    NotInCluster(#[source] Box<kube::config::InClusterError>),
    /// The client cannot be made.
    #[error("cannot make a client: {0}")]
    Client(#[source] Box<kube::Error>),
}

/// Reads how to reach the API server: from a kubeconfig, else from the pod's service account.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let named = |source| kubeconfig_error(path, source);
            let file = Kubeconfig::read_from(path).map_err(named)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(named)?
        }
        None => Config::incluster().map_err(|error| ConnectError::NotInCluster(Box::new(error)))?,
    };
    // The client's own retries would hide failures from the reflectors, and repeat a bind whose fate is unknown.
    config.default_retry = false;
    config.disable_compression = true;
    Ok(config)
}

fn kubeconfig_error(path: &Path, source: KubeconfigError) -> ConnectError {
    let path = path.display().to_string();
    match source {
        KubeconfigError::Parse(error) => {
            let place =
                error.location().map_or_else(String::new, |at| format!("{}:{}", at.line(), at.column()));
            ConnectError::Malformed { path, place }
        }
        source => ConnectError::Kubeconfig { path, source: Box::new(source) },
    }
}

/// A client for this server.
pub(crate) fn client(config: Config) -> Result<Client, ConnectError> {
    Client::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))
}

/// Sends requests, at most as fast as configured.
#[derive(Clone)]
pub struct Api {
    client: Client,
    limit: Option<RateLimiter>,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The method.
    pub method: Method,
    /// The path with query.
    pub path: &'a str,
    /// The content type of the body.
    pub content_type: &'a str,
    /// The body; `Null` for none.
    pub body: &'a Value,
}

/// Why a request failed: what is known of its effect, and the HTTP status when there was an answer.
#[derive(Clone, Debug)]
pub struct CallError {
    /// The error as plugins see it.
    pub error: ApiError,
    /// The HTTP status.
    pub status: Option<StatusCode>,
    /// Whether nothing was sent because nobody listens.
    pub connection_refused: bool,
    /// How long the server, too busy now, wants to be left alone.
    pub retry_after: Option<Duration>,
}

impl Api {
    /// Sends requests by a client made for this.
    pub fn new(config: Config, limit: Option<RateLimiter>) -> Result<Self, ConnectError> {
        Ok(Self::limited(client(config)?, limit))
    }

    /// Sends requests by a client that exists.
    pub fn with_client(client: Client) -> Self {
        Self::limited(client, None)
    }

    /// Sends requests by a client that exists, at most so fast.
    pub fn limited(client: Client, limit: Option<RateLimiter>) -> Self {
        Self { client, limit }
    }

    /// Sends a request and returns the answer's JSON.
    pub async fn call(&self, call: Call<'_>) -> Result<Value, CallError> {
        let answer = self.answer(&call).await?;
        serde_json::from_slice(answer.as_ref())
            .map_err(|error| unknown(format!("unreadable answer: {error}")))
    }

    /// Sends a request whose answer says no more than that it was carried out: a patched pod comes back whole.
    pub async fn write(&self, call: Call<'_>) -> Result<(), CallError> {
        self.answer(&call).await.map(drop)
    }

    /// The body of a good answer. A server that is too busy is asked again when it says so: it has done nothing yet.
    async fn answer(&self, call: &Call<'_>) -> Result<impl AsRef<[u8]> + use<>, CallError> {
        let patient = async {
            for _ in 0..BUSY_ATTEMPTS {
                match self.call_once(call).await {
                    Err(CallError { retry_after: Some(wait), .. }) => tokio::time::sleep(wait).await,
                    result => return result,
                }
            }
            self.call_once(call).await
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, patient).await {
            Ok(result) => result,
            Err(_) => Err(unknown(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))),
        }
    }

    async fn call_once(&self, call: &Call<'_>) -> Result<impl AsRef<[u8]> + use<>, CallError> {
        if let Some(limit) = &self.limit {
            limit.ready().await;
        }
        self.send(call).await
    }

    async fn send(&self, call: &Call<'_>) -> Result<impl AsRef<[u8]> + use<>, CallError> {
        let body = if call.body.is_null() { Vec::new() } else { call.body.to_string().into_bytes() };
        let request = Request::builder()
            .method(call.method.clone())
            .uri(call.path)
            .header(header::CONTENT_TYPE, call.content_type)
            .header(header::ACCEPT, "application/json")
            .body(Body::from(body))
            .map_err(|error| refused(format!("request for {}: {error}", call.path)))?;
        let response = self.client.send(request).await.map_err(|error| no_answer(&error))?;
        let status = response.status();
        let retry_after = retry_after(status, response.headers());
        let bytes = response.into_body().collect_bytes().await.map_err(|error| no_answer(&error))?;
        if status.is_success() {
            return Ok(bytes);
        }
        Err(CallError { retry_after, ..answered(status, &bytes) })
    }
}

fn call_error(certainty: Certainty, message: String) -> CallError {
    CallError {
        error: ApiError { certainty, message },
        status: None,
        connection_refused: false,
        retry_after: None,
    }
}

fn refused(message: String) -> CallError {
    call_error(Certainty::Refused, message)
}

fn unknown(message: String) -> CallError {
    call_error(Certainty::Unknown, message)
}

/// No answer came. If nobody listened, nothing was sent; otherwise the server may have carried it out.
fn no_answer(error: &kube::Error) -> CallError {
    let message = full_text(error);
    if is_connection_refused(error) {
        CallError { connection_refused: true, ..refused(message) }
    } else {
        unknown(message)
    }
}

/// What a server that is too busy says of when to come back; a second if it does not say.
fn retry_after(status: StatusCode, headers: &http::HeaderMap) -> Option<Duration> {
    let said = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let wait = Duration::from_secs(said.unwrap_or(1)).min(LONGEST_RETRY_AFTER);
    (status == StatusCode::TOO_MANY_REQUESTS).then_some(wait)
}

/// The server's word. What it says with 409 or 5xx does not tell whether an earlier or this very request was carried out.
fn answered(code: StatusCode, body: &[u8]) -> CallError {
    let status: Option<Status> = serde_json::from_slice(body).ok();
    let is_not_found = status.as_ref().is_some_and(|status| status.reason == "NotFound");
    let certainty = match code {
        StatusCode::NOT_FOUND if is_not_found => Certainty::NotFound,
        // A 404 that is no Status comes from a server that does not know its own paths yet.
        StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::REQUEST_TIMEOUT => Certainty::Unknown,
        _ if code.is_server_error() => Certainty::Unknown,
        _ => Certainty::Refused,
    };
    let message = status.map(|status| status.message).filter(|message| !message.is_empty());
    let message = message.unwrap_or_else(|| {
        let text: String = String::from_utf8_lossy(body).chars().take(256).collect();
        format!("{code}: {}", text.trim())
    });
    CallError { status: Some(code), ..call_error(certainty, message) }
}

pub(crate) fn is_connection_refused(error: &kube::Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        source = error.source();
    }
    false
}

/// An error with its causes, outermost first, none of them twice.
pub fn full_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_tells_what_may_have_happened() {
        let body = |reason: &str| {
            serde_json::json!({"kind": "Status", "status": "Failure", "message": "no", "reason": reason, "code": 404})
                .to_string()
        };
        let cases = [
            (404, body("NotFound"), Certainty::NotFound),
            (404, "404 page not found".to_owned(), Certainty::Unknown),
            (409, body("Conflict"), Certainty::Unknown),
            (500, body("InternalError"), Certainty::Unknown),
            (504, body("Timeout"), Certainty::Unknown),
            (403, body("Forbidden"), Certainty::Refused),
            (422, body("Invalid"), Certainty::Refused),
            (429, body("TooManyRequests"), Certainty::Refused),
        ];
        for (code, body, expected) in cases {
            let error = answered(StatusCode::from_u16(code).unwrap(), body.as_bytes());
            assert_eq!(error.error.certainty, expected, "{code} {body}");
            assert!(!error.error.message.is_empty());
        }
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let error = connect(Some(Path::new("/nowhere/kubeconfig"))).await.unwrap_err();
        assert!(error.to_string().starts_with("kubeconfig /nowhere/kubeconfig: "), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_server_is_asked_again() {
        let (api, requests) = crate::testing::answering(vec![429, 429, 200]);
        let call = || Call {
            method: Method::POST,
            path: "/x",
            content_type: "application/json",
            body: &Value::Null,
        };
        assert!(api.call(call()).await.is_ok());
        assert_eq!(requests.all().len(), 3);
        let (api, requests) = crate::testing::answering(vec![429; 20]);
        assert_eq!(api.call(call()).await.unwrap_err().error.certainty, Certainty::Refused);
        assert_eq!(requests.all().len(), BUSY_ATTEMPTS + 1);
    }

    #[tokio::test]
    async fn a_malformed_kubeconfig_is_placed_and_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, "users:\n- {name: x, user: {token: secret-token-123\n").unwrap();
        let error = full_text(&connect(Some(&path)).await.unwrap_err());
        assert!(error.contains("config:") && !error.contains("secret"), "{error}");
    }
}

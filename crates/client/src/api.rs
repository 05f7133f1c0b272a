//! Requests to the API server, and what a failure says about their effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use kube::core::Status;
use kube::{Client, Config};
use serde_json::Value;
use supercargo_framework::binding::{ApiError, Certainty};

use crate::adaptive_limit::{AdaptiveLimit, LimitStats, Load, Work};
use crate::connection::{ConnectError, client};
use crate::fence::Fence;
use crate::rate_limit::RateLimiter;
use crate::transport::{Fate, Transport, fate, is_connection_refused};
use supercargo_codec::payload::{PROTOBUF, Payload};

/// Retries if the server is overloaded, as in client-go.
const BUSY_RETRIES: usize = 10;
/// Retries of requests that the server has not processed, each on another or a less busy
/// connection.
const UNPROCESSED_RETRIES: usize = 5;
/// Upper bound of a server's `Retry-After`.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Timeout of an attempt, after which the request's effect is unknown. Longer than the API server's
/// own timeout of 60 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(65);

/// The content type of JSON bodies.
pub const JSON: &str = "application/json";
/// Accepts the whole object.
const ACCEPT_OBJECT: &str = JSON;
/// Accepts metadata only: the response is not read, and a patched pod would be returned whole.
const ACCEPT_METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Sends requests, limited in rate and in number. Clones share the limits.
#[derive(Clone)]
pub struct Api {
    transport: Transport,
    limit: Option<RateLimiter>,
    in_flight: AdaptiveLimit,
    work: Work,
    /// Whether to send objects as protobuf. Cleared once the server rejects the encoding.
    protobuf: Arc<AtomicBool>,
    /// Blocks requests while this process does not lead, if there is leader election.
    fence: Option<Fence>,
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

/// A request with an object in either encoding.
#[derive(Clone)]
pub struct Submission<'a> {
    /// The method.
    pub method: Method,
    /// The path with query.
    pub path: &'a str,
    /// The body, in either encoding.
    pub object: &'a dyn Payload,
}

/// A request in its encoded form, for several attempts.
struct Outgoing<'a> {
    method: &'a Method,
    path: &'a str,
    content_type: &'a str,
    accept: &'static str,
    body: Bytes,
}

/// Why a request failed, what is known of its effect, and the HTTP status of a response.
#[derive(Clone, Debug)]
pub struct CallError {
    /// The error as plugins see it.
    pub error: ApiError,
    /// The HTTP status.
    pub status: Option<StatusCode>,
    /// Whether the connection was refused.
    pub connection_refused: bool,
    /// The pause that an overloaded server asks for.
    pub retry_after: Option<Duration>,
}

impl CallError {
    /// No answer came in time.
    pub fn late(within: Duration) -> Self {
        unknown(format!("no answer within {} s", within.as_secs()))
    }
}

/// A failed attempt.
enum Failure {
    Failed(CallError),
    /// The server is overloaded and rejected the request.
    Busy(CallError),
    /// The server has not processed the request.
    Unprocessed(CallError),
}

impl Api {
    /// Creates a client for this configuration.
    pub fn new(config: Config, limit: Option<RateLimiter>) -> Result<Self, ConnectError> {
        Ok(Self::limited(client(config)?, limit))
    }

    /// Uses an existing client.
    pub fn with_client(client: Client) -> Self {
        Self::limited(client, None)
    }

    /// Uses an existing client with a rate limit.
    pub fn limited(client: Client, limit: Option<RateLimiter>) -> Self {
        Self::over(client.into(), limit, false)
    }

    /// Uses this transport. Objects are sent as protobuf if `protobuf` is set.
    pub fn over(transport: Transport, limit: Option<RateLimiter>, protobuf: bool) -> Self {
        let protobuf = Arc::new(AtomicBool::new(protobuf));
        Self { transport, limit, in_flight: AdaptiveLimit::default(), work: Work::New, protobuf, fence: None }
    }

    /// Blocks requests while the fence is closed.
    pub fn behind(self, fence: Option<Fence>) -> Self {
        Self { fence, ..self }
    }

    /// The same client for further requests of work that has begun. If requests wait, these take
    /// turns with those of new work.
    pub fn continuing(&self) -> Self {
        Self { work: Work::Begun, ..self.clone() }
    }

    /// Fails if the fence is closed.
    pub fn may_send(&self) -> Result<(), CallError> {
        match &self.fence {
            Some(fence) if !fence.is_open() => {
                Err(refused("not sent: this scheduler does not lead".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Sends later requests over a new connection.
    pub(crate) fn reconnect(&self) {
        self.transport.reconnect();
    }

    /// Statistics of the limit of requests in flight.
    pub fn limit_stats(&self) -> LimitStats {
        self.in_flight.stats()
    }

    /// Reads the JSON response of this path.
    pub async fn get(&self, path: &str) -> Result<Value, CallError> {
        self.call(Call { method: Method::GET, path, content_type: JSON, body: &Value::Null }).await
    }

    /// Sends a request and returns the JSON response.
    pub async fn call(&self, call: Call<'_>) -> Result<Value, CallError> {
        let answer = self.answer(&Outgoing::json(&call, ACCEPT_OBJECT)).await?;
        serde_json::from_slice(&answer).map_err(|error| unknown(format!("unreadable answer: {error}")))
    }

    /// Sends a request and ignores the content of the response.
    pub async fn write(&self, call: Call<'_>) -> Result<(), CallError> {
        self.answer(&Outgoing::json(&call, ACCEPT_METADATA)).await.map(drop)
    }

    /// Sends an object and ignores the content of the response.
    pub async fn submit(&self, Submission { method, path, object }: Submission<'_>) -> Result<(), CallError> {
        let outgoing = |content_type, body: Vec<u8>| Outgoing {
            method: &method,
            path,
            content_type,
            accept: ACCEPT_METADATA,
            body: body.into(),
        };
        if self.protobuf.load(Ordering::Relaxed) {
            match self.answer(&outgoing(PROTOBUF, object.protobuf())).await {
                Err(error) if error.status == Some(StatusCode::UNSUPPORTED_MEDIA_TYPE) => {
                    tracing::info!("API server does not accept protobuf; sending JSON");
                    self.protobuf.store(false, Ordering::Relaxed);
                }
                result => return result.map(drop),
            }
        }
        self.answer(&outgoing(JSON, object.json().to_string().into_bytes())).await.map(drop)
    }

    /// The body of a successful response. Retries requests that the server rejected as overloaded
    /// or has not processed: these had no effect.
    async fn answer(&self, outgoing: &Outgoing<'_>) -> Result<Bytes, CallError> {
        let (mut busy, mut unprocessed) = (0, 0);
        loop {
            match self.attempt(outgoing).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Busy(error)) if busy < BUSY_RETRIES => {
                    busy += 1;
                    tokio::time::sleep(error.retry_after.unwrap_or_default()).await;
                }
                Err(Failure::Unprocessed(_)) if unprocessed < UNPROCESSED_RETRIES => unprocessed += 1,
                Err(Failure::Failed(error) | Failure::Busy(error) | Failure::Unprocessed(error)) => {
                    return Err(error);
                }
            }
        }
    }

    async fn attempt(&self, outgoing: &Outgoing<'_>) -> Result<Bytes, Failure> {
        let queued = tokio::time::Instant::now();
        if let Some(limit) = &self.limit {
            limit.ready().await;
        }
        let permit = self.in_flight.acquire(self.work).await;
        // Check the fence last, because the waits above may take long.
        self.may_send().map_err(Failure::Failed)?;
        self.transport.waited(outgoing.method, queued.elapsed());
        let Ok(result) = tokio::time::timeout(REQUEST_TIMEOUT, self.send(outgoing)).await else {
            permit.record(Load::Overload(Duration::ZERO));
            return Err(Failure::Failed(CallError::late(REQUEST_TIMEOUT)));
        };
        match &result {
            Ok(_) => permit.record(Load::Normal),
            Err(Failure::Busy(CallError { retry_after: Some(wait), .. })) => {
                permit.record(Load::Overload(*wait));
            }
            Err(Failure::Failed(error)) if error.status.is_some_and(is_overload) => {
                permit.record(Load::Overload(Duration::ZERO));
            }
            Err(_) => {}
        }
        result
    }

    async fn send(&self, outgoing: &Outgoing<'_>) -> Result<Bytes, Failure> {
        let request = Request::builder()
            .method(outgoing.method)
            .uri(outgoing.path)
            .header(header::CONTENT_TYPE, outgoing.content_type)
            .header(header::ACCEPT, outgoing.accept)
            .body(outgoing.body.clone())
            .map_err(|error| Failure::Failed(refused(format!("request for {}: {error}", outgoing.path))))?;
        let response = self.transport.send(request).await.map_err(|error| no_answer(&*error))?;
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let retry_after = retry_after(head.status, &head.headers);
        let error = CallError { retry_after, ..answered(head.status, &body) };
        Err(if retry_after.is_some() { Failure::Busy(error) } else { Failure::Failed(error) })
    }
}

impl<'a> Outgoing<'a> {
    fn json(call: &'a Call<'_>, accept: &'static str) -> Self {
        let body = if call.body.is_null() { Bytes::new() } else { call.body.to_string().into() };
        Self { method: &call.method, path: call.path, content_type: call.content_type, accept, body }
    }
}

/// Statuses of an overloaded server that may have executed the request.
fn is_overload(status: StatusCode) -> bool {
    status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::GATEWAY_TIMEOUT
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

/// Classifies a missing response: requests that were not sent or not processed had no effect; the
/// effect of others is unknown.
fn no_answer(error: &(dyn std::error::Error + 'static)) -> Failure {
    let message = full_text(error);
    match fate(error) {
        Fate::NotSent => {
            let connection_refused = is_connection_refused(error);
            Failure::Failed(CallError { connection_refused, ..refused(message) })
        }
        Fate::Unprocessed => Failure::Unprocessed(refused(message)),
        Fate::Unknown => Failure::Failed(unknown(message)),
    }
}

/// The pause that an overloaded server asks for; one second by default.
fn retry_after(status: StatusCode, headers: &http::HeaderMap) -> Option<Duration> {
    let retry_after = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let wait = Duration::from_secs(retry_after.unwrap_or(1)).min(LONGEST_RETRY_AFTER);
    (status == StatusCode::TOO_MANY_REQUESTS).then_some(wait)
}

/// The error of a response. 409 and 5xx do not tell whether this or an earlier attempt took effect.
fn answered(code: StatusCode, body: &[u8]) -> CallError {
    let status: Option<Status> = serde_json::from_slice(body).ok();
    let is_not_found = status.as_ref().is_some_and(|status| status.reason == "NotFound");
    let certainty = match code {
        StatusCode::NOT_FOUND if is_not_found => Certainty::NotFound,
        StatusCode::CONFLICT => Certainty::Conflict,
        // A 404 without a Status comes from a server that has not installed its paths yet.
        StatusCode::NOT_FOUND | StatusCode::REQUEST_TIMEOUT => Certainty::Unknown,
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

/// An error with its causes, outermost first, without repetitions.
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
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn statuses_are_classified_by_certainty() {
        let body = |reason: &str| {
            serde_json::json!({"kind": "Status", "status": "Failure", "message": "no", "reason": reason, "code": 404})
                .to_string()
        };
        let cases = [
            (404, body("NotFound"), Certainty::NotFound),
            (404, "404 page not found".to_owned(), Certainty::Unknown),
            (409, body("Conflict"), Certainty::Conflict),
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

    fn call() -> Call<'static> {
        Call { method: Method::POST, path: "/x", content_type: JSON, body: &Value::Null }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_rejected_with_429_are_retried() {
        let (api, requests) = crate::testing::answering(vec![429, 429, 200]);
        let began = tokio::time::Instant::now();
        assert!(api.call(call()).await.is_ok());
        assert_eq!((began.elapsed(), requests.all().len()), (Duration::from_secs(2), 3));
        let (api, requests) = crate::testing::answering(vec![429; 20]);
        assert_eq!(api.call(call()).await.unwrap_err().error.certainty, Certainty::Refused);
        assert_eq!(requests.all().len(), BUSY_RETRIES + 1);
    }

    /// A server that accepts 8 concurrent requests of 10 ms each and rejects others with 429 and a
    /// `Retry-After`.
    fn loaded() -> (Api, Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let (refusals, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let inside = Arc::new(AtomicUsize::new(0));
        let (refused, most_seen) = (Arc::clone(&refusals), Arc::clone(&most));
        let service = tower::service_fn(move |_: Request<kube::client::Body>| {
            let inside = Arc::clone(&inside);
            let (refused, most) = (Arc::clone(&refused), Arc::clone(&most_seen));
            async move {
                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                let status = if now > 8 { 429 } else { 200 };
                if status == 429 {
                    refused.fetch_add(1, Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                let body = kube::client::Body::from(b"{}".to_vec());
                http::Response::builder().status(status).header("retry-after", "1").body(body)
            }
        });
        (Api::with_client(Client::new(service, "default")), refusals, most)
    }

    #[tokio::test(start_paused = true)]
    async fn requests_to_an_overloaded_server_are_throttled_and_complete() {
        let (api, refusals, most) = loaded();
        let began = tokio::time::Instant::now();
        let results = futures::future::join_all((0..5_000).map(|_| api.call(call()))).await;
        assert!(results.iter().all(Result::is_ok), "{:?}", results.into_iter().find(Result::is_err));
        // Most of the first requests are rejected; later only a few.
        assert!(most.load(Ordering::SeqCst) <= 100);
        assert!(refusals.load(Ordering::SeqCst) < 500, "{refusals:?} of 5,000");
        // With 8 requests in flight all the time, it would take 6.25 s.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    /// The same object in both encodings.
    struct Both;

    impl Payload for Both {
        fn json(&self) -> Value {
            serde_json::json!({"is": "JSON"})
        }

        fn protobuf(&self) -> Vec<u8> {
            b"protobuf".to_vec()
        }
    }

    #[tokio::test]
    async fn protobuf_is_disabled_after_415() {
        for (statuses, expected) in [
            (vec![], ["protobuf", "protobuf"].as_slice()),
            (vec![415], &["protobuf", "JSON", "JSON"]),
            (vec![415, 422], &["protobuf", "JSON", "JSON"]),
        ] {
            let (client, requests) = crate::testing::answering_client(statuses.clone());
            let api = Api::over(client.into(), None, true);
            let submit = || api.submit(Submission { method: Method::POST, path: "/x", object: &Both });
            let first = submit().await;
            assert_eq!(first.is_ok(), statuses.len() < 2);
            submit().await.unwrap();
            let sent: Vec<_> = requests.all().into_iter().map(|(_, _, body)| body).collect();
            let as_json = |form: &&str| match *form {
                "JSON" => Both.json(),
                _ => Value::Null,
            };
            assert_eq!(sent, expected.iter().map(as_json).collect::<Vec<_>>());
        }
    }
}

//! Sends traces to a collector, by OTLP over HTTP.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::SendRequest;
use super::attempt::Attempt;
use super::ids::Ids;
use super::otlp::{self, Resource, Span};
use crate::metrics::Counter;

/// So many spans at most go in one request.
const BATCH: usize = 512;
/// How long a span waits at most for others.
const PERIOD: Duration = Duration::from_secs(5);
/// How long a try may take.
const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait after each try that failed; after one more, the batch is dropped.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];
/// The longest wait that a collector may ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

const USER_AGENT: &str = concat!("supercargo/", env!("CARGO_PKG_VERSION"));

/// Sends what attempts have left.
pub(super) struct Exporter {
    send: SendRequest,
    resource: Resource,
    attempts: mpsc::Receiver<Attempt>,
    ids: Ids,
    /// Spans that have not been sent.
    waiting: Vec<Span>,
    not_taken: Arc<Counter>,
    /// Whether of the last batch something was not taken. The log says so once.
    is_refused: bool,
}

/// A try that failed.
enum Failure {
    /// It would fail again.
    Final(String),
    /// Another one may not, after this long if the collector says so.
    Passing(String, Option<Duration>),
}

impl Exporter {
    pub(super) fn new(
        send: SendRequest,
        instance: &str,
        attempts: mpsc::Receiver<Attempt>,
        not_taken: Arc<Counter>,
    ) -> Self {
        Self {
            send,
            resource: Resource::of_process(instance),
            attempts,
            ids: Ids::default(),
            waiting: Vec::new(),
            not_taken,
            is_refused: false,
        }
    }

    /// Sends until nobody is left who observes, and then what is left.
    pub(super) async fn run(mut self) {
        let mut period = interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                attempt = self.attempts.recv() => match attempt {
                    Some(attempt) => self.take(&attempt).await,
                    None => break,
                },
                _ = period.tick() => self.send_all().await,
            }
        }
        self.send_all().await;
    }

    /// Takes an attempt, and sends what makes a full batch.
    async fn take(&mut self, attempt: &Attempt) {
        self.waiting.append(&mut attempt.spans(&mut self.ids));
        while self.waiting.len() >= BATCH {
            let rest = self.waiting.split_off(BATCH);
            let batch = std::mem::replace(&mut self.waiting, rest);
            self.send(&batch).await;
        }
    }

    /// Sends what waits, which is less than a batch.
    async fn send_all(&mut self) {
        let batch = std::mem::take(&mut self.waiting);
        if !batch.is_empty() {
            self.send(&batch).await;
        }
    }

    /// Sends a batch, or drops it.
    async fn send(&mut self, batch: &[Span]) {
        let lost = match serde_json::to_vec(&otlp::Request::new(&self.resource, batch)) {
            Ok(body) => match self.deliver(body.into()).await {
                Ok(answer) => otlp::rejected(&answer),
                Err(error) => Some((batch.len(), error)),
            },
            Err(error) => Some((batch.len(), error.to_string())),
        };
        self.tell(lost);
    }

    fn tell(&mut self, lost: Option<(usize, String)>) {
        let was_refused = std::mem::replace(&mut self.is_refused, lost.is_some());
        match lost {
            Some((spans, error)) => {
                self.not_taken.add(spans);
                if !was_refused {
                    tracing::warn!(spans, error, "traces are dropped: the collector does not take them");
                }
            }
            None if was_refused => tracing::info!("the collector takes traces again"),
            None => {}
        }
    }

    /// Tries until the collector takes it, a few times. The same spans have the same names each time, so that none counts twice.
    async fn deliver(&self, body: Bytes) -> Result<Bytes, String> {
        let mut pauses = PAUSES.into_iter();
        loop {
            match self.post(body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing(error, retry_after)) => {
                    let Some(pause) = pauses.next() else { return Err(error) };
                    sleep(retry_after.unwrap_or(pause)).await;
                }
            }
        }
    }

    async fn post(&self, body: Bytes) -> Result<Bytes, Failure> {
        let request = Request::post(otlp::PATH)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, USER_AGENT)
            .body(body)
            .map_err(|error| Failure::Final(error.to_string()))?;
        match timeout(TRY_TIMEOUT, (self.send)(request)).await {
            Ok(Ok(response)) => judge(response),
            Ok(Err(error)) => Err(Failure::Passing(error, None)),
            Err(_) => {
                let error = format!("no answer within {} s", TRY_TIMEOUT.as_secs());
                Err(Failure::Passing(error, None))
            }
        }
    }
}

/// What an answer means, as the protocol has it.
fn judge(response: Response<Bytes>) -> Result<Bytes, Failure> {
    let (head, body) = response.into_parts();
    if head.status.is_success() {
        return Ok(body);
    }
    let is_passing = matches!(
        head.status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    let text: String = String::from_utf8_lossy(&body).chars().take(256).collect();
    let error = format!("{}: {}", head.status, text.trim());
    Err(if is_passing { Failure::Passing(error, retry_after(&head.headers)) } else { Failure::Final(error) })
}

/// When a collector wants to be asked again, if it says so in seconds. A date is as good as nothing: the clocks may differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER))
}

#[cfg(test)]
mod tests;

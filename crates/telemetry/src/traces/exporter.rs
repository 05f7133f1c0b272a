//! Exports traces to a collector by OTLP over HTTP.

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

/// Maximum number of spans in a request.
const BATCH: usize = 512;
/// Maximum time that a span waits for a full batch.
const PERIOD: Duration = Duration::from_secs(5);
/// Timeout of an attempt to send.
const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// Delays after failed attempts. After one more failure, the batch is dropped.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];
/// Upper bound of a collector's `Retry-After`.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

const USER_AGENT: &str = concat!("supercargo/", env!("CARGO_PKG_VERSION"));

/// Exports finished attempts.
pub(super) struct Exporter {
    send: SendRequest,
    resource: Resource,
    attempts: mpsc::Receiver<Attempt>,
    ids: Ids,
    /// Spans to send.
    waiting: Vec<Span>,
    not_taken: Arc<Counter>,
    /// Whether the collector rejected spans of the last batch. Changes are logged.
    is_refused: bool,
}

/// A failed attempt to send.
enum Failure {
    /// Permanent.
    Final(String),
    /// Retryable, after the delay that the collector asks for.
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

    /// Runs until all observers are dropped, and then sends the rest.
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

    /// Adds an attempt, and sends full batches.
    async fn take(&mut self, attempt: &Attempt) {
        self.waiting.append(&mut attempt.spans(&mut self.ids));
        while self.waiting.len() >= BATCH {
            let rest = self.waiting.split_off(BATCH);
            let batch = std::mem::replace(&mut self.waiting, rest);
            self.send(&batch).await;
        }
    }

    /// Sends the remaining spans, fewer than a batch.
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
                    tracing::warn!(spans, error, "collector rejects traces; dropping them");
                }
            }
            None if was_refused => tracing::info!("collector accepts traces again"),
            None => {}
        }
    }

    /// Tries a few times. The spans keep their ids, so that none is counted twice.
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
            Ok(Ok(response)) => outcome(response),
            Ok(Err(error)) => Err(Failure::Passing(error, None)),
            Err(_) => {
                let error = format!("no answer within {} s", TRY_TIMEOUT.as_secs());
                Err(Failure::Passing(error, None))
            }
        }
    }
}

/// Classifies a response according to the protocol.
fn outcome(response: Response<Bytes>) -> Result<Bytes, Failure> {
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

/// The `Retry-After` of a collector in seconds. Dates are ignored: clocks may differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER))
}

#[cfg(test)]
mod tests;

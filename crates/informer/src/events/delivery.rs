//! The delivery of queued events to one sink.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::broadcaster::EventOptions;
use super::sink::{EventSink, Record, SinkError};
use crate::backoff::{FOR_EVER, stretched};

/// The maximum share by which a pause is extended, so that programs do not retry all at once.
const JITTER: f64 = 0.25;

/// Delivers queued events to a sink.
pub(super) struct Delivery<S> {
    pub(super) sink: S,
    pub(super) inbox: mpsc::Receiver<Arc<Record>>,
    pub(super) options: EventOptions,
    pub(super) failed: Arc<AtomicU64>,
    /// Once cancelled, every event has one attempt.
    pub(super) closing: CancellationToken,
    pub(super) random: Rng,
}

impl<S: EventSink> Delivery<S> {
    /// Runs until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        while let Some(record) = self.inbox.recv().await {
            if let Err(why) = self.deliver(&record).await {
                self.failed.fetch_add(1, Ordering::Relaxed);
                let Record { regarding, event, .. } = &*record;
                tracing::error!(
                    kind = regarding.kind,
                    namespace = regarding.namespace,
                    name = regarding.name,
                    reason = event.reason,
                    note = event.note,
                    "event not written: {why}"
                );
            }
        }
    }

    async fn deliver(&mut self, record: &Record) -> Result<(), String> {
        let mut tries = 0;
        loop {
            let error = match timeout(self.options.try_timeout, self.sink.write(record)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(rejected @ SinkError::Rejected(_))) => return Err(rejected.to_string()),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {:?}", self.options.try_timeout),
            };
            tries += 1;
            if tries >= self.options.tries {
                return Err(format!("{error}; gave up after {tries} attempts"));
            }
            let pause = stretched(self.options.pause, 1.0 + JITTER * self.random.f64(), FOR_EVER);
            if self.closing.run_until_cancelled(sleep(pause)).await.is_none() {
                return Err(format!("{error}; shutting down"));
            }
            tracing::debug!(error, tries, "retrying to write an event");
        }
    }
}

//! The interface of sinks.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use thiserror::Error;

use super::{Event, ObjectReference, Reporter};

/// One event with its context.
#[non_exhaustive]
pub struct Record {
    /// The reporter of the event.
    pub reporter: Arc<Reporter>,
    /// The object of the event.
    pub regarding: ObjectReference,
    /// The event.
    pub event: Event,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_struct("Record");
        it.field("regarding", &self.regarding).field("reason", &self.event.reason).finish_non_exhaustive()
    }
}

/// Why an event was not written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SinkError {
    /// A permanent failure. Retries are useless.
    #[error("rejected: {0}")]
    Rejected(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A temporary failure.
    #[error("not available: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Writes events.
pub trait EventSink: Send + Sync + 'static {
    /// Writes one event. Called for one event at a time; the future is dropped on timeout.
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), SinkError>>;
}

/// Writes events to the log.
pub(super) struct LogSink;

impl EventSink for LogSink {
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), SinkError>> {
        let Record { reporter, regarding, event } = record;
        tracing::info!(
            reporter = reporter.controller,
            api_version = regarding.api_version,
            kind = regarding.kind,
            namespace = regarding.namespace,
            name = regarding.name,
            r#type = ?event.type_,
            reason = event.reason,
            action = event.action,
            note = event.note,
            "event occurred"
        );
        futures::future::ready(Ok(())).boxed()
    }
}

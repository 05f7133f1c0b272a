//! Where events go.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use thiserror::Error;

use super::{Event, ObjectReference, Reporter};

/// One event, and what it belongs to.
pub struct Record {
    /// Who says it.
    pub reporter: Arc<Reporter>,
    /// Of which object.
    pub regarding: ObjectReference,
    /// What.
    pub event: Event,
}

/// Why an event was not written.
#[derive(Debug, Error)]
pub enum SinkError {
    /// It never will be: trying again is of no use.
    #[error("rejected: {0}")]
    Rejected(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It may be another time.
    #[error("not available: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Writes events somewhere.
pub trait EventSink: Send + Sync + 'static {
    /// Writes one event. It is called for one event after the other, and dropped when it takes too long.
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

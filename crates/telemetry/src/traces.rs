//! OpenTelemetry traces of scheduling attempts. Off unless a collector is configured.
//!
//! The scheduler's thread only records times, and sends finished attempts to a task. That task
//! creates ids, texts and requests. Attempts that cannot be sent in time are dropped and counted;
//! the scheduler never waits.
//!
//! No SDK is used: OTLP in JSON is a stable protocol, and only one of its messages is needed.

mod attempt;
mod attempt_record;
mod exporter;
mod ids;
mod observer;
mod open_attempts;
mod otlp;

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use supercargo_runtime::observer::Observer;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::exporter::Exporter;
use self::observer::TracingObserver;
use crate::metrics::{Counter, Metrics};

/// Sends a request to the collector and returns the whole response, or the error.
pub type SendRequest =
    Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<Bytes>, String>> + Send + Sync>;

/// An OpenTelemetry collector, and the sampling for it.
pub struct OtlpCollector {
    /// Its address, for logs.
    pub endpoint: Uri,
    /// Sends requests to it.
    pub send: SendRequest,
    /// Pods per million to trace.
    pub per_million: u32,
    /// The host name in the traces.
    pub instance: String,
}

/// Maximum number of queued attempts, which take a few MB.
const WAITING: usize = 2048;

/// The result of [`traced`].
pub struct Traced {
    /// The observer to use.
    pub observer: Box<dyn Observer>,
    /// The exporting task, if tracing is on. It ends once the observer is dropped and everything is
    /// sent.
    pub sending: Option<JoinHandle<()>>,
}

/// Wraps an observer to trace attempts, if there is a collector.
pub fn traced(collector: Option<OtlpCollector>, metrics: &Metrics, observer: Box<dyn Observer>) -> Traced {
    let Some(OtlpCollector { endpoint, send, per_million, instance }) = collector else {
        return Traced { observer, sending: None };
    };
    let drops = Drops::counted_by(metrics);
    let (sender, attempts) = mpsc::channel(WAITING);
    let exporter = Exporter::new(send, &instance, attempts, Arc::clone(&drops.not_taken));
    let observer = Box::new(TracingObserver::new(observer, per_million, sender, drops));
    tracing::info!(%endpoint, per_million, "tracing scheduling attempts");
    Traced { observer, sending: Some(tokio::spawn(exporter.run())) }
}

/// Why spans are dropped.
#[derive(Clone, Default)]
struct Drops {
    /// The attempt did not end, or ended unobserved.
    unfinished: Arc<Counter>,
    /// The queue was full.
    queue_full: Arc<Counter>,
    /// The collector rejected them.
    not_taken: Arc<Counter>,
}

impl Drops {
    fn counted_by(metrics: &Metrics) -> Self {
        Self {
            unfinished: metrics.trace_spans_dropped("unfinished"),
            queue_full: metrics.trace_spans_dropped("queue_full"),
            not_taken: metrics.trace_spans_dropped("not_taken"),
        }
    }
}

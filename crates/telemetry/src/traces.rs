//! Traces of attempts to schedule a pod, for OpenTelemetry: off, unless somebody says where they go.
//!
//! On the scheduler's thread it is only noted when what began and ended; what is known of an attempt is handed over once that
//! has ended. Ids, texts and requests are made by a task of its own. What nobody takes in time is dropped and counted: nothing
//! ever waits for it.
//!
//! There is no SDK in it. OTLP in JSON is a stable protocol, and one message of it is all that is said here.

mod attempt;
mod exporter;
mod ids;
mod observer;
mod otlp;
mod parts;
mod under_way;

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

/// Sends a request to the collector and returns its whole answer, or why there is none.
pub type SendRequest =
    Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<Bytes>, String>> + Send + Sync>;

/// An OpenTelemetry collector, and what it gets.
pub struct Collector {
    /// Its address, for logs.
    pub endpoint: Uri,
    /// Reaches it.
    pub send: SendRequest,
    /// Pods per million to trace.
    pub per_million: u32,
    /// The host that the traces come from.
    pub instance: String,
}

/// So many attempts at most wait to be sent, in a few MB.
const WAITING: usize = 2048;

/// Attempts that may be traced.
pub struct Traced {
    /// Who observes from now on.
    pub observer: Box<dyn Observer>,
    /// What sends, if anything is traced. It ends when that observer is gone and all is sent.
    pub sending: Option<JoinHandle<()>>,
}

/// Wraps an observer so that attempts are traced, if there is a collector.
pub fn traced(collector: Option<Collector>, metrics: &Metrics, observer: Box<dyn Observer>) -> Traced {
    let Some(Collector { endpoint, send, per_million, instance }) = collector else {
        return Traced { observer, sending: None };
    };
    let drops = Drops::counted_by(metrics);
    let (sender, attempts) = mpsc::channel(WAITING);
    let exporter = Exporter::new(send, &instance, attempts, Arc::clone(&drops.not_taken));
    let observer = Box::new(TracingObserver::new(observer, per_million, sender, drops));
    tracing::info!(%endpoint, per_million, "attempts are traced");
    Traced { observer, sending: Some(tokio::spawn(exporter.run())) }
}

/// Spans that reach no collector, by why.
#[derive(Clone, Default)]
struct Drops {
    /// Their attempt never ended, or came to nothing that anybody told of.
    unfinished: Arc<Counter>,
    /// Too much waited to be sent.
    queue_full: Arc<Counter>,
    /// The collector did not take them.
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

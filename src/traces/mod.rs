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
#[cfg(test)]
mod tests;
mod under_way;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use http::Uri;
use supercargo_scheduler::Observer;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::exporter::Exporter;
use self::observer::TracingObserver;
use crate::api::without_needless_trust;
use crate::election::hostname;
use crate::flags::TraceOptions;
use crate::metrics::{Counter, Metrics};
use crate::transport::Transport;

/// So many attempts at most wait to be sent, in a few MB.
const WAITING: usize = 2048;

/// Attempts that may be traced.
pub(crate) struct Traced {
    /// Who observes from now on.
    pub(crate) observer: Box<dyn Observer>,
    /// What sends, if anything is traced. It ends when that observer is gone and all is sent.
    pub(crate) sending: Option<JoinHandle<()>>,
}

/// Has attempts traced, if that is wanted, and passes on what is observed.
pub(crate) fn traced(
    options: &TraceOptions,
    metrics: &Metrics,
    observer: Box<dyn Observer>,
) -> Result<Traced> {
    let Some(endpoint) = &options.tracing_endpoint else {
        return Ok(Traced { observer, sending: None });
    };
    let transport = transport(endpoint).with_context(|| format!("--tracing-endpoint {endpoint}"))?;
    let per_million = options.tracing_sampling_rate_per_million;
    let drops = Drops::counted_by(metrics);
    let (sender, attempts) = mpsc::channel(WAITING);
    let exporter = Exporter::new(transport, &hostname(), attempts, Arc::clone(&drops.not_taken));
    let observer = Box::new(TracingObserver::new(observer, per_million, sender, drops));
    tracing::info!(%endpoint, per_million, "attempts are traced");
    Ok(Traced { observer, sending: Some(tokio::spawn(exporter.run())) })
}

/// The way to a collector. Whom to trust is the system's to say.
fn transport(endpoint: &Uri) -> Result<Transport, kube::Error> {
    Transport::connect(&without_needless_trust(kube::Config::new(endpoint.clone())))
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

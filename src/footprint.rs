//! How much a running scheduler holds. What comes and goes must leave nothing behind: these numbers say so, where the memory of the
//! process cannot, because an allocator keeps what it has had.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use supercargo_scheduler::Scheduler;

use crate::events::Recorder;
use crate::gauge::{EventGauges, Gauge};
use crate::informers::{Holdings, Informers};
use crate::owner::Mailbox;
use crate::status_writer::Patches;

/// How many of everything there are.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Footprint {
    #[serde(flatten)]
    holdings: Holdings,
    #[serde(flatten)]
    decisions: Decisions,
    /// Warnings that may come again.
    event_series: usize,
    /// Events that wait to be written.
    event_writes: usize,
    /// Pods with a condition or nomination that is to be written.
    status_writes: usize,
}

/// What the scheduler itself holds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Decisions {
    cached_nodes: usize,
    cached_pods: usize,
    assumed_pods: usize,
    pending_pods: usize,
    /// In all of the queue's parts, in flight included.
    queued_pods: usize,
    bindings: usize,
    /// Evaluation tables and their columns, and what they take, in bytes.
    tables: usize,
    columns: usize,
    table_bytes: usize,
    /// Changes that are kept for tables to catch up with, and with them the pods and nodes that they are about.
    changes: usize,
}

impl Decisions {
    fn of(scheduler: &Scheduler) -> Self {
        let stats = scheduler.stats();
        Self {
            cached_nodes: stats.nodes,
            cached_pods: stats.pods,
            assumed_pods: stats.assumed_pods,
            pending_pods: stats.pending_pods,
            queued_pods: stats.queue.iter().sum(),
            bindings: stats.bindings,
            tables: stats.tables.tables,
            columns: stats.tables.columns,
            table_bytes: stats.tables.bytes,
            changes: stats.changes,
        }
    }
}

/// Asks everybody how much they hold. It keeps nobody at work: writers end when nobody can give them anything any more.
#[derive(Clone)]
pub(crate) struct Surveyor {
    mailbox: Mailbox,
    holdings: Arc<dyn Fn() -> Holdings + Send + Sync>,
    events: EventGauges,
    status_writes: Gauge,
}

impl Surveyor {
    pub(crate) fn new(
        mailbox: Mailbox,
        informers: &Informers,
        recorder: &Recorder,
        patches: &Patches,
    ) -> Self {
        let holdings = Arc::new(informers.holdings());
        Self { mailbox, holdings, events: recorder.gauges(), status_writes: patches.gauge() }
    }

    /// `/debug/footprint`
    pub(crate) async fn json(&self) -> Value {
        // It can always be written: it is a struct of numbers.
        serde_json::to_value(self.survey().await).unwrap_or_default()
    }

    /// `None` when the scheduler has ended.
    async fn survey(&self) -> Option<Footprint> {
        let decisions = self.mailbox.ask(Decisions::of).await?;
        Some(Footprint {
            holdings: (self.holdings)(),
            decisions,
            event_series: self.events.series.get(),
            event_writes: self.events.writes.get(),
            status_writes: self.status_writes.get(),
        })
    }
}

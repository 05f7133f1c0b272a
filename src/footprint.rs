//! How much a running scheduler holds. What comes and goes must leave nothing behind: these numbers say so, where the memory of the
//! process cannot, because an allocator keeps what it has had.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;
use supercargo_scheduler::Scheduler;

use crate::events::Recorder;
use crate::informers::Holdings;
use crate::owner::Mailbox;
use crate::status_writer::Patches;

/// How many of everything there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Footprint {
    /// What informers hold.
    #[serde(flatten)]
    pub(crate) holdings: Holdings,
    /// What the scheduler holds.
    #[serde(flatten)]
    pub(crate) decisions: Decisions,
    /// Warnings that may come again.
    pub(crate) event_series: usize,
    /// Events that wait to be written.
    pub(crate) event_writes: usize,
    /// Pods with a condition or nomination that is to be written.
    pub(crate) status_writes: usize,
}

/// What the scheduler itself holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Decisions {
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
}

impl Decisions {
    fn of(scheduler: &Scheduler) -> Self {
        let (cached_pods, assumed_pods) = scheduler.cache().pod_counts();
        let tables = scheduler.table_stats();
        Self {
            cached_nodes: scheduler.cache().nodes().len(),
            cached_pods,
            assumed_pods,
            pending_pods: scheduler.pending_pods(),
            queued_pods: scheduler.queue_lengths().iter().sum(),
            bindings: scheduler.bindings_in_flight(),
            tables: tables.tables,
            columns: tables.columns,
            table_bytes: tables.bytes,
        }
    }
}

/// A number that a task keeps current for others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauge(Arc<AtomicUsize>);

impl Gauge {
    pub(crate) fn set(&self, value: usize) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Asks everybody how much they hold.
#[derive(Clone)]
pub(crate) struct Surveyor {
    pub(crate) mailbox: Mailbox,
    pub(crate) holdings: Arc<dyn Fn() -> Holdings + Send + Sync>,
    pub(crate) recorder: Recorder,
    pub(crate) patches: Patches,
}

impl Surveyor {
    /// `None` when the scheduler has ended.
    pub(crate) async fn survey(&self) -> Option<Footprint> {
        let decisions = self.mailbox.ask(Decisions::of).await?;
        let (event_series, event_writes) = self.recorder.held();
        let (holdings, status_writes) = ((self.holdings)(), self.patches.held());
        Some(Footprint { holdings, decisions, event_series, event_writes, status_writes })
    }
}

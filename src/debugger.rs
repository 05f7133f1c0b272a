//! Compares the scheduler's cache with the informers, and dumps it: upstream's cache debugger.
//!
//! SIGUSR2 writes the comparison and a dump to the log, like kube-scheduler. The comparison also
//! runs periodically. Then it counts only mismatches that it finds twice, because informers are
//! always slightly ahead of the scheduler.

mod dump;
mod json;

use std::collections::BTreeSet;
use std::future::pending;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use supercargo_framework::Uid;
use supercargo_scheduler::{KnownObjects, NodeView, QueueView, Scheduler};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval_at, sleep};

use crate::informers::Stores;
use supercargo_owner::owner::Mailbox;
use supercargo_telemetry::metrics::Metrics;

/// How often the comparison runs. It takes one pass over all pods.
const COMPARE_PERIOD: Duration = Duration::from_mins(5);
/// Nodes whose sums are checked at a time, so that the scheduler is not held up.
const SUMS_AT_ONCE: usize = 100;
/// Time until mismatches are checked again: events may be in flight.
const RECHECK_DELAY: Duration = Duration::from_secs(5);

/// Compares and dumps the cache.
#[derive(Clone)]
pub(crate) struct Debugger {
    stores: Stores,
    mailbox: Mailbox,
    metrics: Arc<Metrics>,
}

/// Objects that are only in the informers or only in the cache, and sums that are not those of the
/// pods in the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Nodes only in the informers.
    pub(crate) missed_nodes: BTreeSet<Arc<str>>,
    /// Nodes only in the cache.
    pub(crate) redundant_nodes: BTreeSet<Arc<str>>,
    /// UIDs of pods only in the informers.
    pub(crate) missed_pods: BTreeSet<String>,
    /// UIDs of pods only in the scheduler.
    pub(crate) redundant_pods: BTreeSet<String>,
    /// Nodes whose sums are wrong.
    pub(crate) wrong_sums: BTreeSet<Arc<str>>,
}

impl Mismatch {
    /// The differences between the informers and the scheduler.
    fn between(informed: &KnownObjects, cached: &KnownObjects) -> Self {
        let text = |uid: &Uid| uid.to_string();
        Self {
            missed_nodes: informed.nodes.difference(&cached.nodes).cloned().collect(),
            redundant_nodes: cached.nodes.difference(&informed.nodes).cloned().collect(),
            missed_pods: informed.pods.difference(&cached.pods).map(text).collect(),
            redundant_pods: cached.pods.difference(&informed.pods).map(text).collect(),
            wrong_sums: BTreeSet::new(),
        }
    }

    /// The mismatches in both.
    fn intersection(&self, other: &Self) -> Self {
        fn both<T: Ord + Clone + Hash>(a: &BTreeSet<T>, b: &BTreeSet<T>) -> BTreeSet<T> {
            a.intersection(b).cloned().collect()
        }
        Self {
            missed_nodes: both(&self.missed_nodes, &other.missed_nodes),
            redundant_nodes: both(&self.redundant_nodes, &other.redundant_nodes),
            missed_pods: both(&self.missed_pods, &other.missed_pods),
            redundant_pods: both(&self.redundant_pods, &other.redundant_pods),
            wrong_sums: both(&self.wrong_sums, &other.wrong_sums),
        }
    }

    /// Numbers of mismatches by kind.
    fn counts(&self) -> [(&'static str, usize); 3] {
        [
            ("node", self.missed_nodes.len() + self.redundant_nodes.len()),
            ("pod", self.missed_pods.len() + self.redundant_pods.len()),
            ("sum", self.wrong_sums.len()),
        ]
    }

    fn log(&self) {
        if !(self.missed_nodes.is_empty() && self.redundant_nodes.is_empty()) {
            let (missed, redundant) = (&self.missed_nodes, &self.redundant_nodes);
            tracing::warn!(missedNodes = ?missed, redundantNodes = ?redundant, "Cache mismatch");
        }
        if !(self.missed_pods.is_empty() && self.redundant_pods.is_empty()) {
            let (missed, redundant) = (&self.missed_pods, &self.redundant_pods);
            tracing::warn!(missedPods = ?missed, redundantPods = ?redundant, "Cache mismatch");
        }
        if !self.wrong_sums.is_empty() {
            tracing::warn!(wrongSums = ?self.wrong_sums, "Cache mismatch");
        }
    }
}

impl Debugger {
    pub(crate) fn new(stores: Stores, mailbox: Mailbox, metrics: Arc<Metrics>) -> Self {
        Self { stores, mailbox, metrics }
    }

    /// Compares once. `None` if the scheduler has stopped.
    pub(crate) async fn compare(&self) -> Option<Mismatch> {
        let informed = self.stores.known();
        let cached = self.mailbox.ask(Scheduler::known_objects).await?;
        let wrong_sums = self.wrong_sums(&cached).await?;
        Some(Mismatch { wrong_sums, ..Mismatch::between(&informed, &cached) })
    }

    async fn wrong_sums(&self, cached: &KnownObjects) -> Option<BTreeSet<Arc<str>>> {
        let mut wrong = BTreeSet::new();
        let names: Vec<_> = cached.nodes.iter().cloned().collect();
        for some in names.chunks(SUMS_AT_ONCE).map(<[_]>::to_vec) {
            wrong.extend(self.mailbox.ask(move |scheduler| scheduler.nodes_with_wrong_sums(&some)).await?);
        }
        Some(wrong)
    }

    /// Mismatches found by two comparisons.
    async fn compare_twice(&self) -> Option<Mismatch> {
        let first = self.compare().await?;
        if first == Mismatch::default() {
            return Some(first);
        }
        sleep(RECHECK_DELAY).await;
        Some(first.intersection(&self.compare().await?))
    }

    /// Compares periodically until the scheduler stops. Must not start before all handlers have
    /// synced.
    pub(crate) async fn compare_periodically(&self) {
        let mut ticks = interval_at(tokio::time::Instant::now() + COMPARE_PERIOD, COMPARE_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(mismatch) = self.compare_twice().await else { return };
            mismatch.log();
            for (kind, count) in mismatch.counts() {
                (0..count).for_each(|_| self.metrics.cache_mismatch(kind));
            }
        }
    }

    /// Compares and dumps on each SIGUSR2. Returns only if the signal handler cannot be installed.
    pub(crate) async fn on_signal(&self) -> anyhow::Error {
        let mut signals = match signal(SignalKind::user_defined2()) {
            Ok(signals) => signals,
            Err(error) => return anyhow::Error::new(error).context("cannot listen for SIGUSR2"),
        };
        while signals.recv().await.is_some() {
            let (Some(mismatch), Some((nodes, queue))) = (self.compare().await, self.views().await) else {
                break;
            };
            mismatch.log();
            tracing::info!(nodes = %dump::nodes(&nodes), "Dump of cached NodeInfo");
            tracing::info!(summary = %dump::summary(&queue), pods = %dump::pods(&queue), "Dump of scheduling queue");
        }
        // The scheduler has stopped, which is handled elsewhere.
        pending().await
    }

    async fn views(&self) -> Option<(Vec<NodeView>, QueueView)> {
        self.mailbox.ask(|scheduler| (scheduler.node_views(), scheduler.queue_view())).await
    }

    /// `/debug/cache`
    pub(crate) async fn cache_json(&self) -> Value {
        let views = self.mailbox.ask(Scheduler::node_views).await;
        json::cache(&views.unwrap_or_default())
    }

    /// `/debug/queue`
    pub(crate) async fn queue_json(&self) -> Value {
        let view = self.mailbox.ask(Scheduler::queue_view).await;
        json::queue(&view.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;

//! Whether the scheduler knows what the informers hold, and what it knows: upstream's cache debugger.
//!
//! SIGUSR2 compares and dumps into the log, as kube-scheduler does. The comparison also runs by itself, and there counts only
//! what it finds twice, as informers are always a little ahead of the scheduler.

mod dump;
mod json;

use std::collections::BTreeSet;
use std::future::pending;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use supercargo_framework::Uid;
use supercargo_scheduler::{Known, NodeView, QueueView, Scheduler};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval_at, sleep};

use crate::informers::Stores;
use crate::owner::Mailbox;
use supercargo_telemetry::metrics::Metrics;

/// How often the comparison runs by itself. It costs as much as going once through all pods.
const COMPARE_PERIOD: Duration = Duration::from_mins(5);
/// What differs is looked at again after this: news may be on their way.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Compares and dumps.
#[derive(Clone)]
pub(crate) struct Debugger {
    stores: Stores,
    mailbox: Mailbox,
    metrics: Arc<Metrics>,
}

/// What the informers and the scheduler do not agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Nodes that the scheduler has missed.
    pub(crate) missed_nodes: BTreeSet<Arc<str>>,
    /// Nodes that only it knows.
    pub(crate) redundant_nodes: BTreeSet<Arc<str>>,
    /// Pods that it has missed, by UID.
    pub(crate) missed_pods: BTreeSet<String>,
    /// Pods that only it knows.
    pub(crate) redundant_pods: BTreeSet<String>,
}

impl Mismatch {
    /// How `cached` differs from what is `held`.
    fn between(held: &Known, cached: &Known) -> Self {
        let text = |uid: &Uid| uid.to_string();
        Self {
            missed_nodes: held.nodes.difference(&cached.nodes).cloned().collect(),
            redundant_nodes: cached.nodes.difference(&held.nodes).cloned().collect(),
            missed_pods: held.pods.difference(&cached.pods).map(text).collect(),
            redundant_pods: cached.pods.difference(&held.pods).map(text).collect(),
        }
    }

    /// What is in both.
    fn and(&self, other: &Self) -> Self {
        fn both<T: Ord + Clone + Hash>(a: &BTreeSet<T>, b: &BTreeSet<T>) -> BTreeSet<T> {
            a.intersection(b).cloned().collect()
        }
        Self {
            missed_nodes: both(&self.missed_nodes, &other.missed_nodes),
            redundant_nodes: both(&self.redundant_nodes, &other.redundant_nodes),
            missed_pods: both(&self.missed_pods, &other.missed_pods),
            redundant_pods: both(&self.redundant_pods, &other.redundant_pods),
        }
    }

    /// How many nodes it is about, and how many pods.
    fn counts(&self) -> (usize, usize) {
        let nodes = self.missed_nodes.len() + self.redundant_nodes.len();
        (nodes, self.missed_pods.len() + self.redundant_pods.len())
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
    }
}

impl Debugger {
    pub(crate) fn new(stores: Stores, mailbox: Mailbox, metrics: Arc<Metrics>) -> Self {
        Self { stores, mailbox, metrics }
    }

    /// Compares once. `None` when the scheduler has ended.
    pub(crate) async fn compare(&self) -> Option<Mismatch> {
        let held = self.stores.known();
        let cached = self.mailbox.ask(Scheduler::known_objects).await?;
        Some(Mismatch::between(&held, &cached))
    }

    /// What stays different when it is looked at twice.
    async fn compare_twice(&self) -> Option<Mismatch> {
        let first = self.compare().await?;
        if first == Mismatch::default() {
            return Some(first);
        }
        sleep(LOOK_AGAIN).await;
        Some(first.and(&self.compare().await?))
    }

    /// Compares for as long as there is a scheduler. Should only begin once it knows of everything.
    pub(crate) async fn compare_by_itself(&self) {
        let mut ticks = interval_at(tokio::time::Instant::now() + COMPARE_PERIOD, COMPARE_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(mismatch) = self.compare_twice().await else { return };
            mismatch.log();
            let (nodes, pods) = mismatch.counts();
            (0..nodes).for_each(|_| self.metrics.cache_mismatch("node"));
            (0..pods).for_each(|_| self.metrics.cache_mismatch("pod"));
        }
    }

    /// Compares and dumps on each SIGUSR2. Only returns when it cannot listen for it.
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
        // The scheduler has ended, of which others hear, too.
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

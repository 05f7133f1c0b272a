//! Sizes and counts of the scheduler, for metrics.

use std::sync::Arc;

use supercargo_framework::Text;
use supercargo_queue::GroupLengths;

use crate::scheduler::Scheduler;
use supercargo_evaluation::tables::TableStats;

/// The number of queued pods that a plugin rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The profile's name.
    pub profile: Arc<str>,
    /// The plugin.
    pub plugin: Text,
    /// The number of pods; 0 for a plugin that rejected pods before.
    pub pods: usize,
}

/// Sizes and counts of the scheduler.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Entities in activeQ, backoffQ, unschedulableEntities (without gated ones), gated, and pods
    /// in flight. A group is one entity.
    pub queue: [usize; 5],
    /// Groups and their pods; `None` without the feature gate GenericWorkload.
    pub groups: Option<GroupLengths>,
    /// Events kept for pods in flight, by label.
    pub events_in_flight: Vec<(String, usize)>,
    /// Rejected pods by profile and plugin.
    pub rejected: Vec<Rejected>,
    /// Nodes in the cache.
    pub nodes: usize,
    /// Pods in the cache, assumed ones included.
    pub pods: usize,
    /// Known pods without a node that a profile serves.
    pub pending_pods: usize,
    /// Assumed pods.
    pub assumed_pods: usize,
    /// Bindings in progress.
    pub bindings: usize,
    /// Preemptions in progress.
    pub preemptions: usize,
    /// Allocations of devices that bindings in progress are about to write.
    pub pending_allocations: usize,
    /// Statistics of evaluation tables.
    pub tables: TableStats,
    /// Changes kept for evaluation tables to catch up with.
    pub changes: usize,
}

impl Stats {
    /// Pods in activeQ, backoffQ, unschedulableEntities (without gated ones), and gated.
    pub fn queued_pods(&self) -> [usize; 4] {
        let GroupLengths { groups, pods, .. } = self.groups.unwrap_or_default();
        std::array::from_fn(|at| self.queue[at] - groups[at] + pods[at])
    }

    /// Pods in all parts of the queue and in flight.
    pub fn unscheduled_pods(&self) -> usize {
        self.queued_pods().iter().sum::<usize>() + self.queue[4]
    }
}

impl Scheduler {
    /// Sizes and counts at this time. Iterates over the events kept for pods in flight and over the
    /// pods in the cache: about a millisecond with hundreds of thousands.
    pub fn stats(&self) -> Stats {
        let events = self.queue.events_in_flight().into_iter();
        let rejected = self.queue.rejected().map(|(profile, plugin, pods)| Rejected {
            profile: Arc::clone(&self.profiles.get(profile).scheduler_name),
            plugin: plugin.clone(),
            pods,
        });
        let (pods, assumed_pods) = self.cache.pod_counts();
        Stats {
            queue: self.queue.lengths(),
            groups: self.queue.group_lengths(),
            events_in_flight: events.map(|(event, count)| (event.to_string(), count)).collect(),
            rejected: rejected.collect(),
            nodes: self.cache.nodes().names().len(),
            pods,
            pending_pods: self.pending.len(),
            assumed_pods,
            bindings: self.bindings.len(),
            preemptions: self.preemptions.len(),
            pending_allocations: self.objects.list_pending().count(),
            tables: self.table_stats(),
            changes: self.cache.change_count(),
        }
    }
}

//! The orders of the queues.

use std::cmp::Ordering;
use std::sync::Arc;

use supercargo_framework::plugin::Queued;
use supercargo_framework::{PodInfo, Timestamp};

use super::entry::QueuedPod;
use super::guarded_sort::GuardedSort;
use crate::stall::is_stalled;

/// The order of the active queue: by the queue-sort plugin, then first come, first served. Pods
/// with which a scheduler has stalled come last.
#[derive(Clone)]
pub(crate) struct ActiveRank {
    pod: Arc<PodInfo>,
    timestamp: Timestamp,
    sequence: u64,
    is_stalled: bool,
    sort: Arc<GuardedSort>,
}

impl ActiveRank {
    pub(crate) fn new(entry: &QueuedPod, sort: &Arc<GuardedSort>) -> Self {
        Self {
            pod: Arc::clone(&entry.pod),
            timestamp: entry.timestamp,
            sequence: entry.sequence,
            is_stalled: is_stalled(&entry.pod),
            sort: Arc::clone(sort),
        }
    }

    fn queued(&self) -> Queued<'_> {
        Queued { pod: &self.pod, timestamp: self.timestamp }
    }
}

/// The heap pops the greatest.
impl Ord for ActiveRank {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.is_stalled != other.is_stalled {
            other.is_stalled.cmp(&self.is_stalled)
        } else if self.sort.less(self.queued(), other.queued()) {
            Ordering::Greater
        } else if self.sort.less(other.queued(), self.queued()) {
            Ordering::Less
        } else {
            other.sequence.cmp(&self.sequence)
        }
    }
}

impl PartialOrd for ActiveRank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ActiveRank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ActiveRank {}

/// The order of a backoff queue: by the end of the backoff, then as in the active queue.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BackoffRank {
    until: std::cmp::Reverse<Timestamp>,
    then: ActiveRank,
}

impl BackoffRank {
    pub(crate) fn new(entry: &QueuedPod, sort: &Arc<GuardedSort>) -> Self {
        let until = entry.backoff_until.unwrap_or_default();
        Self { until: std::cmp::Reverse(until), then: ActiveRank::new(entry, sort) }
    }

    pub(crate) fn until(&self) -> Timestamp {
        self.until.0
    }
}

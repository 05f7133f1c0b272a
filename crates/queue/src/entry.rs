//! A pod in the queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::objects::GroupKind;
use supercargo_framework::{PodInfo, Text, Timestamp, Uid};

use super::queueing_strategy::QueueingStrategy;
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::observer::TimePoint;
use supercargo_runtime::profile::ProfileIndex;

/// A pod that is queued or in flight, with the history of its attempts.
#[derive(Clone, Debug)]
pub struct QueuedPod {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// The profile that schedules it.
    pub profile: ProfileIndex,
    /// When the pod last entered a queue after an attempt; before the first one, when it was added.
    pub timestamp: Timestamp,
    /// The number of times it was popped.
    pub attempts: u32,
    /// When it first entered the active queue.
    pub initial_attempt: Option<Timestamp>,
    /// The number of attempts in which plugins rejected it.
    pub unschedulable_count: u32,
    /// The number of consecutive errors since.
    pub consecutive_errors: u32,
    /// Whether it was last moved because it had waited too long.
    pub flushed: bool,
    /// When that was last tried since its last attempt.
    pub(crate) flushed_at: Option<Timestamp>,
    /// The plugins that rejected it in the last attempt.
    pub unschedulable_plugins: BTreeSet<Text>,
    /// The plugins that returned Pending in the last attempt.
    pub pending_plugins: BTreeSet<Text>,
    /// The PreEnqueue plugin that holds it.
    pub gating_plugin: Option<Text>,
    /// Of a group's member: whether PreEnqueue was asked about the pod as it is, since its last
    /// attempt.
    pub(crate) asked: bool,
    /// When its backoff ends; `None` if it has none.
    pub backoff_until: Option<Timestamp>,
    /// The start of its attempt, by the observer's clock.
    pub began: TimePoint,
    /// The kind of the group that it stands for, with its priority. The members are beside.
    pub(crate) group: Option<GroupKind>,
    /// Whether it was just taken out of unschedulableEntities for its own sake. If PreEnqueue holds
    /// it then, it has not moved.
    pub(crate) stays: bool,
    /// The order among equals; a later entry has a larger number.
    pub sequence: u64,
}

impl QueuedPod {
    /// A pod that was not tried yet.
    pub fn new(pod: Arc<PodInfo>, profile: ProfileIndex, now: Timestamp) -> Self {
        Self {
            pod,
            profile,
            timestamp: now,
            attempts: 0,
            initial_attempt: None,
            unschedulable_count: 0,
            consecutive_errors: 0,
            flushed: false,
            flushed_at: None,
            unschedulable_plugins: BTreeSet::new(),
            pending_plugins: BTreeSet::new(),
            gating_plugin: None,
            asked: false,
            backoff_until: None,
            began: TimePoint::default(),
            group: None,
            stays: false,
            sequence: 0,
        }
    }

    /// The pod's UID.
    pub fn uid(&self) -> &Uid {
        &self.pod.uid
    }

    /// When its backoff ends; `None` if it has none.
    pub fn backoff_until(&self) -> Option<Timestamp> {
        self.backoff_until
    }

    /// The start of its wait in unschedulableEntities: its last attempt or flush.
    pub(crate) fn waits_since(&self) -> Timestamp {
        self.flushed_at.map_or(self.timestamp, |flushed| flushed.max(self.timestamp))
    }

    /// Whether a plugin rejected the last attempt.
    pub fn has_rejectors(&self) -> bool {
        !self.unschedulable_plugins.is_empty() || !self.pending_plugins.is_empty()
    }

    /// The plugins that rejected the last attempt, each once.
    pub fn rejectors(&self) -> impl Iterator<Item = &Text> {
        self.unschedulable_plugins.union(&self.pending_plugins)
    }

    /// Whether `plugin` rejected the last attempt.
    pub fn rejected_by(&self, plugin: &str) -> bool {
        self.unschedulable_plugins.contains(plugin) || self.pending_plugins.contains(plugin)
    }

    /// The best strategy that an event can lead to: only a pending plugin can end the backoff
    /// early.
    pub(crate) fn best_possible_strategy(&self) -> QueueingStrategy {
        if self.pending_plugins.is_empty() {
            QueueingStrategy::AfterBackoff
        } else {
            QueueingStrategy::Immediately
        }
    }

    /// Sets the plugins that rejected the last attempt.
    pub fn blame(&mut self, failure: FailureKind) {
        (self.unschedulable_plugins, self.pending_plugins) = match failure {
            FailureKind::Fit(error) => {
                (error.diagnosis.unschedulable_plugins, error.diagnosis.pending_plugins)
            }
            FailureKind::Rejected(_) | FailureKind::Internal(_) | FailureKind::Gone => Default::default(),
        };
    }

    /// Whether the backoff has not ended.
    pub(crate) fn is_backing_off(&self, window: Window, now: Timestamp) -> bool {
        self.backoff_until.is_some_and(|until| until >= window.align(now))
    }

    /// Computes the end of the backoff from the counts and the timestamp.
    pub(crate) fn set_backoff(&mut self, backoff: &Backoff, window: Window) {
        let count =
            if self.consecutive_errors > 0 { self.consecutive_errors } else { self.unschedulable_count };
        self.backoff_until = backoff.after(count).map(|duration| window.align(self.timestamp.plus(duration)));
    }
}

/// The precision of the ends of backoffs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// Whole seconds, so that priority orders the pods of one second: a pod whose backoff ends
    /// within second X leaves at the start of second X+1. For popping from backoffQ.
    Seconds,
    /// Exact times.
    Exact,
}

impl Window {
    fn align(self, time: Timestamp) -> Timestamp {
        match self {
            Self::Seconds => time.floor_to_second(),
            Self::Exact => time,
        }
    }

    /// Whether a backoff until `until` has ended.
    pub(crate) fn is_over(self, until: Timestamp, now: Timestamp) -> bool {
        until < self.align(now)
    }

    /// The first time at which a backoff until `until` has ended.
    pub(crate) fn end(self, until: Timestamp) -> Timestamp {
        match self {
            Self::Seconds => until.plus(Duration::from_secs(1)),
            Self::Exact => until.plus(Duration::from_micros(1)),
        }
    }
}

/// The backoff after failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The backoff after the first failure.
    pub initial: Duration,
    /// The maximum. Zero disables backoff.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// The backoff of a group of this many pods: upstream's limit grows with the square root.
    pub(crate) fn of_group(&self, pods: usize) -> Self {
        Self { max: self.max.mul_f64((pods as f64).sqrt()), ..*self }
    }

    /// The backoff after `count` failures: doubled each time, up to the maximum.
    fn after(&self, count: u32) -> Option<Duration> {
        if count == 0 || self.max.is_zero() {
            return None;
        }
        let factor = 1_u32.checked_shl(count - 1).unwrap_or(u32::MAX);
        Some(self.initial.checked_mul(factor).map_or(self.max, |duration| duration.min(self.max)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_the_maximum() {
        let waits: Vec<_> = (0..40).map(|n| Backoff::default().after(n).map(|d| d.as_secs())).collect();
        assert_eq!(waits[..7], [None, Some(1), Some(2), Some(4), Some(8), Some(10), Some(10)]);
        assert_eq!(waits[39], Some(10));
        assert_eq!(Backoff { max: Duration::ZERO, ..Backoff::default() }.after(3), None);
    }
}

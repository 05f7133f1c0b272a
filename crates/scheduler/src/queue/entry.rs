//! A pod in the queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::{PodInfo, Text, Timestamp, Uid};

use super::queueing_strategy::QueueingStrategy;
use crate::failure::FailureKind;
use crate::observer::TimePoint;
use crate::profile::ProfileIndex;

/// A pod that waits to be scheduled, or is being scheduled, with the history of its attempts.
#[derive(Clone, Debug)]
pub struct QueuedPod {
    /// The pod.
    pub pod: Arc<PodInfo>,
    pub(crate) profile: ProfileIndex,
    /// When the pod last entered a queue after an attempt; at first, when it came.
    pub timestamp: Timestamp,
    /// How often it has been popped.
    pub attempts: u32,
    /// When it first entered the active queue.
    pub initial_attempt: Option<Timestamp>,
    /// Failed attempts that plugins are to blame for.
    pub unschedulable_count: u32,
    /// Failed attempts since, in a row, that no plugin is to blame for.
    pub consecutive_errors: u32,
    /// Whether it was last moved because it had waited too long.
    pub flushed: bool,
    /// The plugins that turned it down at its last attempt.
    pub unschedulable_plugins: BTreeSet<Text>,
    /// Those among the plugins at its last attempt that wait for something under way.
    pub pending_plugins: BTreeSet<Text>,
    /// The PreEnqueue plugin that holds it.
    pub gating_plugin: Option<Text>,
    /// When the backoff of its last attempt ends; `None` when none is due.
    pub(crate) backoff_until: Option<Timestamp>,
    /// When its attempt began, by the observer's clock.
    pub(crate) began: TimePoint,
    /// Its turn among equals; a later entry has a larger one.
    pub(crate) sequence: u64,
}

impl QueuedPod {
    pub(crate) fn new(pod: Arc<PodInfo>, profile: ProfileIndex, now: Timestamp) -> Self {
        Self {
            pod,
            profile,
            timestamp: now,
            attempts: 0,
            initial_attempt: None,
            unschedulable_count: 0,
            consecutive_errors: 0,
            flushed: false,
            unschedulable_plugins: BTreeSet::new(),
            pending_plugins: BTreeSet::new(),
            gating_plugin: None,
            backoff_until: None,
            began: TimePoint::default(),
            sequence: 0,
        }
    }

    /// The pod's identity.
    pub fn uid(&self) -> &Uid {
        &self.pod.uid
    }

    /// When the backoff of its last attempt ends; `None` when none is due.
    pub fn backoff_until(&self) -> Option<Timestamp> {
        self.backoff_until
    }

    /// Whether a plugin is to blame for the last failed attempt.
    pub fn has_rejectors(&self) -> bool {
        !self.unschedulable_plugins.is_empty() || !self.pending_plugins.is_empty()
    }

    /// The plugins to blame, each once.
    pub(crate) fn rejectors(&self) -> impl Iterator<Item = &Text> {
        self.unschedulable_plugins.union(&self.pending_plugins)
    }

    /// Whether `plugin` is to blame.
    pub(crate) fn rejected_by(&self, plugin: &str) -> bool {
        self.unschedulable_plugins.contains(plugin) || self.pending_plugins.contains(plugin)
    }

    /// The most that an event can be strategy: only a plugin that waits for something under way can end the backoff.
    pub(super) fn best_possible_strategy(&self) -> QueueingStrategy {
        if self.pending_plugins.is_empty() {
            QueueingStrategy::AfterBackoff
        } else {
            QueueingStrategy::Immediately
        }
    }

    /// Replaces the plugins to blame.
    pub(crate) fn blame(&mut self, failure: FailureKind) {
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

    /// Works out when the backoff ends, from the counts and the timestamp.
    pub(crate) fn set_backoff(&mut self, backoff: &Backoff, window: Window) {
        let count =
            if self.consecutive_errors > 0 { self.consecutive_errors } else { self.unschedulable_count };
        self.backoff_until = backoff.after(count).map(|duration| window.align(self.timestamp.plus(duration)));
    }
}

/// How exactly ends of backoffs are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// By the second, so that pods of one second are ordered by priority: a pod whose backoff ends within second X
    /// leaves when second X+1 begins. For popping from backoffQ.
    Seconds,
    /// To the moment.
    Exact,
}

impl Window {
    fn align(self, time: Timestamp) -> Timestamp {
        match self {
            Self::Seconds => time.floor_to_second(),
            Self::Exact => time,
        }
    }

    /// Whether a backoff until then has ended.
    pub(crate) fn is_over(self, until: Timestamp, now: Timestamp) -> bool {
        until < self.align(now)
    }

    /// The first moment at which a backoff until then has ended.
    pub(crate) fn end(self, until: Timestamp) -> Timestamp {
        match self {
            Self::Seconds => until.plus(Duration::from_secs(1)),
            Self::Exact => until.plus(Duration::from_micros(1)),
        }
    }
}

/// How long a pod waits after failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub initial: Duration,
    /// At most. Zero switches backoff off.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// The wait after `count` failures: doubled each time, up to the maximum.
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

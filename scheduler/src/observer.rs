//! What happens inside, for metrics: written, never read back.

use std::time::Duration;

use supercargo_framework::{PodInfo, Text};

/// How an attempt to schedule a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// A node was found and the pod bound.
    Scheduled,
    /// No node fits.
    Unschedulable,
    /// Something failed.
    Error,
}

/// Which queue a pod went into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueName {
    /// activeQ.
    Active,
    /// backoffQ.
    Backoff,
    /// unschedulablePods.
    Unschedulable,
}

/// Something that happened.
#[derive(Debug)]
pub enum Observation<'a> {
    /// A pod entered a queue.
    QueueIncoming {
        /// Which.
        queue: QueueName,
        /// The event's label, or another cause.
        event: &'a str,
    },
    /// An attempt ended.
    Attempt {
        /// The profile.
        profile: &'a str,
        /// How.
        result: AttemptResult,
        /// The pod.
        pod: &'a PodInfo,
        /// How many attempts it has had, this one included.
        attempts: u32,
        /// For a bound pod: the time since it first entered the active queue.
        since_first_attempt: Option<Duration>,
    },
    /// A hint was asked for.
    Hint {
        /// The plugin.
        plugin: &'a Text,
        /// `Queue`, `QueueSkip` or `Error`.
        hint: &'static str,
    },
    /// A pod that waited on Permit goes on or is turned down.
    PermitWaited {
        /// The status code's name.
        result: &'static str,
        /// How long it waited.
        waited: Duration,
    },
    /// A pod was bound by someone else, or elsewhere, while this scheduler was at it.
    LostRace,
    /// While a pod waited on Permit or PreBind, its node was filled or changed so that it no longer fits there.
    NodeTaken,
    /// Something that should not happen did; the scheduler went on.
    Anomaly(&'a str),
}

/// Takes observations.
pub trait Observer: Send {
    /// Takes one. Called on the scheduler's thread, often: must be quick.
    fn observe(&mut self, observation: Observation<'_>);
}

/// An observer that looks away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn observe(&mut self, _observation: Observation<'_>) {}
}

//! Observations of the scheduler, for metrics, traces and logs.
//!
//! The scheduler has no clock. The observer supplies time points of its own clock, and no decision
//! depends on them.

use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::binding::DevicesAwaited;
use supercargo_framework::context::{Preemptor, Victims};
use supercargo_framework::{ClusterEvent, Code, PodInfo, Text};

/// A time by the observer's clock. The scheduler only passes it back.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimePoint(pub u64);

/// A start and an end by the observer's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timespan {
    /// The start.
    pub from: TimePoint,
    /// The end.
    pub to: TimePoint,
}

/// An extension point, or a part of one that is timed separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// PreEnqueue.
    PreEnqueue,
    /// Signing a pod.
    Sign,
    /// PreFilter.
    PreFilter,
    /// Adding a pod to PreFilter's state.
    PreFilterExtensionAddPod,
    /// Removing a pod from PreFilter's state.
    PreFilterExtensionRemovePod,
    /// Filter.
    Filter,
    /// PostFilter.
    PostFilter,
    /// PlacementGenerate.
    PlacementGenerate,
    /// PlacementScore.
    PlacementScore,
    /// Normalizing scores of placements.
    PlacementScoreExtensionNormalize,
    /// PodGroupPostFilter.
    PodGroupPostFilter,
    /// PreScore.
    PreScore,
    /// Score.
    Score,
    /// Normalizing scores.
    ScoreExtensionNormalize,
    /// Reserve.
    Reserve,
    /// Unreserve.
    Unreserve,
    /// Permit.
    Permit,
    /// PreBindPreFlight.
    PreBindPreFlight,
    /// PreBind.
    PreBind,
    /// Bind.
    Bind,
    /// PostBind.
    PostBind,
}

impl Point {
    /// The number of points.
    pub const COUNT: usize = Self::PostBind as usize + 1;

    /// The name in reports of panics.
    pub(crate) fn phase(self) -> &'static str {
        match self {
            Self::PreFilterExtensionAddPod | Self::PreFilterExtensionRemovePod => "PreFilterExtensions",
            Self::ScoreExtensionNormalize => "NormalizeScore",
            _ => self.as_str(),
        }
    }

    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreEnqueue => "PreEnqueue",
            Self::Sign => "Sign",
            Self::PreFilter => "PreFilter",
            Self::PreFilterExtensionAddPod => "PreFilterExtensionAddPod",
            Self::PreFilterExtensionRemovePod => "PreFilterExtensionRemovePod",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::PlacementGenerate => "PlacementGenerate",
            Self::PlacementScore => "PlacementScore",
            Self::PlacementScoreExtensionNormalize => "PlacementScoreExtensionNormalize",
            Self::PodGroupPostFilter => "PodGroupPostFilter",
            Self::PreScore => "PreScore",
            Self::Score => "Score",
            Self::ScoreExtensionNormalize => "ScoreExtensionNormalize",
            Self::Reserve => "Reserve",
            Self::Unreserve => "Unreserve",
            Self::Permit => "Permit",
            Self::PreBindPreFlight => "PreBindPreFlight",
            Self::PreBind => "PreBind",
            Self::Bind => "Bind",
            Self::PostBind => "PostBind",
        }
    }
}

/// A set of a profile's plugins at one point: bit n is the n-th plugin. Plugins beyond 64 are left
/// out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginSet(u64);

impl PluginSet {
    /// The set of the plugin at this position.
    pub fn one(place: usize) -> Self {
        Self(u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0))
    }

    /// The union.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// The positions, ascending.
    pub fn places(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let place = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (place < u64::BITS).then_some(place as usize)
        })
    }
}

/// The plugins evaluated in one cycle, per point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evaluated {
    /// At PreFilter, without those that skipped.
    pub pre_filter: PluginSet,
    /// At Filter.
    pub filter: PluginSet,
    /// At PreScore, without those that skipped.
    pub pre_score: PluginSet,
    /// At Score.
    pub score: PluginSet,
}

impl Evaluated {
    /// Adds the plugins of another evaluation.
    pub fn add(&mut self, others: Self) {
        self.pre_filter = self.pre_filter.and(others.pre_filter);
        self.filter = self.filter.and(others.filter);
        self.pre_score = self.pre_score.and(others.pre_score);
        self.score = self.score.and(others.score);
    }
}

/// A profile for an observer: observations refer to profiles and plugins by position.
#[derive(Clone, Debug)]
pub struct ObservedProfile {
    /// The profile's name.
    pub scheduler_name: Arc<str>,
    /// The plugins at PreFilter.
    pub pre_filter: Vec<&'static str>,
    /// The plugins at Filter.
    pub filter: Vec<&'static str>,
    /// The plugins at PreScore.
    pub pre_score: Vec<&'static str>,
    /// The plugins at Score.
    pub score: Vec<&'static str>,
}

/// What waits in a queue as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entity {
    /// A pod.
    Pod,
    /// A group with this many pods.
    Group(usize),
}

impl Entity {
    /// The number of pods.
    pub fn pods(self) -> usize {
        match self {
            Self::Pod => 1,
            Self::Group(pods) => pods,
        }
    }

    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Group(_) => "podgroup",
        }
    }
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// The pod was bound.
    Scheduled,
    /// No node fits.
    Unschedulable,
    /// Victims leave room for a group.
    WaitingOnPreemption,
    /// Something failed.
    Error,
}

impl AttemptResult {
    /// The number of results.
    pub const COUNT: usize = Self::Error as usize + 1;

    /// The name in metrics and traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::WaitingOnPreemption => "waiting_on_preemption",
            Self::Error => "error",
        }
    }
}

/// The queue that a pod entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueName {
    /// activeQ.
    Active,
    /// backoffQ.
    Backoff,
    /// unschedulableEntities.
    Unschedulable,
}

/// An observation.
#[derive(Debug)]
pub enum Observation<'a> {
    /// A pod or a group entered a queue.
    QueueIncoming {
        /// The queue.
        queue: QueueName,
        /// The label of the event, or another cause.
        event: &'a str,
        /// What entered it.
        entity: Entity,
        /// Whether it counts in upstream's `queue_incoming_entities_total`, too.
        is_entity: bool,
    },
    /// The pods of a group were tried, and it is known which of them get a node.
    GroupAlgorithm(Timespan),
    /// The placements of a group were listed.
    Placements {
        /// The position of the profile.
        profile: usize,
        /// How many there are.
        count: usize,
    },
    /// A group was tried on a placement.
    PlacementTried {
        /// The position of the profile.
        profile: usize,
        /// Whether it fits there.
        is_feasible: bool,
        /// The time it took.
        took: Timespan,
    },
    /// The attempt of a group ended. Groups whose pods disagree are not tried.
    GroupAttempt {
        /// The position of the profile.
        profile: usize,
        /// The result.
        result: AttemptResult,
        /// The time it took.
        took: Timespan,
    },
    /// An attempt ended.
    Attempt {
        /// The position of the profile.
        profile: usize,
        /// The result.
        result: AttemptResult,
        /// The pod.
        pod: &'a PodInfo,
        /// The number of attempts, this one included.
        attempts: u32,
        /// The node of a bound pod.
        node: Option<&'a str>,
        /// The reason of a failure; empty for a bound pod.
        message: &'a str,
        /// For a bound pod, the time since it first entered the active queue.
        since_first_attempt: Option<Duration>,
        /// Whether the pod was tried only because it had waited too long.
        after_flush: bool,
        /// From the time the pod was popped.
        took: Timespan,
    },
    /// The search for a node ended, PostFilter included.
    Algorithm(Timespan),
    /// All plugins of a point ran.
    ExtensionPoint {
        /// The position of the profile.
        profile: usize,
        /// The pod that they ran for.
        pod: &'a PodInfo,
        /// The point.
        point: Point,
        /// The result.
        status: Code,
        /// The time it took.
        took: Timespan,
    },
    /// A plugin ran. Reported for watched attempts only, except at PostFilter.
    Plugin {
        /// The pod that it ran for.
        pod: &'a PodInfo,
        /// The plugin.
        plugin: &'a str,
        /// The point.
        point: Point,
        /// The result.
        status: Code,
        /// The time it took.
        took: Timespan,
    },
    /// A plugin failed, as opposed to rejecting the pod.
    PluginFailed {
        /// The plugin.
        plugin: &'a str,
        /// The point.
        point: Point,
    },
    /// A cycle evaluated these plugins, or used their cached answers.
    Evaluated {
        /// The position of the profile.
        profile: usize,
        /// The plugins.
        plugins: Evaluated,
    },
    /// A queueing hint ran.
    Hint {
        /// The plugin.
        plugin: &'a Text,
        /// The event.
        event: &'a ClusterEvent,
        /// `Queue`, `QueueSkip` or `Error`.
        hint: &'static str,
        /// The time it took.
        took: Timespan,
    },
    /// An event of an informer was handled.
    Handled {
        /// The event.
        event: &'a ClusterEvent,
        /// The time it took.
        took: Timespan,
    },
    /// A pod that waited on Permit was allowed or rejected.
    PermitWaited {
        /// The status code's name.
        result: &'static str,
        /// The time it waited.
        waited: Duration,
    },
    /// A plugin has searched for victims of a group, as opposed to one that may not preempt.
    GroupPreemptionEvaluated {
        /// The plugin.
        plugin: &'a str,
        /// The result.
        status: Code,
        /// The time it took.
        took: Timespan,
    },
    /// A preemption starts.
    Preempting {
        /// Who preempts.
        preemptor: &'a Preemptor,
        /// The victims, including those that terminate already.
        victims: &'a Victims,
    },
    /// A preemption ended: no request for it is in flight.
    Preempted {
        /// Who preempts.
        preemptor: &'a Preemptor,
        /// Whether the attempt ended before.
        asynchronous: bool,
        /// Whether a victim could not be deleted.
        failed: bool,
        /// The time it took.
        took: Timespan,
    },
    /// The server answered the creation of a ResourceClaim for extended resources.
    ClaimCreation {
        /// Whether the claim exists now.
        is_created: bool,
    },
    /// A binding has waited for binding conditions of devices.
    DevicesAwaited {
        /// The position of the profile.
        profile: usize,
        /// How it ended, and the devices.
        wait: &'a DevicesAwaited,
        /// The time it took.
        took: Timespan,
    },
    /// Another scheduler bound a pod, or bound it elsewhere, while this one was binding it.
    LostRace,
    /// The node of a pod changed while Permit or PreBind held the pod, and no longer fits it.
    NodeTaken,
    /// An unexpected state. The scheduler continues.
    Anomaly(&'a str),
}

/// Takes observations.
pub trait Observer: Send {
    /// Takes an observation. Called often on the scheduler's thread: it must be fast.
    fn observe(&self, observation: Observation<'_>);

    /// Takes the profiles, before any observation of them and whenever they change.
    fn profiles(&mut self, _profiles: &[ObservedProfile]) {}

    /// The current time, for an observer that measures durations.
    fn time_point(&self) -> TimePoint {
        TimePoint::default()
    }

    /// Whether to time the plugins of the phase that starts now one by one.
    fn watches_plugins(&self) -> bool {
        false
    }
}

/// An observer that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _observation: Observation<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_set_lists_its_positions() {
        let set =
            [0, 5, 63, 64, 1000].map(PluginSet::one).into_iter().fold(PluginSet::default(), PluginSet::and);
        assert_eq!(set.places().collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!(PluginSet::default().places().count(), 0);
    }
}

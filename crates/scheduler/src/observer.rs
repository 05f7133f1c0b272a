//! What happens inside, for metrics: written, never read back.
//!
//! The scheduler has no clock. How long something takes is the observer's to say: it is asked for the moment before and after,
//! by a clock of its own, and nothing is decided by what it answers.

use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::{ClusterEvent, Code, PodInfo, Text};

/// A moment by the observer's clock. The scheduler only hands it back.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimePoint(pub u64);

/// When something began and ended, by the observer's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timespan {
    /// When it began.
    pub from: TimePoint,
    /// When it ended.
    pub to: TimePoint,
}

/// An extension point, or a part of one that is timed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// PreEnqueue.
    PreEnqueue,
    /// Signing a pod.
    Sign,
    /// PreFilter.
    PreFilter,
    /// Telling PreFilter's state of a pod more.
    PreFilterExtensionAddPod,
    /// Telling PreFilter's state of a pod less.
    PreFilterExtensionRemovePod,
    /// Filter.
    Filter,
    /// PostFilter.
    PostFilter,
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
    /// How many there are.
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

/// Plugins of a profile at one point: bit n is the n-th of them. Those beyond 64 are not told apart, and left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginSet(u64);

impl PluginSet {
    /// The plugin at this place only.
    pub fn one(place: usize) -> Self {
        Self(u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0))
    }

    /// These and those.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Their places, ascending.
    pub fn places(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let place = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (place < u64::BITS).then_some(place as usize)
        })
    }
}

/// The plugins that had something to say in one cycle, per point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evaluated {
    /// At PreFilter: those that did not skip.
    pub pre_filter: PluginSet,
    /// At Filter.
    pub filter: PluginSet,
    /// At PreScore: those that did not skip.
    pub pre_score: PluginSet,
    /// At Score.
    pub score: PluginSet,
}

impl Evaluated {
    /// These and those.
    pub(crate) fn add(&mut self, others: Self) {
        self.pre_filter = self.pre_filter.and(others.pre_filter);
        self.filter = self.filter.and(others.filter);
        self.pre_score = self.pre_score.and(others.pre_score);
        self.score = self.score.and(others.score);
    }
}

/// A profile as an observer must know it: observations name it, and its plugins, by their places.
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

impl AttemptResult {
    /// The name in metrics and traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
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
        /// The profile's place.
        profile: usize,
        /// How.
        result: AttemptResult,
        /// The pod.
        pod: &'a PodInfo,
        /// How many attempts it has had, this one included.
        attempts: u32,
        /// For a bound pod: its node.
        node: Option<&'a str>,
        /// Why it failed; empty for a bound pod.
        message: &'a str,
        /// For a bound pod: the time since it first entered the active queue.
        since_first_attempt: Option<Duration>,
        /// Whether it was tried only because it had waited too long.
        after_flush: bool,
        /// From the moment at which it was taken from the queue.
        took: Timespan,
    },
    /// A node was looked for, with PostFilter where there was none.
    Algorithm(Timespan),
    /// All plugins of a point have run.
    ExtensionPoint {
        /// The profile's place.
        profile: usize,
        /// The pod that they ran for.
        pod: &'a PodInfo,
        /// The point.
        point: Point,
        /// What came of it.
        status: Code,
        /// How long.
        took: Timespan,
    },
    /// One plugin has run: of those attempts only that are watched, but always at PostFilter.
    Plugin {
        /// The pod that it ran for.
        pod: &'a PodInfo,
        /// The plugin.
        plugin: &'a str,
        /// The point.
        point: Point,
        /// What it said.
        status: Code,
        /// How long.
        took: Timespan,
    },
    /// A plugin failed, as opposed to turning the pod down.
    PluginFailed {
        /// The plugin.
        plugin: &'a str,
        /// The point.
        point: Point,
    },
    /// A cycle has asked these plugins, or knew what they would say.
    Evaluated {
        /// The profile's place.
        profile: usize,
        /// The plugins.
        plugins: Evaluated,
    },
    /// A hint was asked for.
    Hint {
        /// The plugin.
        plugin: &'a Text,
        /// What happened.
        event: &'a ClusterEvent,
        /// `Queue`, `QueueSkip` or `Error`.
        hint: &'static str,
        /// How long it took.
        took: Timespan,
    },
    /// Something that an informer told of has been worked in.
    Handled {
        /// What happened.
        event: &'a ClusterEvent,
        /// How long it took.
        took: Timespan,
    },
    /// A pod that waited on Permit goes on or is turned down.
    PermitWaited {
        /// The status code's name.
        result: &'static str,
        /// How long it waited.
        waited: Duration,
    },
    /// Room is to be made for a pod.
    Preempting {
        /// How many pods are to go, or are going already.
        victims: usize,
    },
    /// Nothing more will be asked of the API server for a preemption.
    Preempted {
        /// Whether a victim could not be deleted.
        failed: bool,
        /// How long it took.
        took: Timespan,
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
    fn observe(&self, observation: Observation<'_>);

    /// The profiles, before anything of them is observed, and again whenever they are others.
    fn profiles(&mut self, _profiles: &[ObservedProfile]) {}

    /// What time it is, for an observer to whom it matters how long things take.
    fn time_point(&self) -> TimePoint {
        TimePoint::default()
    }

    /// Whether the plugins of what begins now are to be timed one by one.
    fn watches_plugins(&self) -> bool {
        false
    }
}

/// An observer that looks away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _observation: Observation<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_names_the_places_that_are_in_it() {
        let set =
            [0, 5, 63, 64, 1000].map(PluginSet::one).into_iter().fold(PluginSet::default(), PluginSet::and);
        assert_eq!(set.places().collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!(PluginSet::default().places().count(), 0);
    }
}

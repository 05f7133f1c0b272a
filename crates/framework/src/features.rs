//! Feature gates, and what they are in each of upstream's versions.

use std::fmt;

/// Declares the gates with their state per version, and everything that lists them.
macro_rules! features {
    ($($(#[$doc:meta])* $name:ident: $v34:ident $v35:ident $v36:ident $v37:ident,)*) => {
        /// A feature gate of upstream's that changes what this scheduler does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Feature {
            $($(#[$doc])* $name,)*
        }

        impl Feature {
            /// Every gate.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The gate's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The gate's state in versions 1.34 to 1.37.
            fn states(self) -> [Gate; 4] {
                match self {
                    $(Self::$name => [gate!($v34), gate!($v35), gate!($v36), gate!($v37)],)*
                }
            }
        }
    };
}

/// A state in the notation of the table below.
macro_rules! gate {
    (absent) => {
        Gate { stage: Stage::Absent, default: false, locked: false }
    };
    (alpha) => {
        Gate { stage: Stage::Alpha, default: false, locked: false }
    };
    (beta) => {
        Gate { stage: Stage::Beta, default: true, locked: false }
    };
    (beta_off) => {
        Gate { stage: Stage::Beta, default: false, locked: false }
    };
    (ga) => {
        Gate { stage: Stage::Ga, default: true, locked: true }
    };
    (ga_unlocked) => {
        Gate { stage: Stage::Ga, default: true, locked: false }
    };
}

features! {
    /// Preemption happens beside scheduling.
    SchedulerAsyncPreemption: beta beta beta beta,
    /// With nothing active, a pod in backoff is popped early.
    SchedulerPopFromBackoffQ: beta beta beta beta,
    /// The node is written into the pod's status while Permit or PreBind take their time.
    NominatedNodeNameForExpectation: alpha beta beta beta,
    /// Nodes that lack a feature which the pod needs are left out.
    NodeDeclaredFeatures: absent alpha beta ga,
    /// Tolerations compare numbers.
    TaintTolerationComparisonOperators: absent alpha alpha alpha,
    /// What the kubelet reports of a resize counts.
    InPlacePodVerticalScaling: beta ga ga ga,
    /// The same for resources of the pod as a whole.
    InPlacePodLevelResourcesVerticalScaling: absent alpha beta beta,
    /// Resources of the pod as a whole.
    PodLevelResources: beta beta beta beta,
    /// `matchLabelKeys` of topology spread constraints.
    MatchLabelKeysInPodTopologySpread: beta beta beta beta,
    /// Conditions say which generation they speak of.
    PodObservedGenerationTracking: beta ga ga ga,
    /// Nodes with more storage left score better.
    StorageCapacityScoring: alpha alpha alpha beta,
    /// A CSI driver can demand to be there.
    VolumeLimitScaling: absent alpha alpha beta,
    /// Volumes have attribute classes.
    VolumeAttributesClass: ga_unlocked ga_unlocked ga ga,
}

/// How far a feature has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not known in this version.
    Absent,
    /// For trying out.
    Alpha,
    /// Complete, not final.
    Beta,
    /// Final.
    Ga,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Absent => "absent",
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Ga => "GA",
        })
    }
}

/// A gate in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// How far it has come.
    pub stage: Stage,
    /// Whether it is on unless set.
    pub default: bool,
    /// Whether it can be set to its default only.
    pub locked: bool,
}

/// A version of upstream's whose defaults are taken, as `minor` of `1.minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    minor: u8,
}

impl Version {
    /// The version this scheduler follows: 1.36.
    pub const CURRENT: Self = Self { minor: 36 };

    /// Version `1.minor`, from 1.34 to 1.37.
    pub const fn new(minor: u8) -> Option<Self> {
        if minor >= 34 && minor <= 37 { Some(Self { minor }) } else { None }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor)
    }
}

/// Which features are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    version: Version,
    on: Vec<Feature>,
}

impl Default for Features {
    fn default() -> Self {
        Self::of(Version::CURRENT)
    }
}

impl Features {
    /// The defaults of a version.
    pub fn of(version: Version) -> Self {
        let on = Feature::ALL.iter().copied().filter(|feature| feature.gate(version).default).collect();
        Self { version, on }
    }

    /// The version whose defaults these were.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether the feature is on.
    pub fn enabled(&self, feature: Feature) -> bool {
        self.on.contains(&feature)
    }

    /// The same with a feature on or off.
    pub fn with(mut self, feature: Feature, on: bool) -> Self {
        self.on.retain(|known| *known != feature);
        if on {
            self.on.push(feature);
        }
        self
    }
}

impl Feature {
    /// The gate's state in a version.
    pub fn gate(self, version: Version) -> Gate {
        self.states()[usize::from(version.minor - 34)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_its_defaults() {
        let of = |minor| Features::of(Version::new(minor).unwrap());
        assert!(!of(34).enabled(Feature::NominatedNodeNameForExpectation));
        assert!(of(35).enabled(Feature::NominatedNodeNameForExpectation));
        assert!(!Features::default().enabled(Feature::StorageCapacityScoring));
        assert!(of(37).enabled(Feature::StorageCapacityScoring));
        assert!(
            !of(37).with(Feature::StorageCapacityScoring, false).enabled(Feature::StorageCapacityScoring)
        );
        assert_eq!((Version::new(33), Version::new(38)), (None, None));
    }
}

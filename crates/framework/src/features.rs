//! Feature gates and their state in each upstream version.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares the gates with their state per version.
macro_rules! features {
    ($($(#[$doc:meta])* $name:ident: $v34:ident $v35:ident $v36:ident $v37:ident,)*) => {
        /// An upstream feature gate that changes this scheduler's behaviour.
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
    /// Preemption runs beside scheduling cycles.
    SchedulerAsyncPreemption: beta beta beta beta,
    /// While activeQ is empty, pods in backoff are popped early.
    SchedulerPopFromBackoffQ: beta beta beta beta,
    /// The node is written to the pod's status while Permit or PreBind run.
    NominatedNodeNameForExpectation: alpha beta beta beta,
    /// Pods of a group are queued and tried together.
    GenericWorkload: absent absent absent beta_off,
    /// Groups can be limited to one domain of a topology.
    TopologyAwareWorkloadScheduling: absent absent absent alpha,
    /// Groups can consist of groups.
    CompositePodGroup: absent absent absent alpha,
    /// Whether a group preempts is up to the group, not to its pods.
    PodGroupPreemptionPolicy: absent absent absent alpha,
    /// Nodes without a feature that the pod requires are rejected.
    NodeDeclaredFeatures: absent alpha beta ga,
    /// Tolerations support `Gt` and `Lt`.
    TaintTolerationComparisonOperators: absent alpha alpha alpha,
    /// Requests that the kubelet reports during a resize count.
    InPlacePodVerticalScaling: beta ga ga ga,
    /// The same for pod-level resources.
    InPlacePodLevelResourcesVerticalScaling: absent alpha beta beta,
    /// Pod-level resources.
    PodLevelResources: beta beta beta beta,
    /// `matchLabelKeys` of topology spread constraints.
    MatchLabelKeysInPodTopologySpread: beta beta beta beta,
    /// Conditions have `observedGeneration`.
    PodObservedGenerationTracking: beta ga ga ga,
    /// Nodes with more free storage score higher.
    StorageCapacityScoring: alpha alpha alpha beta,
    /// A CSI driver can require to be installed on the node.
    VolumeLimitScaling: absent alpha alpha beta,
    /// Volumes have attribute classes.
    VolumeAttributesClass: ga_unlocked ga_unlocked ga ga,
    /// Pods have resource claims.
    DynamicResourceAllocation: ga_unlocked ga ga ga,
    /// Requests for devices that are in use.
    DRAAdminAccess: beta beta ga ga,
    /// Devices are shared, and requests take a part of their capacity.
    DRAConsumableCapacity: alpha alpha beta beta,
    /// PreBind waits until a device is ready.
    DRADeviceBindingConditions: alpha alpha beta beta,
    /// Rules add taints to devices.
    DRADeviceTaintRules: absent alpha beta_off ga_unlocked,
    /// Devices have taints.
    DRADeviceTaints: alpha alpha beta ga_unlocked,
    /// Extended resources are served by devices.
    DRAExtendedResource: alpha alpha beta ga,
    /// Policies of capacity have ranges in thousandths.
    DRAFractionalCapacityRange: absent absent absent beta_off,
    /// Devices share counters, and say on which nodes they can be used.
    DRAPartitionableDevices: alpha alpha beta beta,
    /// Requests have alternatives.
    DRAPrioritizedList: beta beta ga_unlocked ga,
    /// Drivers report the state of allocated devices.
    DRAResourceClaimDeviceStatus: beta beta beta ga,
    /// The search for devices on a node ends after a time.
    DRASchedulerFilterTimeout: beta beta beta beta,
    /// Pods of a group share claims of the group.
    DRAWorkloadResourceClaims: absent absent absent beta_off,
}

/// The stage of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The version does not have the gate.
    Absent,
    /// Experimental, disabled by default.
    Alpha,
    /// Complete, may still change.
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
    /// The stage.
    pub stage: Stage,
    /// Whether it is enabled by default.
    pub default: bool,
    /// Whether only the default can be set.
    pub locked: bool,
}

/// An upstream version, `1.minor`, whose defaults apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    minor: u8,
}

impl Version {
    /// The version this scheduler follows: 1.37.
    pub const CURRENT: Self = Self { minor: 37 };

    /// Version `1.minor`, from 1.34 to 1.37: as in upstream, the current one and the three before.
    pub const fn new(minor: u8) -> Option<Self> {
        if minor >= 34 && minor <= 37 { Some(Self { minor }) } else { None }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor)
    }
}

/// The feature gates that are enabled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Named", into = "Named")]
pub struct Features {
    version: Version,
    on: Vec<Feature>,
}

/// Feature gates in a file.
#[derive(Serialize, Deserialize)]
struct Named {
    /// Such as `1.37`.
    version: String,
    /// The names of the gates that are on.
    on: Vec<String>,
}

impl From<Features> for Named {
    fn from(features: Features) -> Self {
        let on = features.on.iter().map(|feature| feature.name().to_owned()).collect();
        Self { version: features.version.to_string(), on }
    }
}

impl TryFrom<Named> for Features {
    type Error = String;

    fn try_from(Named { version, on }: Named) -> Result<Self, String> {
        let minor = version.strip_prefix("1.").and_then(|minor| minor.parse().ok());
        let known = minor.and_then(Version::new).ok_or_else(|| format!("version {version} is unknown"))?;
        let feature = |name: String| {
            let found = Feature::ALL.iter().copied().find(|feature| feature.name() == name);
            found.ok_or_else(|| format!("feature gate {name} is unknown"))
        };
        Ok(Self { version: known, on: on.into_iter().map(feature).collect::<Result<_, _>>()? })
    }
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

    /// The version whose defaults these gates start from.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether the feature is enabled.
    pub fn enabled(&self, feature: Feature) -> bool {
        self.on.contains(&feature)
    }

    /// The same with a feature enabled or disabled.
    pub fn with(mut self, feature: Feature, on: bool) -> Self {
        self.on.retain(|known| *known != feature);
        if on {
            self.on.push(feature);
        }
        self
    }
}

impl Feature {
    /// The gates for groups. The others need the first.
    pub const OF_GROUPS: [Self; 5] = [
        Self::GenericWorkload,
        Self::TopologyAwareWorkloadScheduling,
        Self::CompositePodGroup,
        Self::PodGroupPreemptionPolicy,
        Self::DRAWorkloadResourceClaims,
    ];

    /// The gate's state in a version.
    pub fn gate(self, version: Version) -> Gate {
        self.states()[usize::from(version.minor - 34)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_upstreams_defaults() {
        let of = |minor| Features::of(Version::new(minor).unwrap());
        assert!(!of(34).enabled(Feature::NominatedNodeNameForExpectation));
        assert!(of(35).enabled(Feature::NominatedNodeNameForExpectation));
        assert!(!of(36).enabled(Feature::StorageCapacityScoring));
        assert!(of(37).enabled(Feature::StorageCapacityScoring));
        assert!(
            !of(37).with(Feature::StorageCapacityScoring, false).enabled(Feature::StorageCapacityScoring)
        );
        assert_eq!(Features::default(), of(37));
        assert_eq!((Version::new(33), Version::new(38)), (None, None));
    }

    #[test]
    fn features_are_read_as_written_and_unknown_ones_are_named() {
        let features = Features::of(Version::new(35).unwrap()).with(Feature::DRADeviceTaints, true);
        let text = serde_json::to_string(&features).unwrap();
        assert_eq!(serde_json::from_str::<Features>(&text).unwrap(), features);
        for (from, to, problem) in [
            ("1.35", "1.99", "version 1.99 is unknown"),
            ("DRADeviceTaints", "Wormholes", "feature gate Wormholes is unknown"),
        ] {
            let error = serde_json::from_str::<Features>(&text.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(problem), "{error}");
        }
    }
}

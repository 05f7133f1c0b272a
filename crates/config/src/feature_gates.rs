//! Feature gates: `--feature-gates` and `--emulated-version`.

use std::collections::BTreeMap;
use std::str::FromStr;

use supercargo_framework::features::{Feature, Features, Stage, Version};
use thiserror::Error;

use crate::suggest;

/// The component that may prefix a gate or a version, as in kube-scheduler.
const COMPONENT: &str = "kube";

/// Gates that set every gate of a stage.
const OF_A_STAGE: &[(&str, Stage)] = &[("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)];

/// Gates that need others that can be off.
const NEEDS: &[(Feature, &[Feature])] = &[
    (Feature::TopologyAwareWorkloadScheduling, &[Feature::GenericWorkload]),
    (Feature::PodGroupPreemptionPolicy, &[Feature::GenericWorkload]),
    (Feature::CompositePodGroup, &[Feature::GenericWorkload, Feature::TopologyAwareWorkloadScheduling]),
    (Feature::DRAFractionalCapacityRange, &[Feature::DRAConsumableCapacity]),
    (Feature::DRAWorkloadResourceClaims, &[Feature::DynamicResourceAllocation, Feature::GenericWorkload]),
];

/// Gates of kube-scheduler that have no effect here: the feature does not exist, cannot be turned
/// off, or changes no decision. They are accepted so that kube-scheduler's command lines keep
/// working.
const WITHOUT_EFFECT: &[&str] = &[
    // Of the API server, with a name close to that of another gate.
    "CRDObservedGenerationTracking",
    "ClearingNominatedNodeNameAfterBinding",
    "ComponentFlagz",
    "ComponentStatusz",
    "CoordinatedLeaderElection",
    // Of the API server.
    "DRAResourceClaimGranularStatusAuthorization",
    "DRAResourcePoolStatus",
    // Of the kubelet, as above.
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
    "InPlacePodVerticalScalingInitContainers",
    "InPlacePodVerticalScalingMemoryBackedVolumes",
    // Upstream counts pods per node lazily; the verdicts are the same.
    "InterPodAffinityHostnameFastPath",
    "MatchLabelKeysInPodAffinity",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge",
    "NodeInclusionPolicyInPodTopologySpread",
    "OpportunisticBatching",
    "PodSchedulingReadiness",
    // Requests always run beside scheduling cycles here.
    "SchedulerAsyncAPICalls",
    // Only DynamicResources registers such hints.
    "SchedulerPreQueueingHints",
    "VolumeBindMountOptions",
    "WorkloadWithJob",
];

/// A gate that is off by default in kube-scheduler and asks for scheduling that supercargo lacks.
struct Unsupported {
    name: &'static str,
    stage: Stage,
    /// What happens instead.
    instead: &'static str,
}

impl Unsupported {
    const fn alpha(name: &'static str, instead: &'static str) -> Self {
        Self { name, stage: Stage::Alpha, instead }
    }
}

const CLAIMS: &str = "claims are allocated without it";
const RESIZES: &str = "pods are not evicted for a resize that the kubelet has deferred";

/// Gates that cannot be turned on.
const UNSUPPORTED: &[Unsupported] = &[
    Unsupported::alpha("DRADerivedAttributes", "requests with derived attributes fail"),
    Unsupported::alpha(
        "DRADeviceCompatibilityGroups",
        "pools whose devices have compatibility groups are not used",
    ),
    Unsupported::alpha("DRAListTypeAttributes", CLAIMS),
    Unsupported::alpha("DRANodeAllocatableResources", CLAIMS),
    Unsupported::alpha("DRAOptionalNodeOperations", CLAIMS),
    Unsupported::alpha("DRAPartitionableDevicesType", CLAIMS),
    Unsupported::alpha("InPlacePodVerticalScalingSchedulerPreemption", RESIZES),
];

/// Gates that Kubernetes removed. kube-scheduler rejects them since.
struct Removed {
    since: &'static str,
    /// What has taken the gate's place.
    now: &'static str,
    names: &'static [&'static str],
}

const ALWAYS_ON: &str = "the feature is always on";

/// The gates that 1.34 had and 1.37 lacks.
const REMOVED: &[Removed] = &[
    Removed {
        since: "1.35",
        now: ALWAYS_ON,
        names: &[
            "AllowServiceLBStatusOnNonLB",
            "ComponentSLIs",
            "CronJobsScheduledAnnotation",
            "LoadBalancerIPMode",
            "PodIndexLabel",
            "ProbeHostPodSecurityStandards",
            "SizeMemoryBackedVolumes",
            "StatefulSetAutoDeletePVC",
            "StrictCostEnforcementForVAP",
            "StrictCostEnforcementForWebhooks",
            "UserNamespacesPodSecurityStandards",
        ],
    },
    Removed {
        since: "1.36",
        now: ALWAYS_ON,
        names: &[
            "CSIMigrationPortworx",
            "HonorPVReclaimPolicy",
            "InPlacePodVerticalScalingAllocatedStatus",
            "InTreePluginPortworxUnregister",
            "MemoryManager",
            "ServiceTrafficDistribution",
            "StructuredAuthorizationConfiguration",
            "TopologyAwareHints",
            "WatchFromStorageWithoutResourceVersion",
        ],
    },
    Removed {
        since: "1.37",
        now: "GenericWorkload covers it",
        names: &["GangScheduling", "WorkloadAwarePreemption"],
    },
    Removed {
        since: "1.37",
        now: ALWAYS_ON,
        names: &[
            "APIServerTracing",
            "AnonymousAuthConfigurableEndpoints",
            "AnyVolumeDataSource",
            "AuthorizeNodeWithSelectors",
            "AuthorizeWithSelectors",
            "BtreeWatchCache",
            "ConsistentListFromCache",
            "JobBackoffLimitPerIndex",
            "JobPodReplacementPolicy",
            "JobSuccessPolicy",
            "LogarithmicScaleDown",
            "OrderedNamespaceDeletion",
            "PodLifecycleSleepAction",
            "PodLifecycleSleepActionAllowZero",
            "PreventStaticPodAPIReferences",
            "RelaxedDNSSearchValidation",
            "ResilientWatchCacheInitialization",
            "RetryGenerateName",
            "SchedulerQueueingHints",
            "SidecarContainers",
            "StreamingCollectionEncodingToJSON",
            "StreamingCollectionEncodingToProtobuf",
            "StructuredAuthenticationConfiguration",
        ],
    },
];

/// Why a gate or a version is rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GateError {
    /// Not of the form `Gate=true`.
    #[error("{0:?}: give each feature gate as Name=true or Name=false, separated by commas")]
    Form(String),
    /// An unknown gate with a name close to a known one.
    #[error("unrecognized feature gate: {name}; {suggestion}")]
    Unknown {
        /// The unknown name.
        name: String,
        /// The known names close to it.
        suggestion: String,
    },
    /// A gate that earlier versions had.
    #[error("unrecognized feature gate: {name}; Kubernetes {since} removed it: {now}")]
    Removed {
        /// The gate.
        name: &'static str,
        /// The first version without it.
        since: &'static str,
        /// What has taken its place.
        now: &'static str,
    },
    /// The gate asks for scheduling that is not implemented.
    #[error("feature gate {name} is not supported by supercargo yet: {instead}; leave it off")]
    Unsupported {
        /// The gate.
        name: &'static str,
        /// What happens instead.
        instead: &'static str,
    },
    /// A gate of another component.
    #[error("{0:?}: the only component is kube")]
    Component(String),
    /// The gate does not exist in this version.
    #[error("feature gate {gate} does not exist in version {version}")]
    Absent {
        /// The gate.
        gate: &'static str,
        /// The version.
        version: Version,
    },
    /// The gate is locked.
    #[error("cannot set feature gate {gate} to {value}, feature is locked to {}", !value)]
    Locked {
        /// The gate.
        gate: &'static str,
        /// The rejected value.
        value: bool,
    },
    /// A gate that is set needs others.
    #[error("{gate} is enabled, but depends on features that are disabled: [{needs}]")]
    Depends {
        /// The gate.
        gate: &'static str,
        /// The gates that it needs.
        needs: String,
    },
    /// Not a version that can be emulated.
    #[error("{0:?}: the versions that can be emulated are 1.34, 1.35, 1.36 and 1.37")]
    Version(String),
}

/// The value of `--feature-gates`. The last value of a repeated gate applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<String, bool>);

impl FromStr for FeatureGates {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let gate = |part: &str| {
            let form = || GateError::Form(part.to_owned());
            let (name, value) = part.split_once('=').ok_or_else(form)?;
            let value = match value.trim() {
                "true" | "True" | "TRUE" | "t" | "T" | "1" => true,
                "false" | "False" | "FALSE" | "f" | "F" | "0" => false,
                _ => return Err(form()),
            };
            Ok((of_component(name.trim())?.to_owned(), value))
        };
        parts.map(gate).collect::<Result<_, _>>().map(Self)
    }
}

/// The name of a gate without its component.
fn of_component(name: &str) -> Result<&str, GateError> {
    match name.split_once(':') {
        None => Ok(name),
        Some((COMPONENT, gate)) => Ok(gate),
        Some(_) => Err(GateError::Component(name.to_owned())),
    }
}

/// Merges the values of a repeated flag.
impl FromIterator<FeatureGates> for FeatureGates {
    fn from_iter<T: IntoIterator<Item = FeatureGates>>(values: T) -> Self {
        Self(values.into_iter().flat_map(|gates| gates.0).collect())
    }
}

impl FeatureGates {
    /// The features that are on in `version` with these gates. `AllAlpha` and `AllBeta` apply to
    /// every gate of that stage that is not set by name.
    pub fn apply(&self, version: Version) -> Result<Features, GateError> {
        let mut features = Features::of(version);
        for (name, stage) in OF_A_STAGE {
            let Some(value) = self.0.get(*name) else { continue };
            for feature in Feature::ALL.iter().filter(|feature| feature.gate(version).stage == *stage) {
                features = features.with(*feature, *value);
            }
            if *value {
                tracing::warn!(
                    "feature gate {name} does not enable these unsupported gates: {}",
                    left_out(*stage)
                );
            }
        }
        for (name, value) in self.0.iter().filter(|(name, _)| !is_of_a_stage(name)) {
            match Feature::ALL.iter().find(|feature| feature.name() == name) {
                Some(feature) => features = set(features, *feature, *value)?,
                None => set_without_effect(name, *value)?,
            }
        }
        for (feature, needs) in NEEDS {
            let missing = needs.iter().filter(|needed| !features.enabled(**needed));
            let missing: Vec<_> = missing.map(|needed| needed.name()).collect();
            if !features.enabled(*feature) || missing.is_empty() {
                continue;
            }
            let gate = feature.name();
            if self.0.contains_key(gate) {
                return Err(GateError::Depends { gate, needs: missing.join(" ") });
            }
            // A gate that is on with all of its stage.
            features = features.with(*feature, false);
        }
        Ok(features)
    }
}

/// The names of the unsupported gates of a stage.
fn left_out(stage: Stage) -> String {
    let names = UNSUPPORTED.iter().filter(|gate| gate.stage == stage).map(|gate| gate.name);
    names.collect::<Vec<_>>().join(", ")
}

fn is_of_a_stage(name: &str) -> bool {
    OF_A_STAGE.iter().any(|(of_a_stage, _)| *of_a_stage == name)
}

/// Rejects a gate that was removed, or that asks for something unsupported. Warns about any other.
fn set_without_effect(name: &str, value: bool) -> Result<(), GateError> {
    for Removed { since, now, names } in REMOVED {
        if let Some(name) = names.iter().find(|removed| **removed == name) {
            return Err(GateError::Removed { name, since, now });
        }
    }
    match UNSUPPORTED.iter().find(|gate| gate.name == name) {
        Some(Unsupported { name, instead, .. }) if value => Err(GateError::Unsupported { name, instead }),
        Some(_) => Ok(()),
        None => warn_without_effect(name),
    }
}

/// Warns about a gate without effect. kube-scheduler accepts every gate of Kubernetes, including
/// the kubelet's, and each release changes them. So an unknown gate is rejected only if its name is
/// close to a known one.
fn warn_without_effect(name: &str) -> Result<(), GateError> {
    if WITHOUT_EFFECT.contains(&name) {
        tracing::warn!("feature gate {name} has no effect");
        return Ok(());
    }
    let features = Feature::ALL.iter().map(|feature| feature.name());
    let of_a_stage = OF_A_STAGE.iter().map(|(name, _)| *name);
    let unsupported = UNSUPPORTED.iter().map(|gate| gate.name);
    let others = of_a_stage.chain(unsupported).chain(WITHOUT_EFFECT.iter().copied());
    match suggest::near(name, features.chain(others)) {
        Some(suggestion) => Err(GateError::Unknown { name: name.to_owned(), suggestion }),
        None => {
            tracing::warn!("feature gate {name} is unknown and has no effect");
            Ok(())
        }
    }
}

fn set(features: Features, feature: Feature, value: bool) -> Result<Features, GateError> {
    let (gate, version) = (feature.name(), features.version());
    let state = feature.gate(version);
    if state.stage == Stage::Absent {
        return Err(GateError::Absent { gate, version });
    }
    if state.locked && value != state.default {
        return Err(GateError::Locked { gate, value });
    }
    Ok(features.with(feature, value))
}

/// Parses the value of `--emulated-version`: `1.35`, or `kube=1.35` as in kube-scheduler.
pub fn emulated_version(text: &str) -> Result<Version, GateError> {
    let of_component = text.split_once('=').filter(|(component, _)| *component == COMPONENT);
    let bare = of_component.map_or(text, |(_, version)| version);
    let minor = bare.strip_prefix('v').unwrap_or(bare).strip_prefix("1.");
    minor
        .and_then(|minor| Version::new(minor.parse().ok()?))
        .ok_or_else(|| GateError::Version(text.to_owned()))
}

/// The gates and their defaults in the current version, one line each, for `--help`.
pub fn help() -> String {
    let line = |feature: &Feature| {
        let gate = feature.gate(Version::CURRENT);
        format!("  {}=true|false ({}, default {})\n", feature.name(), gate.stage, gate.default)
    };
    let lines: String = Feature::ALL.iter().map(line).collect();
    format!(
        "Feature gates (--feature-gates) and their defaults in {}:\n{lines}  AllAlpha=true|false, AllBeta=true|false",
        Version::CURRENT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(gates: &str, version: &str) -> Result<Features, GateError> {
        gates.parse::<FeatureGates>()?.apply(emulated_version(version)?)
    }

    #[test]
    fn gates_override_the_defaults_of_the_version() {
        let on = |gates, version, feature| features(gates, version).unwrap().enabled(feature);
        assert!(!on("", "1.36", Feature::StorageCapacityScoring));
        assert!(on("StorageCapacityScoring=true", "1.36", Feature::StorageCapacityScoring));
        assert!(on("", "kube=1.37", Feature::StorageCapacityScoring));
        assert!(!on("SchedulerAsyncPreemption=false", "1.37", Feature::SchedulerAsyncPreemption));
        assert!(on("AllAlpha=true", "v1.37", Feature::TaintTolerationComparisonOperators));
        assert!(!on("AllAlpha=true", "1.34", Feature::TaintTolerationComparisonOperators), "absent in 1.34");
        assert!(!on("AllBeta=false", "1.37", Feature::SchedulerPopFromBackoffQ));
        let spared = "AllBeta=false,SchedulerPopFromBackoffQ=true";
        assert!(on(spared, "1.37", Feature::SchedulerPopFromBackoffQ), "a gate set by name takes precedence");
        assert!(!on("kube:StorageCapacityScoring=false", "1.37", Feature::StorageCapacityScoring));
        let twice = "StorageCapacityScoring=true,StorageCapacityScoring=false";
        assert!(!on(twice, "1.37", Feature::StorageCapacityScoring), "the last value applies");
    }

    #[test]
    fn gates_need_others() {
        let topology = Feature::TopologyAwareWorkloadScheduling;
        let error = features("TopologyAwareWorkloadScheduling=true", "1.37").unwrap_err().to_string();
        assert_eq!(
            error,
            "TopologyAwareWorkloadScheduling is enabled, but depends on features that are disabled: [GenericWorkload]"
        );
        let both = "TopologyAwareWorkloadScheduling=true,GenericWorkload=true";
        assert!(features(both, "1.37").unwrap().enabled(topology));
        assert!(!features("AllAlpha=true", "1.37").unwrap().enabled(topology));
        assert!(features("AllAlpha=true,GenericWorkload=true", "1.37").unwrap().enabled(topology));
        let composite = Feature::CompositePodGroup;
        let error = features("CompositePodGroup=true", "1.37").unwrap_err().to_string();
        assert_eq!(
            error,
            "CompositePodGroup is enabled, but depends on features that are disabled: [GenericWorkload TopologyAwareWorkloadScheduling]"
        );
        assert!(features(&format!("{both},CompositePodGroup=true"), "1.37").unwrap().enabled(composite));
        assert!(!features("AllAlpha=true", "1.37").unwrap().enabled(composite));
        let claims = Feature::DRAWorkloadResourceClaims;
        let error = features("DRAWorkloadResourceClaims=true", "1.37").unwrap_err().to_string();
        assert_eq!(
            error,
            "DRAWorkloadResourceClaims is enabled, but depends on features that are disabled: [GenericWorkload]"
        );
        assert!(features("AllBeta=true", "1.37").unwrap().enabled(claims));
        assert!(!features("AllBeta=true,GenericWorkload=false", "1.37").unwrap().enabled(claims));
    }

    #[test]
    fn gates_without_effect_are_accepted() {
        // A gate of the scheduler, one of the kubelet, and two with names close to others.
        for gate in
            ["DRAResourcePoolStatus", "MemoryQoS", "ComponentFlagz", "InPlacePodVerticalScalingExclusiveCPUs"]
        {
            let none = Features::of(Version::CURRENT);
            assert_eq!(features(&format!("{gate}=true"), "1.37"), Ok(none), "{gate}");
        }
    }

    #[test]
    fn gates_of_devices_have_the_states_of_the_version() {
        let on = |version: &str, feature| features("", version).unwrap().enabled(feature);
        let states = |feature| ["1.34", "1.35", "1.36", "1.37"].map(|version| on(version, feature));
        assert_eq!(states(Feature::DRADeviceTaints), [false, false, true, true]);
        assert_eq!(states(Feature::DRADeviceTaintRules), [false, false, false, true]);
        assert_eq!(states(Feature::DRASchedulerFilterTimeout), [true; 4]);
        let off = features("DRADeviceTaints=false,DRAConsumableCapacity=false", "1.37").unwrap();
        assert!(!off.enabled(Feature::DRADeviceTaints) && !off.enabled(Feature::DRAConsumableCapacity));
        for locked in ["DynamicResourceAllocation", "DRAExtendedResource", "DRAPrioritizedList"] {
            assert!(features(&format!("{locked}=false"), "1.37").is_err(), "{locked}");
        }
    }

    #[test]
    fn unsupported_gates_can_be_off_but_not_on() {
        for Unsupported { name, instead, .. } in UNSUPPORTED {
            let off = features(&format!("{name}=false"), "1.37");
            assert_eq!(off, Ok(Features::of(Version::CURRENT)));
            let on = features(&format!("{name}=true"), "1.37").unwrap_err();
            assert_eq!(on, GateError::Unsupported { name, instead });
        }
        assert!(features("AllAlpha=true,AllBeta=true", "1.37").is_ok(), "unsupported gates are left out");
    }

    #[test]
    fn no_gate_is_in_two_lists() {
        let features = Feature::ALL.iter().map(|feature| feature.name());
        let removed = REMOVED.iter().flat_map(|removed| removed.names.iter().copied());
        let unsupported = UNSUPPORTED.iter().map(|gate| gate.name);
        let mut names: Vec<&str> =
            features.chain(WITHOUT_EFFECT.iter().copied()).chain(unsupported).chain(removed).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn values_of_a_repeated_flag_are_merged() {
        let values = ["StorageCapacityScoring=true,AllBeta=false", "AllBeta=true"];
        let values = values.map(|text| text.parse::<FeatureGates>().unwrap());
        let gates: FeatureGates = values.into_iter().collect();
        assert_eq!(Ok(gates), "StorageCapacityScoring=true,AllBeta=true".parse::<FeatureGates>());
    }

    #[test]
    fn invalid_gates_are_rejected_by_name() {
        let cases = [
            (
                "StorageCapacityScorin=true",
                "1.37",
                "unrecognized feature gate: StorageCapacityScorin; did you mean \"StorageCapacityScoring\"?",
            ),
            (
                "GenericWorklod=true",
                "1.37",
                "unrecognized feature gate: GenericWorklod; did you mean \"GenericWorkload\"?",
            ),
            (
                "GangScheduling=true",
                "1.36",
                "unrecognized feature gate: GangScheduling; Kubernetes 1.37 removed it: GenericWorkload covers it",
            ),
            (
                "SidecarContainers=false",
                "1.37",
                "unrecognized feature gate: SidecarContainers; Kubernetes 1.37 removed it: the feature is always on",
            ),
            (
                "DRADerivedAttributes=true",
                "1.37",
                "feature gate DRADerivedAttributes is not supported by supercargo yet: requests with derived attributes fail; leave it off",
            ),
            ("kubelet:X=true", "1.37", "\"kubelet:X\": the only component is kube"),
            (
                "NodeDeclaredFeatures=false",
                "1.37",
                "cannot set feature gate NodeDeclaredFeatures to false, feature is locked to true",
            ),
            (
                "NodeDeclaredFeatures=true",
                "1.34",
                "feature gate NodeDeclaredFeatures does not exist in version 1.34",
            ),
            (
                "StorageCapacityScoring",
                "1.37",
                "\"StorageCapacityScoring\": give each feature gate as Name=true or Name=false, separated by commas",
            ),
            ("", "1.33", "\"1.33\": the versions that can be emulated are 1.34, 1.35, 1.36 and 1.37"),
            ("", "2", "\"2\": the versions that can be emulated are 1.34, 1.35, 1.36 and 1.37"),
        ];
        for (gates, version, message) in cases {
            assert_eq!(features(gates, version).unwrap_err().to_string(), message);
        }
    }
}

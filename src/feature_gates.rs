//! `--feature-gates` and `--emulated-version`: which features are on.

use std::str::FromStr;

use supercargo_framework::features::{Feature, Features, Stage, Version};
use thiserror::Error;

/// Upstream's gates that change a kube-scheduler and have nothing to change here, either because what they switch does
/// not exist here or because it is settled. They may be set, so that a command line can be taken over.
const WITHOUT_EFFECT: &[&str] = &[
    "ClearingNominatedNodeNameAfterBinding",
    "ComponentFlagz",
    "ComponentStatusz",
    "CompositePodGroup",
    "CoordinatedLeaderElection",
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRADeviceTaintRules",
    "DRADeviceTaints",
    "DRAExtendedResource",
    "DRAListTypeAttributes",
    "DRANodeAllocatableResources",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
    "DRAResourceClaimDeviceStatus",
    "DRASchedulerFilterTimeout",
    "DRAWorkloadResourceClaims",
    "DynamicResourceAllocation",
    "GangScheduling",
    "GenericWorkload",
    "InPlacePodVerticalScalingSchedulerPreemption",
    "InterPodAffinityHostnameFastPath",
    "MatchLabelKeysInPodAffinity",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge",
    "NodeInclusionPolicyInPodTopologySpread",
    "OpportunisticBatching",
    "PodGroupPreemptionPolicy",
    "PodSchedulingReadiness",
    "SchedulerAsyncAPICalls",
    "SchedulerPreQueueingHints",
    "SchedulerQueueingHints",
    "SidecarContainers",
    "TopologyAwareWorkloadScheduling",
    "WorkloadAwarePreemption",
    "WorkloadWithJob",
];

/// Why a gate or a version is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GateError {
    /// It is not of the form `Gate=true`.
    #[error("{0:?}: give each feature gate as Name=true or Name=false, separated by commas")]
    Form(String),
    /// No such gate.
    #[error("unrecognized feature gate: {0}; --help lists those there are")]
    Unknown(String),
    /// The gate is not there yet in this version.
    #[error("feature gate {gate} does not exist in version {version}")]
    Absent {
        /// The gate.
        gate: &'static str,
        /// The version.
        version: Version,
    },
    /// The gate can no longer be set.
    #[error("cannot set feature gate {gate} to {value}, feature is locked to {}", !value)]
    Locked {
        /// The gate.
        gate: &'static str,
        /// What it should have been set to.
        value: bool,
    },
    /// Not a version whose defaults are known.
    #[error("{0:?}: the versions that can be emulated are 1.34, 1.35, 1.36 and 1.37")]
    Version(String),
}

/// The value of `--feature-gates`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(Vec<(String, bool)>);

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
            Ok((name.trim().to_owned(), value))
        };
        parts.map(gate).collect::<Result<_, _>>().map(Self)
    }
}

impl FeatureGates {
    /// The features that are on in `version` with these gates set. `AllAlpha` and `AllBeta` stand for every gate of that
    /// stage that is not set itself.
    pub fn apply(&self, version: Version) -> Result<Features, GateError> {
        let mut features = Features::of(version);
        for (name, value) in &self.0 {
            let stage = match &**name {
                "AllAlpha" => Stage::Alpha,
                "AllBeta" => Stage::Beta,
                _ => continue,
            };
            for feature in Feature::ALL.iter().filter(|feature| feature.gate(version).stage == stage) {
                features = features.with(*feature, *value);
            }
        }
        for (name, value) in &self.0 {
            if matches!(&**name, "AllAlpha" | "AllBeta") {
                continue;
            }
            match Feature::ALL.iter().find(|feature| feature.name() == name) {
                Some(feature) => features = set(features, *feature, *value)?,
                None if WITHOUT_EFFECT.contains(&&**name) => {
                    tracing::warn!("feature gate {name} has no effect here");
                }
                None => return Err(GateError::Unknown(name.clone())),
            }
        }
        Ok(features)
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

/// Reads the value of `--emulated-version`: `1.35`, or `kube=1.35` as upstream has it.
pub fn emulated_version(text: &str) -> Result<Version, GateError> {
    let bare = text.strip_prefix("kube=").unwrap_or(text);
    let minor = bare.strip_prefix('v').unwrap_or(bare).strip_prefix("1.");
    minor
        .and_then(|minor| Version::new(minor.parse().ok()?))
        .ok_or_else(|| GateError::Version(text.to_owned()))
}

/// The gates with their defaults in the current version, a line each, for help.
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
    fn gates_are_set_on_top_of_a_versions_defaults() {
        let on = |gates, version, feature| features(gates, version).unwrap().enabled(feature);
        assert!(!on("", "1.36", Feature::StorageCapacityScoring));
        assert!(on("StorageCapacityScoring=true", "1.36", Feature::StorageCapacityScoring));
        assert!(on("", "kube=1.37", Feature::StorageCapacityScoring));
        assert!(!on("SchedulerAsyncPreemption=false", "1.36", Feature::SchedulerAsyncPreemption));
        assert!(on("AllAlpha=true", "v1.36", Feature::TaintTolerationComparisonOperators));
        assert!(!on("AllBeta=false", "1.36", Feature::SchedulerPopFromBackoffQ));
        let spared = "AllBeta=false,SchedulerPopFromBackoffQ=true";
        assert!(on(spared, "1.36", Feature::SchedulerPopFromBackoffQ), "a gate's own word counts");
        assert!(features("DRAAdminAccess=true", "1.36").is_ok(), "a gate without effect is no error");
    }

    #[test]
    fn what_cannot_be_set_is_refused_by_name() {
        let cases = [
            ("Nonsense=true", "1.36", "unrecognized feature gate: Nonsense; --help lists those there are"),
            (
                "PodObservedGenerationTracking=false",
                "1.36",
                "cannot set feature gate PodObservedGenerationTracking to false, feature is locked to true",
            ),
            (
                "NodeDeclaredFeatures=true",
                "1.34",
                "feature gate NodeDeclaredFeatures does not exist in version 1.34",
            ),
            (
                "StorageCapacityScoring",
                "1.36",
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

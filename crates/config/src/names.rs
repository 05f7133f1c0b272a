//! Names of plugins: supercargo's, kube-scheduler's, and unknown ones.

use supercargo_framework::registry::Registry;

use super::error::Problem;
use super::suggest;

/// All plugins of kube-scheduler, including those behind feature gates.
const UPSTREAM: &[&str] = &[
    "DefaultBinder",
    "DefaultPreemption",
    "DeferredPodScheduling",
    "DynamicResources",
    "GangScheduling",
    "ImageLocality",
    "InterPodAffinity",
    "NodeAffinity",
    "NodeDeclaredFeatures",
    "NodeName",
    "NodePorts",
    "NodeResourcesBalancedAllocation",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "NodeVolumeLimits",
    "PodGroupPodsCount",
    "PodTopologySpread",
    "PrioritySort",
    "SchedulingGates",
    "TaintToleration",
    "TopologyPlacementGenerator",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
];

/// Plugins that kube-scheduler removed in configuration version v1 and rejects since.
const REMOVED: &[&str] = &["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

/// Why a plugin cannot be enabled or configured; `None` when it can.
pub(super) fn refusal(name: &str, registry: &Registry) -> Option<Problem> {
    if registry.get(name).is_some() {
        None
    } else if UPSTREAM.contains(&name) {
        Some(Problem::Unsupported(name.to_owned()))
    } else if REMOVED.contains(&name) {
        let message =
            format!("{name} is invalid in v1: kube-scheduler dropped it for NodeVolumeLimits; remove it");
        Some(Problem::Invalid(message))
    } else {
        Some(unknown(name, registry, &[]))
    }
}

/// Why a plugin cannot be disabled: the name is unknown, so it is probably misspelt.
pub(super) fn refusal_to_disable(name: &str, registry: &Registry) -> Option<Problem> {
    let known =
        name == "*" || registry.get(name).is_some() || UPSTREAM.contains(&name) || REMOVED.contains(&name);
    (!known).then(|| unknown(name, registry, UPSTREAM))
}

/// Suggests the registered plugins and these `others`: only names that are accepted in this place.
fn unknown(name: &str, registry: &Registry, others: &[&'static str]) -> Problem {
    let accepted = registry.names().chain(others.iter().copied());
    let plugins = || registry.names().collect::<Vec<_>>().join(", ");
    let help = suggest::near(name, accepted).unwrap_or_else(|| format!("the plugins are {}", plugins()));
    Problem::UnknownPlugin { name: name.to_owned(), help }
}

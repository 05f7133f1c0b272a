//! Names of plugins: supercargo's, kube-scheduler's, and unknown ones.

use serde_json::{Map, Value};
use supercargo_framework::registry::Registry;

use super::catalog::Catalog;
use super::error::Problem;
use super::points::ConfigPoint;
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

/// Why a plugin cannot be enabled at a point or configured; `None` when it can.
pub(super) fn refusal(name: &str, point: ConfigPoint, catalog: &Catalog) -> Option<Problem> {
    if catalog.registry.get(name).is_some() {
        None
    } else if UPSTREAM.contains(&name) {
        Some(Problem::Unsupported(name.to_owned()))
    } else if REMOVED.contains(&name) {
        let message =
            format!("{name} is invalid in v1: kube-scheduler dropped it for NodeVolumeLimits; remove it");
        Some(Problem::Invalid(message))
    } else {
        let here: Vec<_> =
            catalog.registry.names().filter(|name| is_possible(name, point, catalog)).collect();
        Some(unknown(name, &here, &here, point))
    }
}

/// Why a plugin cannot be disabled: the name is unknown, so it is probably misspelt.
pub(super) fn refusal_to_disable(name: &str, registry: &Registry) -> Option<Problem> {
    let known =
        name == "*" || registry.get(name).is_some() || UPSTREAM.contains(&name) || REMOVED.contains(&name);
    (!known).then(|| {
        let registered: Vec<_> = registry.names().collect();
        unknown(name, &[&registered, UPSTREAM].concat(), &registered, ConfigPoint::MultiPoint)
    })
}

/// Whether a plugin may implement a point: one that needs arguments is not known to. The plugin is
/// built, which is for errors only.
fn is_possible(name: &str, point: ConfigPoint, Catalog { registry, features, .. }: &Catalog) -> bool {
    let build = registry.get(name).filter(|_| point != ConfigPoint::MultiPoint);
    let built = build.and_then(|build| build(&Value::Object(Map::new()), features).ok());
    built.is_none_or(|plugin| point.is_in(&plugin.extension_points()))
}

/// Suggests names that are `accepted` in this place, or else lists these `plugins`.
fn unknown(name: &str, accepted: &[&str], plugins: &[&str], point: ConfigPoint) -> Problem {
    let list = || match (point, plugins) {
        (_, []) => format!("no plugin implements {}", point.name()),
        (ConfigPoint::MultiPoint, plugins) => format!("the plugins are {}", plugins.join(", ")),
        (point, plugins) => format!("the plugins of {} are {}", point.name(), plugins.join(", ")),
    };
    let help = suggest::near(name, accepted.iter().copied()).unwrap_or_else(list);
    Problem::UnknownPlugin { name: name.to_owned(), help }
}

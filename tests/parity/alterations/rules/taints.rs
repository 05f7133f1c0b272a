//! Plugins that new nodes requeue, but no changes of taints.

use supercargo_framework::{ActionType, EventResource};

use super::super::alteration::{Alteration, Change};
use super::super::altered_plugin::wakes_on;
use super::alter;

/// Plugins, their alterations, and a scenario in which each rejects a pod while a node's taints
/// change.
const PLUGINS: [(&str, &str, &[&str]); 10] = [
    (
        "InterPodAffinity",
        "InterPodAffinity: requeues on a taint",
        &["inter-pod-affinity-hints/taint-change-skips-affinity"],
    ),
    ("NodeAffinity", "NodeAffinity: requeues on a taint", &["node-affinity-hints/taint-change-skips"]),
    (
        "NodeDeclaredFeatures",
        "NodeDeclaredFeatures: requeues on a taint",
        &["node-declared-features/hint-taint-change-skips"],
    ),
    ("NodePorts", "NodePorts: requeues on a taint", &["queueing-hints/ports-taint-change-skips"]),
    ("NodePorts", "NodePorts: requeues on an uncordoned node", &["queueing-hints/ports-uncordon-skips"]),
    ("NodeResourcesFit", "NodeResourcesFit: requeues on a taint", &["queueing-hints/fit-taint-change-skips"]),
    (
        "NodeResourcesFit",
        "NodeResourcesFit: requeues on an uncordoned node",
        &["queueing-hints/fit-uncordon-skips"],
    ),
    ("VolumeBinding", "VolumeBinding: requeues on a taint", &["volume-binding-hints/taint-change-skips"]),
    (
        "VolumeRestrictions",
        "VolumeRestrictions: requeues on a taint",
        &["volume-restrictions/hint-taint-change-skips"],
    ),
    ("VolumeZone", "VolumeZone: requeues on a taint", &["volume-zone/hint-taint-change-skips"]),
];

pub(super) fn all() -> Vec<Alteration> {
    let of = |(name, what, scenarios)| {
        alter(
            what,
            "plugins that register new nodes get no taint updates (1.8)",
            Change::Plugin(name, wakes_on(EventResource::Node, ActionType::UPDATE_NODE_TAINT)),
            scenarios,
        )
    };
    PLUGINS.map(of).into()
}

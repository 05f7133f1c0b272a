//! What the report has a section for, and which scenarios and deviations belong there.

/// A part of the scheduler.
pub(super) struct Feature {
    pub(super) title: &'static str,
    /// Groups of scenarios: folders of `scenarios/`.
    pub(super) groups: &'static [&'static str],
    /// Files of tests, where scenarios cannot show it: no scenario has an extender, or a server that breaks.
    pub(super) tests: &'static [&'static str],
    /// Sections of `docs/deviations.md`.
    pub(super) sections: &'static [&'static str],
    /// Words by which rows of [`MIXED`] belong here: the first feature that has one takes the row.
    pub(super) words: &'static [&'static str],
}

/// The section of `docs/deviations.md` whose rows are about one feature each.
pub(super) const MIXED: &str = "Decisions";

/// In the order of the report. What of [`MIXED`] no other takes is the last one's.
pub(super) const FEATURES: &[Feature] = &[
    Feature {
        title: "Queue: SchedulingGates, PrioritySort, backoff, queueing hints",
        groups: &["gates", "queue", "wake", "waiting", "quiet"],
        tests: &[],
        sections: &[],
        words: &["activeQ"],
    },
    Feature { title: "NodeUnschedulable", groups: &["unschedulable"], tests: &[], sections: &[], words: &[] },
    Feature { title: "TaintToleration", groups: &["taints"], tests: &[], sections: &[], words: &[] },
    Feature {
        title: "NodeAffinity and NodeName",
        groups: &["node-affinity", "nodeaffinity-hints"],
        tests: &[],
        sections: &[],
        words: &[],
    },
    Feature { title: "NodePorts", groups: &["ports"], tests: &[], sections: &[], words: &["host ports"] },
    Feature {
        title: "NodeResourcesFit",
        groups: &["fit", "requests"],
        tests: &[],
        sections: &[],
        words: &["amounts above", "scalar resources", "extended resources"],
    },
    Feature {
        title: "Scores: NodeResourcesFit, NodeResourcesBalancedAllocation, ImageLocality, TaintToleration, NodeAffinity",
        groups: &["score"],
        tests: &[],
        sections: &[],
        words: &["image spread"],
    },
    Feature {
        title: "PodTopologySpread",
        groups: &["spread", "spread-score", "spread-defaults", "spread-hints"],
        tests: &[],
        sections: &[],
        words: &[],
    },
    Feature {
        title: "InterPodAffinity",
        groups: &["affinity", "affinity-namespaces", "affinity-score", "affinity-hints"],
        tests: &[],
        sections: &[],
        words: &[],
    },
    Feature {
        title: "VolumeBinding",
        groups: &["volumes", "claims", "binding", "capacity"],
        tests: &[],
        sections: &[],
        words: &["volumes of"],
    },
    Feature {
        title: "VolumeRestrictions",
        groups: &["disks", "rwop"],
        tests: &[],
        sections: &[],
        words: &[],
    },
    Feature { title: "NodeVolumeLimits", groups: &["limits"], tests: &[], sections: &[], words: &[] },
    Feature { title: "VolumeZone", groups: &["zone"], tests: &[], sections: &[], words: &[] },
    Feature { title: "NodeDeclaredFeatures", groups: &["features"], tests: &[], sections: &[], words: &[] },
    Feature {
        title: "DefaultPreemption and nominated nodes",
        groups: &["preempt", "nominated"],
        tests: &[],
        sections: &["Preemption"],
        words: &[],
    },
    Feature {
        title: "DefaultBinder and binding",
        groups: &[],
        tests: &["crates/scheduler/src/tests/binding.rs", "crates/scheduler/src/tests/uncertain.rs"],
        sections: &["Binding"],
        words: &[],
    },
    Feature {
        title: "Extenders",
        groups: &[],
        tests: &["tests/e2e/extenders.rs", "crates/scheduler/src/tests/extenders.rs"],
        sections: &[],
        words: &["extender"],
    },
    Feature {
        title: "Events and conditions",
        groups: &["told", "reasons"],
        tests: &[],
        sections: &["Events and conditions"],
        words: &[],
    },
    Feature {
        title: "Configuration and process",
        groups: &[],
        tests: &[],
        sections: &["Configuration and process"],
        words: &[],
    },
    Feature {
        title: "Leader election",
        groups: &[],
        tests: &["tests/e2e/failover.rs", "src/election/tests/property.rs"],
        sections: &["Leader election"],
        words: &[],
    },
    Feature {
        title: "Endpoints and metrics",
        groups: &[],
        tests: &["tests/e2e/endpoints/upstream.rs", "tests/metrics/upstream.rs"],
        sections: &["Endpoints"],
        words: &[],
    },
    Feature { title: "Informers", groups: &[], tests: &[], sections: &["Informers"], words: &[] },
    Feature {
        title: "Framework and cache",
        groups: &["counted"],
        tests: &["crates/scheduler/src/tests/cycle.rs", "crates/scheduler/src/tests/profiles.rs"],
        sections: &[],
        words: &[],
    },
];

/// Upstream's default plugins (multiPoint) with every feature gate at its default or on, in its order, with weights.
pub(super) const UPSTREAM_DEFAULTS: &[(&str, i32)] = &[
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
    ("GangScheduling", 0),
    ("TopologyPlacementGenerator", 0),
    ("PodGroupPodsCount", 1),
];

/// Those that are not here yet, and what becomes of pods that need them.
pub(super) const MISSING: [(&str, &str); 4] = [
    (
        "DynamicResources",
        "a pod with resource claims stays Pending: `supercargo does not evaluate spec.resourceClaims yet`",
    ),
    (
        "GangScheduling",
        "off by default upstream; a pod of a group stays Pending: `supercargo does not evaluate spec.schedulingGroup yet`",
    ),
    ("TopologyPlacementGenerator", "off by default upstream; belongs to groups of pods"),
    ("PodGroupPodsCount", "off by default upstream; belongs to groups of pods"),
];

//! The sections of the report, with the scenarios and deviations that belong to each.

/// A part of the scheduler.
pub(super) struct Feature {
    pub(super) title: &'static str,
    /// Folders of `scenarios/`.
    pub(super) groups: &'static [&'static str],
    /// Test files, for what scenarios cannot show: extenders, or a failing API server.
    pub(super) tests: &'static [&'static str],
    /// Sections of `docs/deviations.md`.
    pub(super) sections: &'static [&'static str],
    /// Words that assign rows of [`MIXED`]: the first feature with a matching word takes the row.
    pub(super) words: &'static [&'static str],
}

/// The section of `docs/deviations.md` whose rows belong to different features.
pub(super) const MIXED: &str = "Decisions";

/// In the order of the report. The last feature takes the rows of [`MIXED`] that no other takes.
pub(super) const FEATURES: &[Feature] = &[
    Feature {
        title: "Queue: SchedulingGates, PrioritySort, backoff, queueing hints",
        groups: &["scheduling-gates", "queue-order", "queueing-hints"],
        tests: &[],
        sections: &[],
        words: &["activeQ"],
    },
    Feature {
        title: "NodeUnschedulable",
        groups: &["node-unschedulable"],
        tests: &[],
        sections: &[],
        words: &[],
    },
    Feature {
        title: "TaintToleration",
        groups: &["taint-toleration"],
        tests: &[],
        sections: &[],
        words: &[],
    },
    Feature {
        title: "NodeAffinity and NodeName",
        groups: &["node-affinity", "node-affinity-hints"],
        tests: &[],
        sections: &[],
        words: &[],
    },
    Feature {
        title: "NodePorts",
        groups: &["node-ports"],
        tests: &[],
        sections: &[],
        words: &["host ports"],
    },
    Feature {
        title: "NodeResourcesFit",
        groups: &["node-resources-fit", "pod-requests"],
        tests: &[],
        sections: &[],
        words: &["amounts above", "scalar resources", "extended resources"],
    },
    Feature {
        title: "Scores: NodeResourcesFit, NodeResourcesBalancedAllocation, ImageLocality, TaintToleration, NodeAffinity",
        groups: &["scores"],
        tests: &[],
        sections: &[],
        words: &["image spread"],
    },
    Feature {
        title: "PodTopologySpread",
        groups: &[
            "topology-spread",
            "topology-spread-score",
            "topology-spread-defaults",
            "topology-spread-hints",
        ],
        tests: &[],
        sections: &[],
        words: &[],
    },
    Feature {
        title: "InterPodAffinity",
        groups: &[
            "inter-pod-affinity",
            "inter-pod-affinity-namespaces",
            "inter-pod-affinity-score",
            "inter-pod-affinity-hints",
        ],
        tests: &[],
        sections: &[],
        words: &[],
    },
    Feature {
        title: "VolumeBinding",
        groups: &["volume-binding", "persistent-volume-claims", "volume-binding-hints", "storage-capacity"],
        tests: &[],
        sections: &[],
        words: &["volumes of"],
    },
    Feature {
        title: "VolumeRestrictions",
        groups: &["volume-restrictions", "read-write-once-pod"],
        tests: &[],
        sections: &[],
        words: &["ReadWriteOncePod"],
    },
    Feature {
        title: "NodeVolumeLimits",
        groups: &["node-volume-limits"],
        tests: &[],
        sections: &[],
        words: &[],
    },
    Feature { title: "VolumeZone", groups: &["volume-zone"], tests: &[], sections: &[], words: &[] },
    Feature {
        title: "NodeDeclaredFeatures",
        groups: &["node-declared-features"],
        tests: &[],
        sections: &[],
        words: &[],
    },
    Feature {
        title: "DynamicResources",
        groups: &[
            "resource-claims",
            "resource-claims-hints",
            "devices",
            "devices-features",
            "device-selectors",
            "extended-resources",
        ],
        tests: &[
            "crates/devices/tests/upstream.rs",
            "crates/cel/tests/upstream.rs",
            "tests/e2e/claim_races.rs",
        ],
        sections: &["Device selectors", "Device allocator"],
        words: &["DynamicResources"],
    },
    Feature {
        title: "GangScheduling and pod groups",
        groups: &["groups"],
        tests: &[],
        sections: &["Pod groups"],
        words: &[],
    },
    Feature {
        title: "DefaultPreemption and nominated nodes",
        groups: &["preemption", "nominated-node"],
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
        groups: &["events-and-conditions", "failure-messages"],
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
        tests: &["tests/e2e/failover.rs", "crates/client/src/election/tests/property.rs"],
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
    Feature {
        title: "Framework and cache",
        groups: &["assigned-pods"],
        tests: &["crates/scheduler/src/tests/cycle.rs", "crates/scheduler/src/tests/profiles.rs"],
        sections: &[],
        words: &[],
    },
];

/// kube-scheduler's default plugins (multiPoint) with every feature gate on, in its order, with
/// weights.
pub(super) const UPSTREAM_DEFAULTS: &[(&str, i32)] = &[
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeName", 0),
    ("NodeUnschedulable", 0),
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

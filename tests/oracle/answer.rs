//! The output of a side after each step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The state after a step, and its changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    /// Every pod that exists, by `namespace/name`.
    pub(super) pods: BTreeMap<String, Pod>,
    /// Every PodGroup, by `namespace/name`.
    pub(super) groups: BTreeMap<String, Group>,
    /// How often pods went into a queue, by `queue/EVENT`.
    pub(super) moves: BTreeMap<String, u64>,
    /// How often pods or groups were new in a queue, by `type/queue/EVENT`.
    pub(super) entities: BTreeMap<String, u64>,
    /// Events, in order.
    pub(super) events: Vec<Event>,
    /// Pods that the scheduler has deleted.
    pub(super) deleted: Vec<String>,
    /// The other writes.
    pub(super) writes: Vec<Write>,
    /// The cycle of a schedule step, if a pod was popped.
    pub(super) cycle: Option<Cycle>,
    /// The trials of a group's pods, in order. Without errors.
    pub(super) trials: Vec<Cycle>,
    /// Whether several waits of PreBind failed at once. Upstream requeues their pods in random
    /// order.
    #[serde(skip)]
    pub(super) has_random_order: bool,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Pod {
    /// `active`, `backoff`, `unschedulable`, `gated`, `aside`, `inflight`, `bound` or `none`.
    pub(super) place: String,
    pub(super) node: String,
    pub(super) nominated: String,
    pub(super) attempts: u32,
    pub(super) unschedulable_plugins: Vec<String>,
    pub(super) pending_plugins: Vec<String>,
    /// The PodScheduled condition, unless it is true.
    pub(super) condition: Option<Condition>,
    /// The DisruptionTarget condition.
    pub(super) disruption: Option<Condition>,
}

/// A PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    /// The PodGroupInitiallyScheduled condition.
    pub(super) condition: Option<Condition>,
    /// Its transition time, in seconds.
    pub(super) since: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Condition {
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
    /// 0 if there is none.
    pub(super) observed_generation: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Event {
    pub(super) pod: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) action: String,
    pub(super) note: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Write {
    pub(super) verb: String,
    pub(super) resource: String,
    pub(super) name: String,
    pub(super) body: Value,
}

/// A scheduling cycle, observed before it changes anything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Cycle {
    pub(super) pod: String,
    /// By plugin; successes without nodes are omitted.
    pub(super) pre_filter: BTreeMap<String, PreFilter>,
    /// By node and plugin. Every plugin runs on every node; successes are omitted.
    pub(super) filters: BTreeMap<String, BTreeMap<String, Status>>,
    /// The nodes that pass everything, in order.
    pub(super) feasible: Vec<String>,
    /// Normalised and weighted, by node and plugin.
    pub(super) scores: BTreeMap<String, BTreeMap<String, i64>>,
    /// The result of DefaultPreemption.
    #[serde(default)]
    pub(super) preemption: Option<Preemption>,
    /// The result of the algorithm; `None` if the pod was skipped.
    pub(super) result: Option<Outcome>,
}

/// The result of DefaultPreemption.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Preemption {
    /// The nodes of the dry runs.
    pub(super) nodes: BTreeMap<String, Trial>,
    /// The nodes among which upstream chooses at random.
    #[serde(default)]
    pub(super) tied: Vec<String>,
}

/// The victims on a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trial {
    pub(super) code: String,
    pub(super) reasons: Vec<String>,
    pub(super) victims: Vec<String>,
    pub(super) violations: usize,
}

/// The result of PreFilter, and its nodes, if it does not return all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PreFilter {
    pub(super) code: String,
    pub(super) reasons: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) nodes: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Status {
    pub(super) code: String,
    #[serde(default)]
    pub(super) reasons: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Node(String),
    Error(String),
}

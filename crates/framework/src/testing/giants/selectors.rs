//! Objects with one enormous selector each, beside a pod.

use serde_json::{Value, json};

use super::{cluster_object, key, lacks, list, map, namespaced, with};

/// A Service that selects the giant by all of its labels.
pub(super) fn service(items: usize) -> Vec<Value> {
    let spec = json!({ "selector": map(items, key, "") });
    vec![with(namespaced("v1", "Service", "default", "giant"), "spec", spec)]
}

/// A ReplicaSet that selects every pod by many requirements.
pub(super) fn replica_set(items: usize) -> Vec<Value> {
    let spec = json!({ "selector": every_pod(items) });
    vec![with(namespaced("apps/v1", "ReplicaSet", "default", "giant"), "spec", spec)]
}

/// A budget for every pod by many requirements.
pub(super) fn budget(items: usize) -> Vec<Value> {
    vec![budget_of(items)]
}

/// A budget for every pod that counts many disrupted ones.
pub(super) fn disruptions(items: usize) -> Vec<Value> {
    let status = json!({ "disruptedPods": map(items, key, "2026-01-01T00:00:00Z") });
    vec![with(budget_of(1), "status", status)]
}

/// The giant's namespace, with many labels.
pub(super) fn namespace(items: usize) -> Vec<Value> {
    let mut namespace = cluster_object("v1", "Namespace", "default");
    namespace["metadata"]["labels"] = map(items, key, "");
    vec![namespace]
}

fn budget_of(items: usize) -> Value {
    let budget = namespaced("policy/v1", "PodDisruptionBudget", "default", "giant");
    with(budget, "spec", json!({ "selector": every_pod(items) }))
}

/// A selector that every pod meets.
fn every_pod(items: usize) -> Value {
    json!({ "matchExpressions": list(items, |i| lacks(&key(i))) })
}

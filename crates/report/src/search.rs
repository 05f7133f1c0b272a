//! Pods and nodes by a part of their name.

use std::sync::Arc;

use serde_json::{Value, json};
use supercargo_framework::PodInfo;
use supercargo_scheduler::Fork;

/// The most names of a kind.
const MOST_FOUND: usize = 10;

/// What has this text in its name, pending pods first.
pub fn search(fork: &Fork, text: &str) -> Value {
    let text = text.to_lowercase();
    let is_found = |name: &str| name.to_lowercase().contains(&text);
    let nodes: Vec<_> = fork.cache().nodes().names().filter(|name| is_found(name)).take(MOST_FOUND).collect();
    let pending = fork.pending();
    let pods = pending.iter().map(|pod| (pod, true)).chain(fork.cache().pods().map(|pod| (pod, false)));
    let pods = pods.filter(|(pod, _)| is_found(&format!("{}/{}", pod.namespace, pod.name)));
    let pod = |(pod, is_pending): (&Arc<PodInfo>, bool)| json!({ "namespace": pod.namespace, "name": pod.name, "pending": is_pending });
    let pods: Vec<Value> = pods.take(MOST_FOUND).map(pod).collect();
    json!({ "kind": "Search", "nodes": nodes, "pods": pods })
}

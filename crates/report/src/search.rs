//! Pods and nodes by a part of their name.

use std::sync::Arc;

use serde_json::{Value, json};
use supercargo_framework::PodInfo;
use supercargo_scheduler::Fork;

/// The most names of a kind.
const MOST_FOUND: usize = 10;

/// What has this text in its name, pending pods first, and whether there is more.
pub fn search(fork: &Fork, text: &str) -> Value {
    let text = text.to_lowercase();
    let is_found = |name: &str| name.to_lowercase().contains(&text);
    let nodes = fork.cache().nodes().names().filter(|name| is_found(name)).take(MOST_FOUND + 1);
    let mut nodes: Vec<_> = nodes.collect();
    let pending = fork.pending();
    let pods = pending.iter().map(|pod| (pod, true)).chain(fork.cache().pods().map(|pod| (pod, false)));
    let pods = pods.filter(|(pod, _)| is_found(&format!("{}/{}", pod.namespace, pod.name)));
    let pod = |(pod, is_pending): (&Arc<PodInfo>, bool)| json!({ "namespace": pod.namespace, "name": pod.name, "pending": is_pending });
    let mut pods: Vec<Value> = pods.take(MOST_FOUND + 1).map(pod).collect();
    let is_cut = nodes.len().max(pods.len()) > MOST_FOUND;
    nodes.truncate(MOST_FOUND);
    pods.truncate(MOST_FOUND);
    json!({ "kind": "Search", "nodes": nodes, "pods": pods, "isCut": is_cut })
}

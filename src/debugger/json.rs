//! Dumps as JSON.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use supercargo_framework::{PodInfo, Resource, Text, Timestamp};
use supercargo_scheduler::{NodeView, Place, QueueView, QueuedPod};

/// All nodes with their pods.
pub(super) fn cache(views: &[NodeView]) -> Value {
    let pods = views.iter().map(|view| view.pods.len()).sum::<usize>();
    let assumed = views.iter().flat_map(|view| &view.pods).filter(|pod| pod.assumed).count();
    json!({
        "nodeCount": views.len(),
        "podCount": pods,
        "assumedPodCount": assumed,
        "nodes": views.iter().map(node).collect::<Vec<_>>(),
    })
}

fn node(view: &NodeView) -> Value {
    let on_node = |on_node: &supercargo_scheduler::PodOnNode| {
        json!({
            "pod": on_node.pod.key().to_string(),
            "uid": on_node.pod.uid.to_string(),
            "priority": on_node.pod.priority,
            "assumed": on_node.assumed,
        })
    };
    json!({
        "name": view.node.name,
        "unschedulable": view.node.unschedulable,
        "allocatable": resource(&view.node.allocatable),
        "requested": resource(&view.requested),
        "pods": view.pods.iter().map(on_node).collect::<Vec<_>>(),
        "nominatedPods": view.nominated.iter().map(|pod| pod.key().to_string()).collect::<Vec<_>>(),
    })
}

/// Amounts as numbers: CPU in millicores, everything else in its base unit.
fn resource(amounts: &Resource) -> Value {
    let mut all = Map::new();
    all.insert("milliCPU".into(), amounts.milli_cpu.into());
    all.insert("memory".into(), amounts.memory.into());
    all.insert("ephemeral-storage".into(), amounts.ephemeral_storage.into());
    if amounts.allowed_pod_number > 0 {
        all.insert("pods".into(), amounts.allowed_pod_number.into());
    }
    for (name, amount) in amounts.scalars() {
        all.insert(name.to_string(), (*amount).into());
    }
    all.into()
}

/// All pods without a node, by queue or binding.
pub(super) fn queue(view: &QueueView) -> Value {
    let at = |wanted: Place| {
        let here = view.waiting.iter().filter(|(place, _)| *place == wanted);
        here.map(|(_, entry)| waiting(entry)).collect::<Vec<_>>()
    };
    let binding = |binding: &supercargo_scheduler::BindingView| {
        json!({ "pod": binding.pod.key().to_string(), "uid": binding.pod.uid.to_string(),
                "node": binding.node, "stage": binding.stage })
    };
    json!({
        "activeQ": at(Place::Active),
        "backoffQ": at(Place::Backoff),
        "unschedulableEntities": at(Place::Unschedulable),
        "gated": at(Place::Gated),
        "bindings": view.bindings.iter().map(binding).collect::<Vec<_>>(),
    })
}

fn waiting(entry: &QueuedPod) -> Value {
    let PodInfo { uid, priority, spec, status, .. } = &*entry.pod;
    let names =
        |names: &std::collections::BTreeSet<Text>| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let condition = status.pod_scheduled.as_ref();
    json!({
        "pod": entry.pod.key().to_string(),
        "uid": uid.to_string(),
        "schedulerName": spec.scheduler_name,
        "priority": priority,
        "attempts": entry.attempts,
        "queuedAt": time(entry.timestamp),
        "firstAttemptAt": entry.initial_attempt.map(time),
        "backoffUntil": entry.backoff_until().map(time),
        "unschedulablePlugins": names(&entry.unschedulable_plugins),
        "pendingPlugins": names(&entry.pending_plugins),
        "gatingPlugin": entry.gating_plugin.as_ref().map(ToString::to_string),
        "nominatedNode": status.nominated_node_name,
        "reason": condition.map(|condition| Arc::clone(&condition.reason)),
        "message": condition.map(|condition| Arc::clone(&condition.message)),
    })
}

fn time(at: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.0).map(|at| at.to_string()).unwrap_or_default()
}

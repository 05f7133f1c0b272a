//! A node and the pods on it.

use serde_json::{Value, json};
use supercargo_framework::resource::names;
use supercargo_framework::{NodeInfo, PodInfo};
use supercargo_scheduler::Fork;

use crate::devices::devices_of;
use crate::pools::{pool, zone};
use crate::words::quantity;

/// The node of this name.
pub fn node(fork: &Fork, name: &str) -> Option<Value> {
    let info = fork.cache().nodes().get(name)?;
    let node = info.node();
    let mut pods: Vec<&PodInfo> = info.pods().iter().map(|pod| &**pod).collect();
    pods.sort_by_key(|pod| pod.key());
    let assumed = |pod: &PodInfo| fork.cache().is_assumed(&pod.uid);
    let taint = |taint: &supercargo_framework::taint::Taint| json!({ "key": taint.key, "value": taint.value, "effect": taint.effect.as_str() });
    let label = |(key, value)| json!({ "key": key, "value": value });
    Some(json!({
        "kind": "Node",
        "name": node.name,
        "zone": zone(node),
        "pool": pool(node),
        "cordoned": node.unschedulable,
        "taints": node.taints.iter().map(taint).collect::<Vec<_>>(),
        "labels": node.labels.texts().map(label).collect::<Vec<_>>(),
        "resources": resources(info),
        "devices": devices_of(fork, &node.name),
        "pods": pods.into_iter().map(|pod| pod_json(pod, assumed(pod))).collect::<Vec<_>>(),
        "nominated": fork.nominated_on(&node.name).iter().map(|pod| pod_json(pod, false)).collect::<Vec<_>>(),
    }))
}

/// What the node has, and what its pods request of it.
fn resources(info: &NodeInfo) -> Vec<Value> {
    let scalars = info.allocatable().scalars().iter().map(|(name, _)| &**name);
    let known = [names::CPU, names::MEMORY, names::EPHEMERAL_STORAGE];
    let resource = |name: &str| {
        let (requested, allocatable) = (info.requested().get(name), info.allocatable().get(name));
        resource(name, requested, allocatable)
    };
    let pods = resource_of_pods(info);
    known
        .into_iter()
        .chain(scalars)
        .filter(|name| info.allocatable().get(name) > 0)
        .map(resource)
        .chain([pods])
        .collect()
}

fn resource_of_pods(info: &NodeInfo) -> Value {
    let pods = i64::try_from(info.pods().len()).unwrap_or(i64::MAX);
    resource(names::PODS, pods, info.allocatable().allowed_pod_number)
}

fn resource(name: &str, requested: i64, allocatable: i64) -> Value {
    json!({
        "name": name,
        "requested": quantity(name, requested),
        "allocatable": quantity(name, allocatable),
        "share": supercargo_page::share(requested, allocatable),
    })
}

fn pod_json(pod: &PodInfo, is_assumed: bool) -> Value {
    let requests = &pod.requests().resource;
    json!({
        "namespace": pod.namespace,
        "name": pod.name,
        "cpu": quantity(names::CPU, requests.milli_cpu),
        "memory": quantity(names::MEMORY, requests.memory),
        "priority": pod.priority,
        "assumed": is_assumed,
    })
}

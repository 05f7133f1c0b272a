//! The cluster around giants, as clusters are.

use serde_json::{Value, json};

use super::{HOSTNAME, NUMBER, POD_NAME};

pub(super) fn node_name(i: usize) -> String {
    format!("node-{i}")
}

pub(super) fn pod_name(i: usize) -> String {
    format!("plain-{i}")
}

/// A node as clusters have them: labels, a taint of each kind.
pub fn plain_node(i: usize) -> Value {
    let name = node_name(i);
    let mut taints = vec![json!({ "key": "dedicated", "value": "giants", "effect": "PreferNoSchedule" })];
    // One in eight is reserved.
    if i % 8 == 7 {
        taints.push(json!({ "key": "reserved", "effect": "NoSchedule" }));
    }
    let amounts = json!({ "cpu": "32", "memory": "256Gi", "pods": "110" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": name, "resourceVersion": "1",
            "labels": {
                HOSTNAME: name, "zone": (["a", "b", "c"][i % 3]), "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": "large", "cores": "32",
                NUMBER: i.to_string(),
            },
        },
        "spec": { "taints": taints },
        "status": {
            "capacity": amounts, "allocatable": amounts,
            "images": [{ "names": ["app:latest"], "sizeBytes": 1 << 30 }],
        },
    })
}

/// Pod `i` of those that run on `nodes` by turns: one of a stateful workload of ten, with a host
/// port, in one of `namespaces`. Every giant can preempt it.
pub fn plain_pod(i: usize, nodes: usize, namespaces: usize) -> Value {
    let (name, node, port) = (pod_name(i), format!("node-{}", i % nodes), 9100 + i / nodes);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace_name(i / 10 % namespaces), "uid": name,
            "resourceVersion": "1", "labels": { "app": format!("app-{}", i / 10), POD_NAME: name },
        },
        "spec": {
            "schedulerName": "supercargo", "nodeName": node, "priority": -1,
            "containers": [{
                "name": "c", "image": "app", "resources": { "requests": { "cpu": "100m" } },
                "ports": [{ "containerPort": port, "hostPort": port, "protocol": "TCP" }],
            }],
        },
    })
}

/// The objects around giants: namespaces of a team, and the CSI drivers of nodes.
pub fn objects(nodes: usize, namespaces: usize) -> impl Iterator<Item = Value> {
    let namespaces = (0..namespaces).map(|i| {
        let name = namespace_name(i);
        let labels = json!({ "team": "blue", "kubernetes.io/metadata.name": name });
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "uid": name, "resourceVersion": "1", "labels": labels },
        })
    });
    let csi_nodes = (0..nodes).map(|i| {
        let name = format!("node-{i}");
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": { "name": name, "uid": name, "resourceVersion": "1" },
            "spec": { "drivers": [{
                "name": "cinder.csi.openstack.org", "nodeID": name, "allocatable": { "count": 25 },
            }] },
        })
    });
    namespaces.chain(csi_nodes)
}

pub(super) fn namespace_name(i: usize) -> String {
    if i == 0 { "default".to_owned() } else { format!("namespace-{i}") }
}

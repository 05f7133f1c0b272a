//! The nodes and pods of the cluster.

use serde_json::{Value, json};

use crate::client::{Call, JSON};

/// The namespace of the pods.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
/// The name of both schedulers.
pub(crate) const SCHEDULER: &str = "default-scheduler";

/// The kind of pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pods {
    pub(crate) unique_labels: bool,
    pub(crate) large: bool,
}

pub(crate) fn node_name(index: usize) -> String {
    format!("node-{index:05}")
}

/// A node with room for its pods.
pub(crate) fn node(index: usize) -> Call {
    let size = json!({"cpu": "32", "memory": "256Gi", "pods": "1000", "ephemeral-storage": "500Gi"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(index), "labels": {
            "kubernetes.io/hostname": node_name(index), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": format!("zone-{}", index % 3), "topology.kubernetes.io/region": "region-a",
            "node.kubernetes.io/instance-type": "large",
        }},
        "status": {"capacity": size, "allocatable": size, "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    Call::post("/api/v1/nodes", node.to_string())
}

impl Pods {
    /// scheduler_perf's default pod, or a larger one like those of an application; bound if a node
    /// is given.
    pub(crate) fn pod(self, name: &str, node: Option<&str>) -> Call {
        let mut labels = json!({"app": "web", "pod-template-hash": "5d9f7c8b6d"});
        if self.unique_labels {
            labels["job"] = json!(format!("job-{name}"));
        }
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "schedulerName": SCHEDULER, "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "pause", "image": "registry.k8s.io/pause:3.10", "ports": [{"containerPort": 80}],
                    "resources": {
                        "requests": {"cpu": "100m", "memory": "500Mi"}, "limits": {"cpu": "100m", "memory": "500Mi"},
                    },
                }],
            },
        });
        if self.large {
            enlarge(&mut pod);
        }
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        Call::post(PODS, pod.to_string())
    }
}

/// Typical fields of applications: variables, probes, volumes, tolerations.
fn enlarge(pod: &mut Value) {
    let variables: Vec<_> = (0..80)
        .map(|i| json!({"name": format!("SETTING_{i:02}"), "value": format!("value-of-setting-{i:02}")}))
        .collect();
    let probe = json!({"httpGet": {"path": "/ready", "port": 80}, "periodSeconds": 5});
    let spec = &mut pod["spec"];
    spec["containers"][0]["env"] = json!(variables);
    spec["containers"][0]["readinessProbe"] = probe.clone();
    spec["containers"][0]["livenessProbe"] = probe;
    spec["containers"][0]["volumeMounts"] = json!([{"name": "cache", "mountPath": "/cache"}]);
    spec["volumes"] = json!([{"name": "cache", "emptyDir": {}}]);
    spec["tolerations"] = json!([
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    ]);
}

/// Deletes a pod.
pub(crate) fn delete(name: &str) -> Call {
    Call { method: http::Method::DELETE, ..Call::get(format!("{PODS}/{name}"), JSON) }
}

/// Watches one pod by name.
pub(crate) fn watch(name: &str) -> Call {
    Call::get(format!("{PODS}?watch=true&fieldSelector=metadata.name%3D{name}"), JSON)
}

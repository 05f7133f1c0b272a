//! The created and changed objects: typical nodes and pods.

use serde_json::json;

use crate::client::Call;

/// The namespace of the pods.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
/// The annotation that changes.
pub(crate) const MARK: &str = "rates/at";

/// The placeholder of a name.
const NAME: &str = "@NAME@";

/// Objects of one kind that differ only in their names.
pub(crate) struct Template {
    text: String,
    path: &'static str,
}

impl Template {
    /// A node of 32 CPUs.
    pub(crate) fn node() -> Self {
        let size = json!({"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "500Gi"});
        let condition = |kind: &str, status: &str| {
            json!({
                "type": kind, "status": status, "reason": "KubeletIsFine", "message": "kubelet is ready",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": NAME, "labels": {
                "kubernetes.io/hostname": NAME, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": "zone-a", "topology.kubernetes.io/region": "region-a",
                "node.kubernetes.io/instance-type": "large",
            }},
            "spec": {},
            "status": {
                "capacity": size, "allocatable": size,
                "addresses": [{"type": "Hostname", "address": NAME}],
                "conditions": [
                    condition("Ready", "True"), condition("MemoryPressure", "False"),
                    condition("DiskPressure", "False"), condition("PIDPressure", "False"),
                ],
            },
        });
        Self { text: node.to_string(), path: "/api/v1/nodes" }
    }

    /// A pod like those of a Deployment.
    pub(crate) fn pod() -> Self {
        let probe = json!({"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": NAME,
                "labels": {"app": "web", "pod-template-hash": "5d9f7c8b6d", "team": "shop"},
                "annotations": {"prometheus.io/scrape": "true"},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9f7c8b6d",
                    "uid": "0b8b1c9e-0000-4000-8000-000000000000", "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "schedulerName": "nobody",
                "containers": [{
                    "name": "web", "image": "registry.example/web:1.27", "imagePullPolicy": "IfNotPresent",
                    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                    "env": [{"name": "MODE", "value": "production"}],
                    "resources": {
                        "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"},
                    },
                    "readinessProbe": probe,
                    "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
                }],
                "volumes": [{"name": "cache", "emptyDir": {}}],
                "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                    "weight": 100,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    },
                }]}},
                "tolerations": [{
                    "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }],
            },
        });
        Self { text: pod.to_string(), path: PODS }
    }

    /// Creates the object with a name.
    pub(crate) fn create(&self, name: &str) -> Call {
        Call::post(self.path, self.text.replace(NAME, name))
    }
}

pub(crate) fn node_name(index: usize) -> String {
    format!("node-{index:05}")
}

pub(crate) fn pod_name(index: usize) -> String {
    format!("web-5d9f7c8b6d-{index:06}")
}

/// Changes a pod's annotation.
pub(crate) fn mark(pod: usize, change: usize) -> Call {
    let patch = format!(r#"{{"metadata":{{"annotations":{{"{MARK}":"{change}"}}}}}}"#);
    Call::patch(format!("{PODS}/{}", pod_name(pod)), "application/merge-patch+json", patch)
}

/// Binds a pod to a node.
pub(crate) fn bind(pod: usize, node: usize) -> Call {
    let name = pod_name(pod);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name(node)},
    });
    Call::post(format!("{PODS}/{name}/binding"), binding.to_string())
}

/// Reports a running pod, as a kubelet does.
pub(crate) fn run(pod: usize) -> Call {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let address = format!("10.{}.{}.{}", pod >> 16 & 255, pod >> 8 & 255, pod & 255);
    let status = json!({"status": {
        "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [condition("Initialized"), condition("Ready"), condition("ContainersReady")],
        "containerStatuses": [{
            "name": "web", "image": "registry.example/web:1.27", "imageID": "sha256:0", "ready": true,
            "restartCount": 0, "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }],
    }});
    let path = format!("{PODS}/{}/status", pod_name(pod));
    Call::patch(path, "application/strategic-merge-patch+json", status.to_string())
}

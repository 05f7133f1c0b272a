//! Pods and nodes as the API server sends them.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// The placeholder of a pod's number, with the same length.
const NUMBER: &str = "@@@@@@";

/// The kind of pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) large: bool,
    pub(crate) unique_labels: bool,
}

/// Pods that differ only in a number: where it is in the encoded pod.
pub(crate) struct Template {
    bytes: Vec<u8>,
    places: Vec<usize>,
    node_places: Vec<usize>,
}

/// The placeholder of the node's number.
const NODE: &str = "######";

impl Template {
    fn new(bytes: Vec<u8>) -> Self {
        let places = |mark: &str| -> Vec<usize> {
            let found = bytes.windows(mark.len()).enumerate();
            found.filter(|(_, window)| *window == mark.as_bytes()).map(|(at, _)| at).collect()
        };
        let (places, node_places) = (places(NUMBER), places(NODE));
        Self { bytes, places, node_places }
    }

    /// In protobuf.
    pub(crate) fn protobuf(object: &Value) -> Result<Self> {
        let message = supercargo_apiserver::protobuf_message(object).context("a pod in protobuf")?;
        Ok(Self::new(message.to_vec()))
    }

    /// In JSON.
    pub(crate) fn json(object: &Value) -> Self {
        Self::new(object.to_string().into_bytes())
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The object with this number on the node with that number.
    pub(crate) fn numbered(&mut self, number: usize, node: usize) -> &[u8] {
        for (places, number) in [(&self.places, number), (&self.node_places, node)] {
            let digits = format!("{number:06}");
            for at in places {
                self.bytes[*at..*at + digits.len()].copy_from_slice(digits.as_bytes());
            }
        }
        &self.bytes
    }
}

pub(crate) fn node() -> Value {
    let size = json!({"cpu": "32", "memory": "256Gi", "pods": "1000", "ephemeral-storage": "500Gi"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": format!("node-{NODE}"), "uid": format!("7c0fd3c5-0000-4000-8000-000000{NODE}"),
            "resourceVersion": format!("1{NODE}"),
            "labels": {
                "kubernetes.io/hostname": format!("node-{NODE}"), "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": "zone-a",
            },
        },
        "status": {"capacity": size, "allocatable": size},
    })
}

impl Shape {
    /// scheduler_perf's default pod on a node, or an application's pod, as the server returns it.
    pub(crate) fn pod(self) -> Value {
        let mut labels = json!({"app": "web", "pod-template-hash": "5d9f7c8b6d"});
        if self.unique_labels {
            labels["job"] = json!(format!("job-{NUMBER}"));
        }
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("web-5d9f7c8b6d-{NUMBER}"), "namespace": "default", "labels": labels,
                "uid": format!("0b8b1c9e-5f07-4000-8000-000000{NUMBER}"), "resourceVersion": format!("1{NUMBER}"),
                "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{
                    "manager": "controller", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                    "time": "2026-01-01T00:00:00Z",
                    "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}}},
                        "f:spec": {"f:containers": {"k:{\"name\":\"pause\"}": {".": {}, "f:image": {},
                            "f:imagePullPolicy": {}, "f:name": {}, "f:ports": {".": {},
                            "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {},
                            "f:protocol": {}}}, "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {},
                            "f:memory": {}}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}},
                            "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}}},
                            "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
                            "f:terminationGracePeriodSeconds": {}}},
                }],
            },
            "spec": {
                "nodeName": format!("node-{NODE}"), "schedulerName": "default-scheduler", "dnsPolicy": "ClusterFirst",
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "securityContext": {}, "priority": 0,
                "preemptionPolicy": "PreemptLowerPriority", "enableServiceLinks": true,
                "containers": [{
                    "name": "pause", "image": "registry.k8s.io/pause:3.10", "imagePullPolicy": "IfNotPresent",
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "resources": {
                        "requests": {"cpu": "100m", "memory": "500Mi"}, "limits": {"cpu": "100m", "memory": "500Mi"},
                    },
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "tolerations": [
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                ],
            },
            "status": {
                "phase": "Running", "qosClass": "Guaranteed", "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{
                    "type": "PodScheduled", "status": "True", "lastProbeTime": null,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        });
        if self.large {
            enlarge(&mut pod);
        }
        pod
    }
}

/// Typical fields of applications: variables, probes, volumes, managedFields.
fn enlarge(pod: &mut Value) {
    let names: Vec<_> = (0..40).map(|i| format!("SETTING_{i:02}")).collect();
    let variables: Vec<_> =
        names.iter().map(|name| json!({"name": name, "value": format!("the value of {name}")})).collect();
    let managed = names
        .iter()
        .map(|name| (format!("k:{{\"name\":\"{name}\"}}"), json!({".": {}, "f:name": {}, "f:value": {}})));
    let managed: serde_json::Map<_, _> = managed.collect();
    let fields = &mut pod["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:containers"];
    fields["k:{\"name\":\"pause\"}"]["f:env"] = managed.into();
    let probe = json!({
        "httpGet": {"path": "/ready", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 5,
        "successThreshold": 1, "failureThreshold": 3,
    });
    let spec = &mut pod["spec"];
    let container = &mut spec["containers"][0];
    container["env"] = json!(variables);
    container["readinessProbe"] = probe.clone();
    container["livenessProbe"] = probe;
    container["volumeMounts"] = json!([{"name": "cache", "mountPath": "/cache"}]);
    let mut sidecar = container.clone();
    sidecar["name"] = json!("proxy");
    sidecar["ports"] = json!([{"containerPort": 81, "protocol": "TCP"}]);
    spec["containers"] = json!([container.clone(), sidecar]);
    spec["volumes"] = json!([{"name": "cache", "emptyDir": {}}]);
    spec["affinity"] = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}},
        },
    }]}});
}

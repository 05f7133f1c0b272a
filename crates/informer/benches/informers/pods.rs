//! The pods for all clients, and their changes.
//!
//! Pods of one size differ only in numbers of a fixed width, so a pod in either encoding is a copy
//! of a template with digits filled in. The Go program (`testing/controlplane/informerbench`) uses
//! the same marks, numbers and changes.

use std::io::Write as _;

use http_body_util::BodyExt as _;
use kube_informers::protobuf::wire::{Fields, Value as Field, Writer};
use kube_informers::protobuf::{MEDIA_TYPE, open_envelope};
use serde_json::{Value, json};
use supercargo_apiserver::ApiServer;
use tower::ServiceExt as _;

use crate::Result;
use crate::measure::Templates;

/// The resource version of the first listed pod; the others count up from it.
pub(crate) const FIRST_VERSION: usize = 10_000_000;
/// The resource version of the list.
pub(crate) const LISTED_VERSION: usize = 19_999_999;
/// The resource version of the first change.
pub(crate) const CHANGED_VERSION: usize = 20_000_000;

/// The placeholders in a template. Each is valid within a name, because servers validate names.
const MARKS: [&str; 5] = ["xnamex", "xnsx", "xnodx", "xxuidxxuidxx", "xxrvxxrv"];

/// The size of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// From a short deployment template, about 2 KB of JSON.
    Small,
    /// With sidecars, probes, large environments, many volumes and managed fields, about 10 KB.
    Large,
}

/// A pod in one encoding, with placeholders.
pub(crate) struct Template {
    bytes: Vec<u8>,
    places: [Vec<usize>; MARKS.len()],
}

/// The change of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The pod is created again.
    Added,
    /// Only the resource version changes.
    Modified,
    /// The pod is deleted.
    Deleted,
}

impl Template {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let places = MARKS.map(|mark| {
            let windows = bytes.windows(mark.len()).enumerate();
            windows.filter(|(_, window)| *window == mark.as_bytes()).map(|(at, _)| at).collect()
        });
        Self { bytes, places }
    }

    /// The length of every pod.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a pod.
    pub(crate) fn write(&self, pod: usize, version: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let numbers = [pod, pod % 100, pod % 1000, pod, version];
        for ((places, mark), number) in self.places.iter().zip(MARKS).zip(numbers) {
            for at in places {
                // The width is the placeholder's, so the digits fill the slice.
                let _ = write!(&mut out[start + at..][..mark.len()], "{number:0width$}", width = mark.len());
            }
        }
    }
}

/// A pod's key.
pub(crate) fn key(pod: usize) -> String {
    format!("ns-{:04}/web-5d9f7c8b6d-{pod:06}", pod % 100)
}

/// The change with this index, and its pod. Of twenty changes, one deletes a pod of the first
/// twentieth and one recreates a deleted pod; the others update pods evenly.
pub(crate) fn change(index: usize, pods: usize) -> (Change, usize) {
    let reserve = pods / 20;
    let (cycle, step) = (index / 20, index % 20);
    match step {
        17 if reserve >= 2 => (Change::Deleted, cycle % reserve),
        18 if reserve >= 2 && cycle >= reserve / 2 => (Change::Added, (cycle - reserve / 2) % reserve),
        _ => (Change::Modified, reserve + index * 7919 % (pods - reserve)),
    }
}

/// The pod of the change with this index, if all changes are updates.
pub(crate) fn updated(index: usize, pods: usize) -> usize {
    index * 7919 % pods
}

/// The templates of a size: JSON as in a list, and the protobuf message. The API server in memory
/// fills in defaults and encodes.
pub(crate) async fn templates(size: Size) -> Result<Templates> {
    let server = ApiServer::default();
    server.load(&pod(size).to_string())?;
    let json = get(&server, "application/json").await?;
    let mut json: Value = serde_json::from_slice(&json)?;
    let object = json.as_object_mut().ok_or("a pod is an object")?;
    // Items of a list omit their type.
    object.remove("kind");
    object.remove("apiVersion");
    json["metadata"]["resourceVersion"] = MARKS[4].into();
    let enveloped = get(&server, MEDIA_TYPE).await?;
    let (_, message) = open_envelope(&enveloped)?;
    Ok(Templates { json: json.to_string().into_bytes(), protobuf: marked(message)? })
}

async fn get(server: &ApiServer, accept: &str) -> Result<Vec<u8>> {
    let path = format!("/api/v1/namespaces/ns-{}/pods/web-5d9f7c8b6d-{}", MARKS[1], MARKS[0]);
    let request = http::Request::get(path).header(http::header::ACCEPT, accept);
    let answer = server.service().oneshot(request.body(kube::client::Body::empty())?).await?;
    if !answer.status().is_success() {
        return Err(format!("the server has no pod: {}", answer.status()).into());
    }
    Ok(answer.into_body().collect().await?.to_bytes().to_vec())
}

/// The pod's message with the placeholder for its resource version, which has a different length.
fn marked(pod: &[u8]) -> Result<Vec<u8>> {
    const METADATA: u32 = 1;
    const RESOURCE_VERSION: u32 = 6;
    let mut out = Writer::new();
    for field in Fields::new(pod) {
        match field? {
            (METADATA, Field::Bytes(metadata)) => {
                let mut marked = Writer::new();
                for field in Fields::new(metadata) {
                    let (number, value) = field?;
                    if number != RESOURCE_VERSION {
                        copy(number, value, &mut marked)?;
                    }
                }
                out.message(METADATA, marked.string(RESOURCE_VERSION, MARKS[4]));
            }
            (number, value) => copy(number, value, &mut out)?,
        }
    }
    Ok(out.into_bytes())
}

fn copy(number: u32, value: Field<'_>, out: &mut Writer) -> Result<()> {
    match value {
        Field::Varint(value) => out.varint(number, value),
        Field::Bytes(value) => out.bytes(number, value),
        Field::Fixed64(_) | Field::Fixed32(_) => return Err("pods have no fields of fixed width".into()),
    };
    Ok(())
}

/// Appends a field that has a length.
pub(crate) fn put(number: u64, value: &[u8], out: &mut Vec<u8>) {
    put_head(number, value.len(), out);
    out.extend_from_slice(value);
}

/// Appends the tag and length of a field.
pub(crate) fn put_head(number: u64, length: usize, out: &mut Vec<u8>) {
    prost::encoding::encode_varint(number << 3 | 2, out);
    prost::encoding::encode_varint(length as u64, out);
}

/// A bound and running pod of a deployment.
fn pod(size: Size) -> Value {
    let name = format!("web-5d9f7c8b6d-{}", MARKS[0]);
    let large = size == Size::Large;
    let containers: Vec<Value> = if large {
        ["web", "proxy", "logs"].map(|name| container(name, true)).into()
    } else {
        vec![container("web", false)]
    };
    let statuses: Vec<Value> = containers.iter().map(|container| status(&container["name"])).collect();
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(|kind| {
        json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    });
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": format!("ns-{}", MARKS[1]), "generateName": "web-5d9f7c8b6d-",
            "uid": format!("00000000-0000-4000-8000-{}", MARKS[3]),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "5d9f7c8b6d", "team": "shop"},
            "annotations": {"prometheus.io/scrape": "true"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9f7c8b6d",
                "uid": "0b8b1c9e-0000-4000-8000-000000000000", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeName": format!("node-{}", MARKS[2]), "serviceAccountName": "web", "priority": 0,
            "containers": containers,
            "volumes": [{"name": "cache", "emptyDir": {}}],
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                },
            }]}},
            "tolerations": [toleration("not-ready"), toleration("unreachable")],
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
            "startTime": "2026-01-01T00:00:00Z", "qosClass": "Burstable",
            "conditions": conditions,
            "containerStatuses": statuses,
        },
    });
    if large {
        pod["metadata"]["managedFields"] = managed_fields();
        pod["spec"]["topologySpreadConstraints"] = json!([{
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }]);
        pod["spec"]["volumes"] = json!([
            {"name": "cache", "emptyDir": {}},
            {"name": "config", "configMap": {"name": "web"}},
            {"name": "keys", "secret": {"secretName": "web"}},
            {"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]}},
        ]);
    }
    pod
}

fn toleration(taint: &str) -> Value {
    json!({
        "key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": 300,
    })
}

fn container(name: &str, large: bool) -> Value {
    let mut container = json!({
        "name": name, "image": format!("registry.example/{name}:1.27"), "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": "MODE", "value": "production"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
    });
    if large {
        let probe = |path: &str| json!({"httpGet": {"path": path, "port": 8080}, "periodSeconds": 5, "timeoutSeconds": 2});
        container["readinessProbe"] = probe("/ready");
        container["livenessProbe"] = probe("/live");
        let variable = |number: u32| json!({"name": format!("SERVICE_{number}_HOST"), "value": format!("service-{number}.shop.svc")});
        let mut env: Vec<Value> = (0..6).map(variable).collect();
        env.push(json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}));
        env.push(json!({"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "web", "key": "key"}}}));
        container["env"] = env.into();
        container["volumeMounts"] = json!([
            {"name": "cache", "mountPath": "/cache"},
            {"name": "config", "mountPath": "/etc/web", "readOnly": true},
            {"name": "keys", "mountPath": "/etc/keys", "readOnly": true},
            {"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
        ]);
        container["securityContext"] = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true});
    }
    container
}

fn status(container: &Value) -> Value {
    json!({
        "name": container, "image": "registry.example/web:1.27", "ready": true, "restartCount": 0, "started": true,
        "imageID": "registry.example/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    })
}

/// The managed fields of all writers, a large part of real pods.
fn managed_fields() -> Value {
    let container = json!({
        ".": {}, "f:env": {".": {}, "k:{\"name\":\"KEY\"}": {".": {}, "f:name": {}, "f:valueFrom": {}}},
        "f:image": {}, "f:imagePullPolicy": {}, "f:livenessProbe": {}, "f:name": {}, "f:ports": {},
        "f:readinessProbe": {}, "f:resources": {}, "f:volumeMounts": {},
    });
    let condition =
        json!({".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}});
    let entry = |manager: &str, fields: Value| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    };
    let owner = json!({".": {}, "k:{\"uid\":\"0b8b1c9e-0000-4000-8000-000000000000\"}": {}});
    let mut kubelet = entry(
        "kubelet",
        json!({"f:status": {
            "f:conditions": {
                "k:{\"type\":\"ContainersReady\"}": condition, "k:{\"type\":\"Initialized\"}": condition,
                "k:{\"type\":\"Ready\"}": condition,
            },
            "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:podIPs": {}, "f:startTime": {},
        }}),
    );
    kubelet["subresource"] = "status".into();
    let controller = entry(
        "kube-controller-manager",
        json!({
            "f:metadata": {
                "f:annotations": {".": {}, "f:prometheus.io/scrape": {}}, "f:generateName": {},
                "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}, "f:team": {}}, "f:ownerReferences": owner,
            },
            "f:spec": {
                "f:affinity": {},
                "f:containers": {
                    "k:{\"name\":\"web\"}": container, "k:{\"name\":\"proxy\"}": container, "k:{\"name\":\"logs\"}": container,
                },
                "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
                "f:serviceAccountName": {}, "f:terminationGracePeriodSeconds": {}, "f:tolerations": {}, "f:volumes": {},
            },
        }),
    );
    json!([controller, kubelet])
}

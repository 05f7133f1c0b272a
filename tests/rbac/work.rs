//! Work that schedulers rarely have: volumes, devices and preemption.

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, Method};

use super::cluster::{eventually, get, post, send};
use super::live::pods;

const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const DEVICES: &str = "/apis/resource.k8s.io/v1";
const PRIORITY_CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

/// Creates a StorageClass with the mode WaitForFirstConsumer.
pub(super) fn create_class(plane: &ControlPlane, name: &str, provisioner: &str) {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    post(plane, CLASSES, &class);
}

fn volume(name: &str, class: &str, claim: Option<&Value>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "hostPath": {"path": "/tmp/nothing"},
            "claimRef": claim,
        },
    })
}

/// Creates an unclaimed volume, as an administrator would.
pub(super) fn create_volume(plane: &ControlPlane, name: &str, class: &str) {
    post(plane, VOLUMES, &volume(name, class, None));
    let path = format!("{VOLUMES}/{name}/status");
    send(plane, Method::Patch, &path, Some(&json!({"status": {"phase": "Available"}})));
}

fn claims(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims")
}

/// Creates a claim and a pod of the same name that uses it.
pub(super) fn claim_with(plane: &ControlPlane, namespace: &str, class: &str, mut pod: Value) {
    let name = pod["metadata"]["name"].clone();
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    post(plane, &claims(namespace), &claim);
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
    post(plane, &pods(namespace), &pod);
}

/// Acts as volume controller and provisioner: binds the claim to the volume that the scheduler
/// chose, or to a new one for the selected node.
pub(super) fn complete_claim(
    plane: &ControlPlane,
    namespace: &str,
    name: &str,
    class: &str,
    chosen: Option<&str>,
) {
    let path = format!("{}/{name}", claims(namespace));
    let volume_name = match chosen {
        Some(chosen) => {
            eventually("the volume is bound to the claim", || {
                let volume = get(plane, &format!("{VOLUMES}/{chosen}"));
                (volume["spec"]["claimRef"]["name"] == *name).then_some(())
            });
            chosen.to_owned()
        }
        None => {
            let claim = eventually("a node is chosen for the claim", || {
                let claim = get(plane, &path);
                let node = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
                node.is_string().then_some(claim)
            });
            let reference = json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": name,
                "uid": claim["metadata"]["uid"],
            });
            let made = format!("made-for-{namespace}-{name}");
            post(plane, VOLUMES, &volume(&made, class, Some(&reference)));
            made
        }
    };
    let annotations = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let bound = json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume_name}});
    send(plane, Method::Patch, &path, Some(&bound));
    send(plane, Method::Patch, &format!("{path}/status"), Some(&json!({"status": {"phase": "Bound"}})));
}

/// Creates two devices of all nodes, a claim for one, and a pod of the same name that uses the
/// claim and requests the other one as an extended resource. `class` is the name of their class.
pub(super) fn device_with(plane: &ControlPlane, namespace: &str, class: &str, mut pod: Value) {
    let name = pod["metadata"]["name"].clone();
    let metadata = json!({ "name": class });
    let selector = format!("device.driver == '{class}'");
    let object = |kind: &str, metadata: &Value, spec: Value| json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec});
    let spec = json!({"selectors": [{"cel": {"expression": selector}}]});
    post(plane, &format!("{DEVICES}/deviceclasses"), &object("DeviceClass", &metadata, spec));
    let pool = json!({"name": "all", "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": class, "pool": pool, "allNodes": true, "devices": [{"name": "one"}, {"name": "two"}]});
    post(plane, &format!("{DEVICES}/resourceslices"), &object("ResourceSlice", &metadata, spec));
    let requests = json!([{"name": "one", "exactly": {"deviceClassName": class}}]);
    let claim = object("ResourceClaim", &json!({ "name": name }), json!({"devices": {"requests": requests}}));
    post(plane, &format!("{DEVICES}/namespaces/{namespace}/resourceclaims"), &claim);
    pod["spec"]["resourceClaims"] = json!([{"name": "one", "resourceClaimName": name}]);
    let resource = format!("deviceclass.resource.kubernetes.io/{class}");
    for list in ["requests", "limits"] {
        pod["spec"]["containers"][0]["resources"][list][&resource] = json!("1");
    }
    post(plane, &pods(namespace), &pod);
}

/// Creates a priority class for preemption victims.
pub(super) fn create_priority(plane: &ControlPlane, name: &str) {
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1000,
    });
    post(plane, PRIORITY_CLASSES, &class);
}

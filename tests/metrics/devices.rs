//! The part of the scenario with devices.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Cluster, PodBuilder, eventually};

/// The driver whose device has to get ready.
pub(super) const SLOW: &str = "slow.example.com";
const FAST: &str = "fast.example.com";
/// The time limit for an allocation on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
const CLAIM: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/slow";

/// A node gets devices. One pod waits until its device is ready, one has a claim created for it,
/// and one waits for a device that does not exist.
pub(super) fn use_devices(cluster: &Cluster, node: &str, pod: impl Fn(&str) -> PodBuilder) {
    let slow =
        json!({ "name": "device", "bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"] });
    for (driver, device, extended) in
        [(SLOW, slow, None), (FAST, json!({ "name": "device" }), Some("example.com/device"))]
    {
        let selector = json!({ "cel": { "expression": format!("device.driver == \"{driver}\"") } });
        let class = json!({ "selectors": [selector], "extendedResourceName": extended });
        cluster.create(&object("DeviceClass", driver, class));
        cluster.create(&object(
            "ResourceSlice",
            driver,
            json!({
                "driver": driver,
                "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
                "nodeName": node,
                "devices": [device],
            }),
        ));
    }
    for name in ["slow", "none-left"] {
        let request = json!({ "name": "one", "exactly": { "deviceClassName": SLOW } });
        cluster.create(&object("ResourceClaim", name, json!({ "devices": { "requests": [request] } })));
    }
    let with_claim = |name: &str, claim: &str| {
        pod(name).spec("resourceClaims", json!([{ "name": "one", "resourceClaimName": claim }])).build()
    };
    cluster.create(&with_claim("slow", "slow"));
    let results = || Some(cluster.get(CLAIM)["status"]["allocation"]["devices"]["results"][0].clone());
    let allocated = || results().filter(|result| !result.is_null());
    let result = eventually("the claim is allocated", PATIENCE, allocated, || cluster.get(CLAIM).to_string());
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"
    });
    let status = json!({
        "driver": result["driver"], "pool": result["pool"], "device": result["device"], "conditions": [ready]
    });
    cluster.patch(&format!("{CLAIM}/status"), &json!({ "status": { "devices": [status] } }));
    cluster.bound_node("default", "slow");
    cluster.create(&pod("extended").asking("example.com/device", "1").build());
    cluster.bound_node("default", "extended");
    cluster.create(&with_claim("none-left", "none-left"));
    cluster.condition("default", "none-left", "Unschedulable");
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec
    });
    if kind == "ResourceClaim" {
        object["metadata"]["namespace"] = json!("default");
    }
    object
}

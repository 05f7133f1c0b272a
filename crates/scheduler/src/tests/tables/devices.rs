//! The devices of histories, and the claims for them.

use serde_json::{Value, json};
use supercargo_codec::ObjectKind;
use supercargo_framework::Text;
use supercargo_framework::objects::{Object, ObjectBody as _, ResourceClaim, resources};
use supercargo_framework::pod::RareSpec;
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
use supercargo_framework::testing::PodBuilder;

const DRIVER: &str = "gpu.example.com";

/// The number of claims. Several pods use each.
pub(super) const CLAIMS: usize = 3;

/// The pod with a claim.
pub(super) fn claiming(pod: PodBuilder, claim: usize) -> PodBuilder {
    let source = PodClaimSource::Claim(claim_name(claim).as_str().into());
    let claim = PodClaim { name: "devices".into(), source };
    pod.with_spec(|spec| {
        spec.rare = RareSpec { resource_claims: [claim].into(), ..RareSpec::default() }.boxed();
    })
}

fn claim_name(number: usize) -> String {
    format!("claim{number}")
}

fn decoded(resource: &Text, value: &Value) -> Object {
    let kind = ObjectKind::of(resource).expect("the kind is known");
    kind.decode(value.to_string().as_bytes()).expect("the object is valid")
}

/// The class of all devices that are not broken.
pub(super) fn class(selects_all: bool) -> Object {
    let expression = if selects_all { "true" } else { "!device.attributes['gpu.example.com'].broken" };
    let value = json!({
        "metadata": { "name": "gpu", "uid": "gpu" },
        "spec": { "selectors": [{ "cel": { "expression": expression } }] },
    });
    decoded(&resources::DEVICE_CLASS, &value)
}

/// The devices of a node. The last one is broken.
pub(super) fn slice(node: usize, devices: usize) -> Object {
    let name = format!("n{node}");
    let devices: Vec<Value> = (1..=devices)
        .map(|number| {
            let broken = json!({ "broken": { "bool": number == devices } });
            json!({ "name": format!("d{number}"), "attributes": broken })
        })
        .collect();
    let pool = json!({ "name": name, "generation": 1, "resourceSliceCount": 1 });
    let spec = json!({ "driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices });
    decoded(&resources::RESOURCE_SLICE, &json!({ "metadata": { "name": name, "uid": name }, "spec": spec }))
}

/// A claim for one or two devices. `node` is where another scheduler has given it a device.
pub(super) fn claim(number: usize, version: usize, node: Option<usize>) -> Object {
    let name = claim_name(number);
    let exactly =
        json!({ "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": number % 2 + 1 });
    let metadata =
        json!({ "name": name, "namespace": "default", "uid": name, "resourceVersion": version.to_string() });
    let mut value = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata,
        "spec": { "devices": { "requests": [{ "name": "gpu", "exactly": exactly }] } },
    });
    if let Some(node) = node {
        let node = format!("n{node}");
        let result = json!({ "request": "gpu", "driver": DRIVER, "pool": node, "device": "d1" });
        let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
        value["status"]["allocation"] = json!({
            "devices": { "results": [result] }, "nodeSelector": { "nodeSelectorTerms": [{ "matchFields": [field] }] },
        });
    }
    decoded(&resources::RESOURCE_CLAIM, &value)
}

/// What PreBind writes to a claim whose allocation is pending, as the informer shows it.
pub(super) fn written(pending: &Object, version: usize) -> Option<Object> {
    let claim = ResourceClaim::of(&pending.body)?;
    let mut value = Value::clone(&claim.raw);
    value["status"]["allocation"] = Value::clone(&claim.allocation.as_ref()?.raw);
    Some(replaced(value, version))
}

/// The claim of a request, as the informer shows it.
pub(super) fn replaced(mut claim: Value, version: usize) -> Object {
    claim["metadata"]["resourceVersion"] = json!(version.to_string());
    decoded(&resources::RESOURCE_CLAIM, &claim)
}

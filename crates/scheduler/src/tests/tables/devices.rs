//! The devices of histories, and the claims for them.

use serde_json::{Value, json};
use supercargo_codec::ObjectKind;
use supercargo_framework::Text;
use supercargo_framework::objects::{Object, ObjectBody as _, ResourceClaim, resources};
use supercargo_framework::pod::{ExtendedResource, RareSpec};
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
use supercargo_framework::testing::PodBuilder;

use super::templates::GPU;

const DRIVER: &str = "gpu.example.com";

/// The number of claims that several pods use.
pub(super) const CLAIMS: usize = 3;

/// The pod with one of these claims.
pub(super) fn claiming(pod: PodBuilder, claim: usize) -> PodBuilder {
    claiming_named(pod, &format!("claim{claim}"))
}

/// The pod with the claim of this name.
pub(super) fn claiming_named(pod: PodBuilder, claim: &str) -> PodBuilder {
    let source = PodClaimSource::Claim(claim.into());
    let claim = PodClaim { name: "devices".into(), source };
    pod.with_spec(|spec| {
        spec.rare = RareSpec { resource_claims: [claim].into(), ..RareSpec::default() }.boxed();
    })
}

/// The pod with a device plugin's resource, which the class may provide.
pub(super) fn requesting(pod: PodBuilder) -> PodBuilder {
    let request = ExtendedResource {
        container: "c".into(),
        resource: GPU.into(),
        place: 0,
        resource_place: 0,
        count: 1,
        is_short_lived: false,
    };
    pod.request(GPU, "1")
        .with_spec(|spec| spec.rare.get_or_insert_default().extended_resources = [request].into())
}

fn decoded(resource: &Text, value: &Value) -> Object {
    let kind = ObjectKind::of(resource).expect("the kind is known");
    kind.decode(value.to_string().as_bytes()).expect("the object is valid")
}

/// The class of all devices that are not broken, or of all devices, which provide an extended
/// resource then.
pub(super) fn class(selects_all: bool) -> Object {
    let expression = if selects_all { "true" } else { "!device.attributes['gpu.example.com'].broken" };
    let value = json!({
        "metadata": { "name": "gpu", "uid": "gpu" },
        "spec": {
            "selectors": [{ "cel": { "expression": expression } }],
            "extendedResourceName": selects_all.then_some(GPU),
        },
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

/// One of the claims that several pods use. `node` is where another scheduler has given it a
/// device.
pub(super) fn claim(number: usize, version: usize, node: Option<usize>) -> Object {
    claim_named(&format!("claim{number}"), number + 1, version, node)
}

/// A claim for as many devices.
pub(super) fn claim_named(name: &str, count: usize, version: usize, node: Option<usize>) -> Object {
    let exactly = json!({ "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count });
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

/// What PreBind writes to a claim whose allocation is pending, as the informer shows it. A claim
/// for extended resources gets a name.
pub(super) fn written(pending: &Object, version: usize) -> Option<Object> {
    let claim = ResourceClaim::of(&pending.body)?;
    let mut value = Value::clone(&claim.raw);
    value["status"]["allocation"] = Value::clone(&claim.allocation.as_ref()?.raw);
    if pending.is_extended_resource_claim() {
        let name = format!("extended-{version}");
        value["metadata"]["uid"] = json!(name);
        value["metadata"]["name"] = json!(name);
    }
    Some(replaced(value, version))
}

/// The claim of a request, as the informer shows it.
pub(super) fn replaced(mut claim: Value, version: usize) -> Object {
    claim["metadata"]["resourceVersion"] = json!(version.to_string());
    decoded(&resources::RESOURCE_CLAIM, &claim)
}

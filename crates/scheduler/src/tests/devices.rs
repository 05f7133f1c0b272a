//! The devices of histories, and the claims for them.

use std::sync::Arc;

use serde_json::{Value, json};
use supercargo_codec::ObjectKind;
use supercargo_framework::objects::{
    AllocationResult, Body, ClaimAllocation, DeviceId, DeviceTaintRule, Object, ObjectBody as _,
    ResourceClaim, resources,
};
use supercargo_framework::pod::{ExtendedResource, RareSpec};
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
use supercargo_framework::testing::PodBuilder;
use supercargo_framework::{Text, Timestamp};

/// The resource that only some nodes offer, and that the class may provide.
pub(super) const GPU: &str = "example.com/gpu";
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
    let device =
        |number: usize| json!({ "name": format!("d{number}"), "attributes": broken(number == devices) });
    slice_of(node, (1..=devices).map(device).collect())
}

/// Such devices, one that can be shared, and one that its driver has to prepare.
pub(super) fn any_slice(node: usize, version: usize) -> Object {
    let mut slice = slice(node, 1 + version % 3);
    let special = [
        json!({
            "name": "shared", "attributes": broken(false),
            "allowMultipleAllocations": true, "capacity": { "memory": { "value": "4Gi" } },
        }),
        json!({
            "name": "slow", "attributes": broken(false),
            "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"],
        }),
    ];
    let special = special.into_iter().enumerate().filter(|(number, _)| version >> (number + 1) & 1 == 1);
    let special = slice_of(node, special.map(|(_, device)| device).collect());
    if let (Body::ResourceSlice(slice), Body::ResourceSlice(special)) = (&mut slice.body, special.body) {
        slice.devices = slice.devices.iter().cloned().chain(special.devices).collect();
    }
    slice
}

fn broken(is_broken: bool) -> Value {
    json!({ "broken": { "bool": is_broken } })
}

fn slice_of(node: usize, devices: Vec<Value>) -> Object {
    let name = format!("n{node}");
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

/// A pod's own claim: for a device, for two, or for a part of one. Most tolerate taints.
pub(super) fn own_claim(name: &str, version: usize) -> Object {
    let claim = claim_named(name, 1, version, None);
    let mut value = ResourceClaim::of(&claim.body).map(|claim| Value::clone(&claim.raw)).unwrap_or_default();
    let request = &mut value["spec"]["devices"]["requests"][0]["exactly"];
    let shape = version / 2 % 4;
    match shape {
        1 => request["count"] = json!(2),
        2 => request["capacity"] = json!({ "requests": { "memory": "2Gi" } }),
        _ => {}
    }
    if shape > 0 {
        request["tolerations"] = json!([{ "operator": "Exists" }]);
    }
    replaced(value, version)
}

/// A rule that taints all devices of a node, or the first one of every node.
pub(super) fn taint_rule(node: usize, of_node: bool) -> Object {
    let selector = if of_node { json!({ "pool": format!("n{node}") }) } else { json!({ "device": "d1" }) };
    let name = format!("rule{}", node % 2);
    let taint = json!({ "key": "example.com/degraded", "effect": "NoSchedule" });
    let value = json!({
        "metadata": { "name": name, "uid": name }, "spec": { "deviceSelector": selector, "taint": taint },
    });
    decoded(&resources::DEVICE_TAINT_RULE, &value)
}

/// Whether a rule taints a device.
pub(super) fn taints(rule: &Object, device: &DeviceId) -> bool {
    let Body::DeviceTaintRule(DeviceTaintRule { selector: Some(selector), .. }) = &rule.body else {
        return false;
    };
    let selects = |wanted: &Option<Arc<str>>, name| wanted.as_ref().is_none_or(|wanted| wanted == name);
    selects(&selector.pool, &device.pool) && selects(&selector.device, &device.device)
}

/// The allocation of a claim.
pub(super) fn allocation(claim: &Object) -> Option<&ClaimAllocation> {
    ResourceClaim::of(&claim.body)?.allocation.as_ref()
}

/// Whether a driver has to prepare a device of the allocation.
pub(super) fn has_conditions(allocation: &ClaimAllocation) -> bool {
    allocation.results.iter().any(|result| !result.binding_conditions.is_empty())
}

/// The claim after the drivers of its devices have reported; `None` if it waits for none.
pub(super) fn reported(claim: &Object, version: usize, condition: &str) -> Option<Object> {
    let body = ResourceClaim::of(&claim.body)?;
    let results = body.allocation.as_ref()?.results.iter();
    let devices: Vec<Value> = results
        .filter(|result| !result.binding_conditions.is_empty())
        .map(|AllocationResult { device, .. }| {
            let conditions = json!([{ "type": condition, "status": "True" }]);
            json!({ "driver": &*device.driver, "pool": &*device.pool, "device": &*device.device, "conditions": conditions })
        })
        .collect();
    if devices.is_empty() {
        return None;
    }
    let mut value = Value::clone(&body.raw);
    value["status"]["devices"] = devices.into();
    Some(replaced(value, version))
}

/// What PreBind writes to a claim whose allocation is pending, as the informer shows it. A claim
/// for extended resources gets a name.
pub(super) fn written(pending: &Object, version: usize, now: Timestamp) -> Option<Object> {
    let claim = ResourceClaim::of(&pending.body)?;
    let allocation = claim.allocation.as_ref()?;
    let mut value = Value::clone(&claim.raw);
    value["status"]["allocation"] = Value::clone(&allocation.raw);
    if has_conditions(allocation) {
        value["status"]["allocation"]["allocationTimestamp"] = json!(now.to_rfc3339());
    }
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

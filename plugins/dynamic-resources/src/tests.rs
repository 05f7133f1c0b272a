//! What scenarios cannot show: conflicts of writes, and the following of changes. Scenarios
//! (`tests/parity/scenarios/resource-claims*`, `devices*`, `device-selectors`) show the rest.

mod cached_answers;
mod extended;
mod groups;
mod known_devices;
mod pre_bind;
mod search;

use std::sync::Arc;

use serde_json::{Map, Value, json};
use supercargo_framework::objects::{
    AllocationResult, Body, ClaimAllocation, ClaimConsumer, ClaimRequest, Device, DeviceClass, DeviceId,
    DevicePlace, DeviceRequest, Object, RequestChoice, ResourceClaim, ResourceSlice, resources,
};
use supercargo_framework::testing::object;

const DRIVER: &str = "gpu.example.com";

/// A claim `default/<name>` for a device.
fn claim(name: &str, change: impl FnOnce(&mut ResourceClaim)) -> Object {
    let request = DeviceRequest { class: "gpu".into(), ..DeviceRequest::default() };
    let request = ClaimRequest { name: "r".into(), choice: RequestChoice::Exactly(request) };
    let raw = json!({"metadata": {"name": name, "namespace": "default", "resourceVersion": "1"}, "spec": {}});
    let mut body =
        ResourceClaim { requests: Box::new([request]), raw: Arc::new(raw), ..ResourceClaim::default() };
    change(&mut body);
    object(&resources::RESOURCE_CLAIM, &format!("default/{name}"), Body::ResourceClaim(body))
}

/// A device of the pool `n`.
fn allocation(device: &str) -> ClaimAllocation {
    let id = DeviceId { driver: DRIVER.into(), pool: "n".into(), device: device.into() };
    let result = AllocationResult { request: "r".into(), device: id, ..AllocationResult::default() };
    let raw = json!({"devices": {"results": [{"request": "r", "device": device}]}});
    ClaimAllocation { results: Box::new([result]), raw: Arc::new(raw), ..ClaimAllocation::default() }
}

fn class() -> Object {
    object(&resources::DEVICE_CLASS, "gpu", Body::DeviceClass(DeviceClass::default()))
}

/// A slice of the pool `n` on node `n`.
fn slice(name: &str, devices: &[&str], slices: i64) -> Object {
    let devices = devices.iter().map(|name| Device { name: (*name).into(), ..Device::default() });
    let body = ResourceSlice {
        driver: DRIVER.into(),
        pool: "n".into(),
        slice_count: slices,
        place: DevicePlace::Node("n".into()),
        devices: devices.collect(),
        ..ResourceSlice::default()
    };
    object(&resources::RESOURCE_SLICE, name, Body::ResourceSlice(body))
}

fn consumer(uid: &str) -> ClaimConsumer {
    ClaimConsumer::of_pod(uid.into(), uid.into())
}

fn merged(mut object: Value, fields: Value) -> Value {
    let (Value::Object(object_fields), Value::Object(fields)) = (&mut object, fields) else {
        unreachable!("both are objects")
    };
    object_fields.extend(Map::from_iter(fields));
    object
}

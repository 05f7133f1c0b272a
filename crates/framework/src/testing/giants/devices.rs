//! ResourceClaims of giants, with their devices.

use serde_json::json;

use super::claims::{lacks, node_term};
use super::{HOSTNAME, key};
use crate::affinity::NodeSelectorTerm;
use crate::objects::{
    AllocationResult, Body, ClaimAllocation, ClaimRequest, Device, DeviceClass, DeviceId, DeviceNodeSelector,
    DevicePlace, DeviceRequest, Object, RequestChoice, ResourceClaim, ResourceSlice, resources,
};
use crate::testing::object;

/// A class with every device.
const CLASS: &str = "any";

/// A claim that is allocated for many nodes, none of which exists.
pub(super) fn allocated(terms: usize) -> Vec<Object> {
    let terms = (0..terms).map(|i| node_term(HOSTNAME, &key(i))).collect();
    let result = AllocationResult {
        request: "r".into(),
        device: DeviceId { driver: "d".into(), pool: "p".into(), device: "d".into() },
        ..AllocationResult::default()
    };
    let allocation = ClaimAllocation {
        results: [result].into(),
        node_selector: Some(DeviceNodeSelector { terms, ..DeviceNodeSelector::default() }),
        ..ClaimAllocation::default()
    };
    vec![class(), claim(Some(allocation))]
}

/// A claim for more devices than a slice has, which is for nodes with many requirements.
pub(super) fn sliced(requirements: usize) -> Vec<Object> {
    let term = NodeSelectorTerm::parse((0..requirements).map(lacks).collect(), vec![]);
    let slice = ResourceSlice {
        driver: "d".into(),
        pool: "p".into(),
        generation: 1,
        slice_count: 1,
        place: DevicePlace::Selector(DeviceNodeSelector {
            terms: [term].into(),
            ..DeviceNodeSelector::default()
        }),
        devices: [Device { name: "d".into(), ..Device::default() }].into(),
        ..ResourceSlice::default()
    };
    vec![class(), object(&resources::RESOURCE_SLICE, "s", Body::ResourceSlice(slice)), claim(None)]
}

fn class() -> Object {
    object(&resources::DEVICE_CLASS, CLASS, Body::DeviceClass(DeviceClass::default()))
}

fn claim(allocation: Option<ClaimAllocation>) -> Object {
    let name = key(0);
    let request = |name: &str| ClaimRequest {
        name: name.into(),
        choice: RequestChoice::Exactly(DeviceRequest { class: CLASS.into(), ..DeviceRequest::default() }),
    };
    let body = ResourceClaim {
        requests: [request("r"), request("s")].into(),
        allocation,
        raw: json!({ "metadata": { "namespace": "default", "name": name, "resourceVersion": "1" } }).into(),
        ..ResourceClaim::default()
    };
    object(&resources::RESOURCE_CLAIM, &format!("default/{name}"), Body::ResourceClaim(body))
}

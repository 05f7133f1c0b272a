//! ResourceClaims of giants, with their devices.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{HOSTNAME, cluster_object, is_in, key, lacks, list, namespaced, node_term, with};
use crate::objects::{
    Body, ClaimRequest, Device, DeviceAttribute, DeviceClass, DeviceCount, DevicePlace, DeviceRequest,
    Object, RequestChoice, ResourceClaim, ResourceSlice, resources,
};
use crate::pod::{PodInfo, RareSpec};
use crate::pod_claims::{PodClaim, PodClaimSource};
use crate::testing::{object, pod};

const API: &str = "resource.k8s.io/v1";
/// The devices of a node.
const DEVICES: usize = 16;
/// The attribute in which devices differ.
const ID: &str = "device.attributes.d.id";
/// A class with every device.
const CLASS: &str = "any";

/// A claim that is allocated for many nodes, none of which exists.
pub(super) fn allocated(terms: usize) -> Vec<Value> {
    let terms = list(terms, |i| node_term(is_in(HOSTNAME, json!([key(i)]))));
    let results = json!([{ "request": "r", "driver": "d", "pool": "p", "device": "d" }]);
    let allocation =
        json!({ "devices": { "results": results }, "nodeSelector": { "nodeSelectorTerms": terms } });
    vec![any_class(), with(claim(), "status", json!({ "allocation": allocation }))]
}

/// A claim for more devices than a slice has, which is for nodes with many requirements.
pub(super) fn sliced(requirements: usize) -> Vec<Value> {
    let term = json!({ "matchExpressions": list(requirements, |i| lacks(&key(i))) });
    let spec = json!({
        "driver": "d", "pool": { "name": "p", "generation": 1, "resourceSliceCount": 1 },
        "nodeSelector": { "nodeSelectorTerms": [term] }, "devices": [{ "name": "d" }],
    });
    vec![any_class(), with(cluster_object(API, "ResourceSlice", "s"), "spec", spec), claim()]
}

fn any_class() -> Value {
    with(cluster_object(API, "DeviceClass", CLASS), "spec", json!({}))
}

fn claim() -> Value {
    let request = |name| {
        let exactly = json!({ "deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1 });
        json!({ "name": name, "exactly": exactly })
    };
    let spec = json!({ "devices": { "requests": [request("r"), request("s")] } });
    with(namespaced(API, "ResourceClaim", "default", &key(0)), "spec", spec)
}

/// Small claims whose allocation takes very long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hostile {
    /// A selector that matches no device, at nearly the cost that one evaluation may have.
    Selector,
    /// A small selector, of which each device takes an evaluation.
    Distinct,
    /// A claim for half of a node's devices, and one for more than the other half.
    Pair,
    /// A claim for half of a node's devices, and one for a device that does not exist.
    Hopeless,
}

impl Hostile {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Selector, Self::Distinct, Self::Pair, Self::Hopeless];

    /// The devices of these nodes, and the claims for them. No two devices look alike.
    pub fn objects(self, nodes: usize) -> Vec<Object> {
        let device = |node, i| {
            let id = DeviceAttribute::Int((node * DEVICES + i) as i64);
            Device { name: key(i).into(), attributes: [("id".into(), id)].into(), ..Device::default() }
        };
        let slices = (0..nodes).map(|number| {
            let node: Arc<str> = format!("node-{number}").into();
            let slice = ResourceSlice {
                driver: "d".into(),
                pool: Arc::clone(&node),
                generation: 1,
                slice_count: 1,
                place: DevicePlace::Node(Arc::clone(&node)),
                devices: (0..DEVICES).map(|i| device(number, i)).collect(),
                ..ResourceSlice::default()
            };
            object(&resources::RESOURCE_SLICE, &node, Body::ResourceSlice(slice))
        });
        let claims = self.requests().into_iter().enumerate().map(|(i, request)| {
            let requests =
                [ClaimRequest { name: "r".into(), choice: RequestChoice::Exactly(request) }].into();
            let body = ResourceClaim { requests, ..ResourceClaim::default() };
            object(&resources::RESOURCE_CLAIM, &format!("default/{}", key(i)), Body::ResourceClaim(body))
        });
        slices.chain(claims).chain([class()]).collect()
    }

    /// A pod `default/<name>` with the claims.
    pub fn pod(self, name: &str) -> PodInfo {
        let claims = (0..self.requests().len())
            .map(|i| PodClaim { name: key(i).into(), source: PodClaimSource::Claim(key(i).into()) });
        let rare = RareSpec { resource_claims: claims.collect(), ..RareSpec::default() };
        pod(name).with_spec(|spec| spec.rare = Some(Box::new(rare))).build()
    }

    fn requests(self) -> Vec<DeviceRequest> {
        let request = |count, selector: Option<Arc<str>>| DeviceRequest {
            class: CLASS.into(),
            count: DeviceCount::Exact(count),
            selectors: selector.map(Some).into_iter().collect(),
            ..DeviceRequest::default()
        };
        match self {
            Self::Selector => {
                let list = |length: usize| format!("{:?}", (0..length).collect::<Vec<_>>());
                let (many, few) = (list(99), list(4));
                let selector =
                    format!("{ID} < 0 || !({many}.all(a, {many}.all(b, {few}.all(c, a + b + c >= 0))))");
                vec![request(1, Some(selector.into()))]
            }
            Self::Distinct => {
                let selector = format!(r#"{ID} < 0 || quantity("1Gi").isLessThan(quantity("1"))"#);
                vec![request(1, Some(selector.into()))]
            }
            Self::Pair => vec![request(8, None), request(9, None)],
            Self::Hopeless => vec![request(8, None), request(1, Some("false".into()))],
        }
    }
}

fn class() -> Object {
    object(&resources::DEVICE_CLASS, CLASS, Body::DeviceClass(DeviceClass::default()))
}

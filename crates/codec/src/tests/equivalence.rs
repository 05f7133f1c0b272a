//! Slim and full decoding give the same records.

use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use supercargo_framework::node::NodeRecord;
use supercargo_framework::pod::PodInfo;

use super::{DECLARED, NODE, PENDING_POD, RUNNING_POD, TYPICAL_POD, full, generate, node_kind, pod_kind};

fn slim_pod(json: &[u8]) -> PodInfo {
    pod_kind().decode(json).unwrap()
}

fn full_pod(json: &[u8]) -> PodInfo {
    full::pod(&serde_json::from_slice::<Pod>(json).unwrap(), &DECLARED)
}

fn full_node(json: &[u8]) -> NodeRecord {
    full::node(&serde_json::from_slice::<Node>(json).unwrap(), &DECLARED)
}

/// Maps that users fill: adding a key would change their meaning.
const MAPS: [&str; 10] = [
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "requests",
    "limits",
    "overhead",
    "allocatable",
    "capacity",
    "allocatedResources",
];
/// Fields that k8s-openapi requires or that identify the object.
const IDENTITY: [&str; 6] = ["apiVersion", "kind", "metadata", "namespace", "name", "uid"];

/// What a newer server may send: unknown fields, and `null` for a field.
fn add_noise(value: &mut Value, dice: &mut impl Iterator<Item = u8>) {
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(|element| add_noise(element, dice)),
        Value::Object(fields) => {
            add_noise_to_fields(fields, dice);
            if dice.next() < Some(40) {
                fields.insert("fromTheFuture".into(), json!({"nested": [1, "two", null, {"three": 3.5}]}));
            }
        }
        _ => {}
    }
}

fn add_noise_to_fields(fields: &mut Map<String, Value>, dice: &mut impl Iterator<Item = u8>) {
    for (name, field) in fields {
        if !IDENTITY.contains(&&**name) && dice.next() < Some(10) {
            *field = Value::Null;
        }
        if !MAPS.contains(&&**name) {
            add_noise(field, dice);
        }
    }
}

fn noisy(object: &impl serde::Serialize, seed: u64) -> Vec<u8> {
    let mut value = serde_json::to_value(object).unwrap();
    add_noise(&mut value, &mut dice(seed));
    serde_json::to_vec(&value).unwrap()
}

/// Bytes without a pattern (Knuth's linear congruential generator).
fn dice(seed: u64) -> impl Iterator<Item = u8> {
    let next = |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    std::iter::successors(Some(seed), next).map(|state| (state >> 56) as u8)
}

#[test]
fn fixtures_decode_alike_by_slim_and_full_types() {
    for json in [TYPICAL_POD, RUNNING_POD, PENDING_POD] {
        assert_eq!(slim_pod(json), full_pod(json));
    }
    assert_eq!(node_kind().decode(NODE).unwrap(), full_node(NODE));
}

proptest! {
    #[test]
    fn pods_decode_alike_by_slim_and_full_types(pod in generate::pod(), seed in any::<u64>()) {
        let plain = serde_json::to_vec(&pod).unwrap();
        prop_assert_eq!(slim_pod(&plain), full_pod(&plain));
        let noisy = noisy(&pod, seed);
        prop_assert_eq!(slim_pod(&noisy), full_pod(&noisy));
    }

    #[test]
    fn nodes_decode_alike_by_slim_and_full_types(node in generate::node(), seed in any::<u64>()) {
        let plain = serde_json::to_vec(&node).unwrap();
        prop_assert_eq!(node_kind().decode(&plain).unwrap(), full_node(&plain));
        let noisy = noisy(&node, seed);
        prop_assert_eq!(node_kind().decode(&noisy).unwrap(), full_node(&noisy));
    }

    #[test]
    fn claim_statuses_are_equal_exactly_when_the_api_has_them_equal(a in generate::claims(), b in generate::claims()) {
        let decoded = |claims: &generate::Claims| {
            let status = json!({"resourceClaimStatuses": claims.0, "extendedResourceClaimStatus": claims.1});
            pod_kind().decode(&super::pod_json(json!({}), status)).unwrap().status.claims.clone()
        };
        // The API does not distinguish absent and empty lists.
        let normal = |claims: &generate::Claims| (claims.0.clone().unwrap_or_default(), claims.1.clone());
        prop_assert_eq!(decoded(&a) == decoded(&b), normal(&a) == normal(&b));
    }
}

//! Objects with one enormous list each are decoded alike from both encodings, at a cost that grows
//! as the list does.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use supercargo_codec::{NodeKind, ObjectKind, PodKind};
use supercargo_framework::steps;
use supercargo_framework::testing::giants::{NodeList, PodList};

/// The count of steps is that of the process, so one test runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The steps may double with the list, and those of a sorted lookup grow a little.
const MOST_GROWTH: f64 = 2.6;

/// Enough that interners sweep at both sizes.
const ITEMS: usize = 2400;

const NO_ANNOTATIONS: [&str; 0] = [];

fn protobuf(object: &Value) -> Vec<u8> {
    supercargo_apiserver::protobuf_message(object).expect("the schema has its fields").to_vec()
}

/// The object, decoded from protobuf and from JSON, and the steps of each.
fn decoded<T: Debug>(
    object: &Value,
    from_protobuf: impl Fn(&[u8]) -> T,
    from_json: impl Fn(&[u8]) -> T,
) -> [(T, u64); 2] {
    let steps_of = |decode: &dyn Fn() -> T| {
        let before = steps::taken();
        let decoded = decode();
        (decoded, steps::taken() - before)
    };
    let (message, text) = (protobuf(object), object.to_string());
    [steps_of(&|| from_protobuf(&message)), steps_of(&|| from_json(text.as_bytes()))]
}

fn decoded_pod(list: PodList, items: usize) -> [(String, u64); 2] {
    let shown = |pod| format!("{pod:?}");
    decoded(
        &list.pod("giant", items),
        |bytes| shown(PodKind::new(NO_ANNOTATIONS).decode_protobuf(bytes).expect("it is valid")),
        |bytes| shown(PodKind::new(NO_ANNOTATIONS).decode(bytes).expect("it is valid")),
    )
}

fn decoded_node(list: NodeList, items: usize) -> [(String, u64); 2] {
    let shown = |node| format!("{node:?}");
    decoded(
        &list.node("giant", items),
        |bytes| shown(NodeKind::new(NO_ANNOTATIONS).decode_protobuf(bytes).expect("it is valid")),
        |bytes| shown(NodeKind::new(NO_ANNOTATIONS).decode(bytes).expect("it is valid")),
    )
}

fn check(list: &impl Debug, decoded: impl Fn(usize) -> [(String, u64); 2]) {
    let [(from_protobuf, protobuf_steps), (from_json, json_steps)] = decoded(ITEMS);
    assert_eq!(from_protobuf, from_json, "{list:?}");
    let [(_, protobuf_twice), (_, json_twice)] = decoded(2 * ITEMS);
    let growths = [(protobuf_twice, protobuf_steps), (json_twice, json_steps)];
    for growth in growths.map(|(twice, once)| twice as f64 / once as f64) {
        assert!((1.5..MOST_GROWTH).contains(&growth), "{list:?}: {growth}");
    }
}

/// An object with this many of everything that it can have many of.
fn giant_object(resource: &str, items: usize) -> Value {
    let list = |item: fn(usize) -> Value| (0..items).map(item).collect::<Value>();
    let map = |value: Value| (0..items).map(|i| (format!("k{i}"), value.clone())).collect::<Value>();
    let text = |i: usize| json!(i.to_string());
    let requirements = || list(|i| json!({"key": format!("k{i}"), "operator": "DoesNotExist"}));
    let selector = || json!({"matchLabels": map(json!("")), "matchExpressions": requirements()});
    let terms = || list(|i| json!({"matchExpressions": [{"key": format!("k{i}"), "operator": "Exists"}]}));
    let mut object = match resource {
        "resource.k8s.io/ResourceClaim" => json!({
            "spec": {"devices": {
                "requests": list(|i| json!({"name": i.to_string(), "exactly": {"deviceClassName": "c"}})),
                "constraints": [{"requests": list(text), "matchAttribute": "a"}],
            }},
            "status": {
                "allocation": {
                    "devices": {"results": list(|i| json!({"device": i.to_string()}))},
                    "nodeSelector": {"nodeSelectorTerms": terms()},
                },
                "reservedFor": list(|i| json!({"uid": i.to_string()})),
            },
        }),
        "resource.k8s.io/ResourceSlice" => json!({"spec": {
            "devices": list(|i| json!({"name": i.to_string()})),
            "sharedCounters": [{"name": "s", "counters": map(json!({"value": "1"}))}],
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": requirements()}]},
        }}),
        "resource.k8s.io/DeviceClass" => {
            json!({"spec": {"selectors": list(|i| json!({"cel": {"expression": i.to_string()}}))}})
        }
        "Service" => json!({"spec": {"selector": map(json!(""))}}),
        "apps/ReplicaSet" => json!({"spec": {"selector": selector()}}),
        "policy/PodDisruptionBudget" => json!({
            "spec": {"selector": selector()},
            "status": {"disruptedPods": map(json!("2026-01-01T00:00:00Z"))},
        }),
        "PersistentVolume" => json!({"spec": {
            "accessModes": list(text),
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms()}},
        }}),
        "PersistentVolumeClaim" => json!({"spec": {"accessModes": list(text), "selector": selector()}}),
        "storage.k8s.io/StorageClass" => json!({
            "allowedTopologies":
                list(|i| json!({"matchLabelExpressions": [{"key": format!("k{i}"), "values": ["a"]}]})),
        }),
        "storage.k8s.io/CSIStorageCapacity" => json!({"nodeTopology": selector()}),
        "storage.k8s.io/CSINode" => json!({"spec": {"drivers": list(|i| json!({"name": i.to_string()}))}}),
        "Namespace" => json!({}),
        other => unreachable!("{other}"),
    };
    let labels = map(json!(""));
    object["metadata"] = json!({"name": "o", "namespace": "ns", "labels": labels, "annotations": labels});
    object
}

#[test]
fn other_giants_are_decoded_in_steady_steps() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for resource in [
        "resource.k8s.io/ResourceClaim",
        "resource.k8s.io/ResourceSlice",
        "resource.k8s.io/DeviceClass",
        "Service",
        "apps/ReplicaSet",
        "policy/PodDisruptionBudget",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "storage.k8s.io/StorageClass",
        "storage.k8s.io/CSIStorageCapacity",
        "storage.k8s.io/CSINode",
        "Namespace",
    ] {
        let steps = |items: usize| {
            let object = giant_object(resource, items).to_string();
            let before = steps::taken();
            let kind = ObjectKind::of(resource).unwrap_or_else(|| panic!("{resource} is built in"));
            kind.decode(object.as_bytes()).unwrap_or_else(|error| panic!("{resource}: {error}"));
            (steps::taken() - before) as f64
        };
        let growth = steps(2 * ITEMS) / steps(ITEMS);
        assert!((1.5..MOST_GROWTH).contains(&growth), "{resource}: {growth}");
    }
}

#[test]
fn giant_pods_are_decoded_alike_in_steady_steps() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for list in PodList::ALL.into_iter().filter(|list| !list.is_beside_pod()) {
        check(&list, |items| decoded_pod(list, items));
    }
}

#[test]
fn giant_nodes_are_decoded_alike_in_steady_steps() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for list in NodeList::ALL {
        check(&list, |items| decoded_node(list, items));
    }
}

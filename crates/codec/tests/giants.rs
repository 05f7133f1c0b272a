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

/// A slice, claim or class with this many of everything that it can have many of.
fn giant_devices(resource: &str, items: usize) -> Value {
    let list = |item: fn(usize) -> Value| (0..items).map(item).collect::<Value>();
    let map = |value: Value| (0..items).map(|i| (format!("k{i}"), value.clone())).collect::<Value>();
    let selectors = list(|i| json!({"cel": {"expression": i.to_string()}}));
    let body = match resource {
        "resource.k8s.io/ResourceClaim" => json!({
            "spec": {"devices": {
                "requests": list(|i| json!({"name": i.to_string(), "exactly": {"deviceClassName": "c"}})),
                "constraints": [{"requests": list(|i| json!(i.to_string())), "matchAttribute": "a"}],
            }},
            "status": {
                "allocation": {"devices": {"results": list(|i| json!({"device": i.to_string()}))}},
                "reservedFor": list(|i| json!({"uid": i.to_string()})),
            },
        }),
        "resource.k8s.io/ResourceSlice" => json!({"spec": {
            "devices": list(|i| json!({"name": i.to_string()})),
            "sharedCounters": [{"name": "s", "counters": map(json!({"value": "1"}))}],
        }}),
        "resource.k8s.io/DeviceClass" => json!({"spec": {"selectors": selectors}}),
        other => unreachable!("{other}"),
    };
    let mut object = body;
    object["metadata"] = json!({"name": "o", "namespace": "ns"});
    object
}

#[test]
fn giant_slices_claims_and_classes_are_decoded_in_steady_steps() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for name in ["ResourceClaim", "ResourceSlice", "DeviceClass"] {
        let resource = format!("resource.k8s.io/{name}");
        let steps = |items: usize| {
            let object = giant_devices(&resource, items).to_string();
            let before = steps::taken();
            let kind = ObjectKind::of(&resource).expect("it is built in");
            kind.decode(object.as_bytes()).expect("it is valid");
            (steps::taken() - before) as f64
        };
        let growth = steps(2 * ITEMS) / steps(ITEMS);
        assert!((1.5..MOST_GROWTH).contains(&growth), "{name}: {growth}");
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

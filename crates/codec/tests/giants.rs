//! Objects with one enormous list each are decoded alike from both encodings, at a cost that grows
//! as the list does.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use supercargo_codec::{NodeKind, PodKind};
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

#[test]
fn giant_pods_are_decoded_alike_in_steady_steps() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for list in PodList::ALL {
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

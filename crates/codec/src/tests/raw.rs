//! Objects that are kept whole.

use kube_informers::Kind as _;
use serde_json::Value;

use super::{NODE, PENDING_POD, node_kind, pod_kind};

fn with_managed_fields(json: &[u8]) -> Vec<u8> {
    let mut object: Value = serde_json::from_slice(json).unwrap();
    object["metadata"]["managedFields"] = serde_json::json!([{"manager": "m"}]);
    object.to_string().into_bytes()
}

/// The kept object: everything but the type.
fn expected(json: &[u8]) -> Value {
    let mut object: Value = serde_json::from_slice(json).unwrap();
    object.as_object_mut().unwrap().retain(|field, _| ["metadata", "spec", "status"].contains(&&**field));
    object
}

#[test]
fn objects_are_kept_whole_only_on_request() {
    let pod = pod_kind().keep_raw(true).decode(&with_managed_fields(PENDING_POD)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&pod.raw.unwrap()).unwrap(), expected(PENDING_POD));
    let node = node_kind().keep_raw(true).decode(&with_managed_fields(NODE)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&node.raw.unwrap()).unwrap(), expected(NODE));
    assert_eq!(pod_kind().decode(PENDING_POD).unwrap().raw, None);
    assert_eq!(node_kind().decode(NODE).unwrap().raw, None);
}

#[test]
fn keeping_whole_objects_requests_json() {
    let protobuf = |raw: bool| {
        let (pods, nodes) = (pod_kind().keep_raw(raw), node_kind().keep_raw(raw));
        (pods.accept().protobuf, nodes.accept().protobuf)
    };
    assert_eq!(protobuf(false), (true, true));
    assert_eq!(protobuf(true), (false, false));
}

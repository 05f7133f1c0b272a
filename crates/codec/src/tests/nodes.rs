//! Decoding of nodes.

use serde_json::{Value, json};
use supercargo_framework::taint::TaintEffect;

use super::{NODE, node_kind};

#[test]
fn a_node_keeps_what_scheduling_reads() {
    let node = node_kind().decode(NODE).unwrap();
    assert_eq!((&*node.name, &*node.uid, &*node.resource_version), ("node-1", "n-uid", "991"));
    assert!(node.unschedulable);
    let annotations: Vec<_> = node.annotations.iter().map(|(key, _)| &**key).collect();
    assert_eq!(annotations, ["example.com/declared"]);
    let effects: Vec<_> = node.taints.iter().map(|taint| taint.effect).collect();
    assert_eq!(effects, [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::Unknown]);
    assert_eq!(node.conditions.get("Ready").map(|status| &**status), Some("True"));
    assert_eq!(
        node.declared_features.iter().map(|feature| &**feature).collect::<Vec<_>>(),
        ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"]
    );
}

#[test]
fn a_change_of_any_annotation_changes_the_hash() {
    let hash = |annotations: Value| {
        let node = json!({"metadata": {"name": "n", "annotations": annotations}});
        node_kind().decode(node.to_string().as_bytes()).unwrap().annotations_hash
    };
    let base = hash(json!({"a": "1", "undeclared": "2"}));
    assert_eq!(hash(json!({"undeclared": "2", "a": "1"})), base);
    for other in
        [json!({"a": "1", "undeclared": "3"}), json!({"a": "1"}), json!({"a1": "", "undeclared": "2"})]
    {
        assert_ne!(hash(other.clone()), base, "{other}");
    }
    assert_eq!((hash(json!({})), hash(Value::Null)), (0, 0));
}

#[test]
fn an_empty_preemption_policy_differs_from_none() {
    let owners = |json: Value| {
        let node = json!({"metadata": {"name": "n"}, "spec": json});
        let owners = node_kind().decode(node.to_string().as_bytes()).unwrap().disable_resize_preemption;
        owners.map(|owners| owners.iter().map(|owner| (**owner).to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(owners(json!({})), None);
    assert_eq!(owners(json!({"podPreemptionPolicy": {}})), Some(vec![]));
    let policy = json!({"podPreemptionPolicy": {"disableResizePreemption": ["b.example/x", "a"]}});
    assert_eq!(owners(policy), Some(vec!["b.example/x".to_owned(), "a".to_owned()]));
    let message = b"\x0a\x03\x0a\x01n\x12\x05\x42\x03\x0a\x01a";
    let node = node_kind().decode_protobuf(message).unwrap();
    assert_eq!(node.disable_resize_preemption.as_deref(), Some(&["a".into()][..]));
}

#[test]
fn amounts_are_in_the_schedulers_units() {
    let node = node_kind().decode(NODE).unwrap();
    let cases = [
        ("cpu", 7910),
        ("memory", 33_822_867_456),
        ("pods", 110),
        ("hugepages-2Mi", 8 << 20),
        ("hugepages-1Gi", 0),
        ("example.com/gpu", 4),
        ("unheard-of", 0),
    ];
    for (name, expected) in cases {
        assert_eq!(node.allocatable.get(name), expected, "{name}");
    }
}

#[test]
fn each_image_name_is_listed_once_and_in_order() {
    let node = node_kind().decode(NODE).unwrap();
    let images: Vec<_> = node.images.iter().map(|image| (&*image.name, image.size)).collect();
    assert_eq!(
        images,
        [("a:1", 1000), ("registry.example.com/b:1", 2000), ("registry.example.com/b@sha256:1", 2000)]
    );
}

//! Sharing of equal values, and their release.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use supercargo_framework::pod::PodInfo;

use super::{NODE, RUNNING_POD, node_kind, pod_kind};
use crate::PodKind;

/// A pod of a template, with the fields that differ between its pods.
fn replica(kind: &PodKind, number: usize) -> PodInfo {
    kind.decode(&replica_json(number)).unwrap()
}

fn replica_json(number: usize) -> Vec<u8> {
    let mut pod: Value = serde_json::from_slice(RUNNING_POD).unwrap();
    pod["metadata"]["name"] = json!(format!("web-{number}"));
    pod["metadata"]["uid"] = json!(format!("uid-{number}"));
    pod["spec"]["nodeName"] = json!(format!("node-{}", number % 10));
    pod["spec"]["volumes"][0]["name"] = json!(format!("kube-api-access-{number}"));
    pod.to_string().into_bytes()
}

#[test]
fn pods_of_a_template_share_all_but_identity() {
    let kind = pod_kind();
    let (a, b) = (replica(&kind, 1), replica(&kind, 11));
    assert!(Arc::ptr_eq(&a.spec, &b.spec));
    assert!(a.labels.is_shared_with(&b.labels));
    assert!(a.annotations.is_shared_with(&b.annotations));
    assert!(Arc::ptr_eq(&a.status.shared, &b.status.shared));
    assert!(Arc::ptr_eq(&a.namespace, &b.namespace));
    assert!(Arc::ptr_eq(a.node_name.as_ref().unwrap(), b.node_name.as_ref().unwrap()));
    assert!(Arc::ptr_eq(&a.controller.unwrap(), &b.controller.unwrap()));
    assert!(Arc::ptr_eq(&a.status_requests.unwrap(), &b.status_requests.unwrap()));
    assert_ne!((a.name, a.uid), (b.name, b.uid));
}

#[test]
fn nodes_share_what_is_equal() {
    let kind = node_kind();
    let mut other: Value = serde_json::from_slice(NODE).unwrap();
    other["metadata"]["name"] = json!("node-2");
    let (a, b) = (kind.decode(NODE).unwrap(), kind.decode(other.to_string().as_bytes()).unwrap());
    assert!(Arc::ptr_eq(&a.allocatable, &b.allocatable));
    assert!(Arc::ptr_eq(&a.taints, &b.taints));
    assert!(Arc::ptr_eq(&a.images, &b.images));
    assert!(a.conditions.is_shared_with(&b.conditions));
    assert!(Arc::ptr_eq(&a.declared_features, &b.declared_features));
    drop((a, b));
    kind.sweep();
    assert_eq!(kind.interned(), 0);
}

#[test]
fn dropped_pods_release_interned_values() {
    let kind = pod_kind();
    let pods: Vec<PodInfo> = (0..20).map(|number| replica(&kind, number)).collect();
    kind.sweep();
    let held = kind.interned();
    assert!(held < 100, "{held} values for pods of one template");
    drop(pods);
    kind.sweep();
    assert_eq!(kind.interned(), 0);
}

#[test]
fn interners_shrink_after_100_000_labels() {
    let kind = pod_kind();
    let replicas: Vec<_> = (0..100).map(replica_json).collect();
    let staying: Vec<PodInfo> = replicas.iter().map(|json| kind.decode(json).unwrap()).collect();
    kind.sweep();
    let base = kind.interned();
    let mut passing = VecDeque::new();
    for number in 0..100_000 {
        let labels = format!(r#"{{"unique":"label-{number}"}}"#);
        let pod = format!(r#"{{"metadata":{{"namespace":"ns","name":"p","uid":"u","labels":{labels}}}}}"#);
        passing.push_back(kind.decode(pod.as_bytes()).unwrap());
        // A thousand pods exist at a time.
        if passing.len() > 1000 {
            drop(passing.pop_front());
        }
        assert!(kind.interned() < base + 10_000, "{} values held after {number}", kind.interned());
    }
    drop(passing);
    // Updates of the remaining pods trigger the sweep.
    for json in replicas.iter().cycle().take(6000) {
        drop(kind.decode(json).unwrap());
    }
    let held = kind.interned();
    assert!(held <= base + 16, "{held} values held, {base} before");
    kind.sweep();
    assert_eq!(kind.interned(), base);
    drop(staying);
}

#[test]
fn interners_do_not_grow_with_replaced_pods() {
    let kind = pod_kind();
    for number in 0..20_000 {
        let spec = json!({"containers": [{"name": "c", "image": format!("image-{number}:1")}]});
        drop(kind.decode(&super::pod_json(spec, json!({}))).unwrap());
    }
    assert!(kind.interned() < 4096, "{} values held", kind.interned());
}

//! Errors name the object and the field.

use proptest::prelude::*;

use super::{RUNNING_POD, node_kind, pod_kind};
use crate::DecodeErrorKind;

fn pod(rest: &str) -> String {
    format!(r#"{{"metadata": {{"namespace": "ns", "name": "p", "uid": "u"}}, {rest}}}"#)
}

fn node(rest: &str) -> String {
    format!(r#"{{"metadata": {{"name": "n"}}, {rest}}}"#)
}

#[test]
fn errors_name_the_pod_and_the_field() {
    let cases = [
        (
            pod(r#""spec": {"containers": [{}, {"resources": {"requests": {"cpu": "lots"}}}]}"#),
            "pod ns/p: spec.containers[1].resources.requests[cpu]: quantity \"lots\"",
        ),
        (
            pod(r#""spec": {"initContainers": [{"resources": {"requests": {"example.com/gpu": ""}}}]}"#),
            "pod ns/p: spec.initContainers[0].resources.requests[example.com/gpu]: quantity \"\"",
        ),
        (
            pod(r#""spec": {"overhead": {"memory": "1GB"}}"#),
            "pod ns/p: spec.overhead[memory]: quantity \"1GB\"",
        ),
        (
            pod(r#""spec": {"resources": {"requests": {"cpu": "x"}}}"#),
            "pod ns/p: spec.resources.requests[cpu]: quantity \"x\"",
        ),
        (
            pod(r#""spec": {"containers": [{"name": "c"}]},
                "status": {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "x"}}}]}"#),
            "pod ns/p: status.containerStatuses[0].resources.requests[cpu]: quantity \"x\"",
        ),
        (
            pod(r#""spec": {"initContainers": [{"name": "c"}]},
                "status": {"initContainerStatuses": [{"name": "c", "allocatedResources": {"cpu": "x"}}]}"#),
            "pod ns/p: status.initContainerStatuses[0].allocatedResources[cpu]: quantity \"x\"",
        ),
        (
            pod(r#""status": {"resources": {}, "allocatedResources": {"cpu": "x"}}"#),
            "pod ns/p: status.allocatedResources[cpu]: quantity \"x\"",
        ),
        (pod(r#""status": {"startTime": "yesterday"}"#), "pod ns/p: status.startTime: "),
        (
            pod(r#""status": {"conditions": [{}, {"type": "PodScheduled", "lastTransitionTime": "noon"}]}"#),
            "pod ns/p: status.conditions[1].lastTransitionTime: ",
        ),
        (
            pod(r#""spec": {"containers": [{"ports": [{"hostPort": "http"}]}]}"#),
            "pod ns/p: spec.containers[0].ports[0].hostPort: invalid type: string \"http\", expected i32",
        ),
        (pod(r#""spec": {"priority": 9999999999}"#), "pod ns/p: spec.priority: invalid value"),
        (
            pod(r#""spec": {"nodeSelector": {"a": 1}}"#),
            "pod ns/p: spec.nodeSelector.a: invalid type: integer",
        ),
        (pod(r#""spec": []"#), "pod ns/p: spec: invalid type: sequence, expected an object"),
        (
            pod(r#""spec": {"containers": {}}"#),
            "pod ns/p: spec.containers: invalid type: map, expected an array",
        ),
        (pod(r#""spec": {"nodeName": "n1"#), "pod ns/p: spec.nodeName: EOF"),
        (pod(r#""spec": {}} trailing"#), "pod ns/p: .: trailing characters"),
        (
            r#"{"metadata": {"namespace": "ns", "name": 5}}"#.into(),
            "pod ns/: metadata.name: invalid type: integer",
        ),
        (
            r#"{"metadata": {"namespace": "ns", "uid": "u"}}"#.into(),
            "pod ns/: metadata.name: missing or empty",
        ),
        (r#"{"metadata": {"name": "p", "uid": "u"}}"#.into(), "pod p: metadata.namespace: missing or empty"),
        (
            r#"{"metadata": {"namespace": "ns", "name": "p"}}"#.into(),
            "pod ns/p: metadata.uid: missing or empty",
        ),
        (r#"{"metadata": null}"#.into(), "pod: metadata.name: missing or empty"),
        ("{}".into(), "pod: metadata.name: missing or empty"),
        ("[]".into(), "pod: .: invalid type: sequence, expected an object"),
        (String::new(), "pod: .: EOF"),
    ];
    for (json, expected) in cases {
        let error = pod_kind().decode(json.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}\nfor {json}\ninstead of {expected}");
    }
}

#[test]
fn errors_name_the_node_and_the_field() {
    let cases = [
        (
            node(r#""status": {"allocatable": {"memory": "much"}}"#),
            "node n: status.allocatable[memory]: quantity",
        ),
        (
            node(r#""status": {"images": [{"names": ["a"], "sizeBytes": 1.5}]}"#),
            "node n: status.images[0].sizeBytes: invalid type: floating point",
        ),
        (node(r#""spec": {"unschedulable": "yes"}"#), "node n: spec.unschedulable: invalid type: string"),
        ("{}".into(), "node: metadata.name: missing or empty"),
    ];
    for (json, expected) in cases {
        let error = node_kind().decode(json.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}\nfor {json}");
    }
}

#[test]
fn errors_have_a_matchable_cause() {
    let json = node(r#""status": {"allocatable": {"memory": "much"}}"#);
    let error = node_kind().decode(json.as_bytes()).unwrap_err();
    assert_eq!((&*error.object, &*error.field), ("node n", "status.allocatable[memory]"));
    assert!(matches!(error.fault, DecodeErrorKind::Quantity(_)));
}

#[test]
fn unknown_enumeration_values_are_accepted() {
    let json = pod(r#""spec": {"preemptionPolicy": "X", "tolerations": [{"operator": "X", "effect": "X"}],
            "containers": [{"restartPolicy": "X", "ports": [{"hostPort": 1, "protocol": "X"}]}],
            "topologySpreadConstraints": [{"whenUnsatisfiable": "X"}]}, "status": {"phase": "X"}"#);
    assert!(pod_kind().decode(json.as_bytes()).is_ok());
}

proptest! {
    #[test]
    fn damaged_documents_never_panic(at in 0..RUNNING_POD.len(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut json = RUNNING_POD.to_vec();
        json[at] = byte;
        if cut {
            json.truncate(at);
        }
        let _ = (pod_kind().decode(&json), node_kind().decode(&json));
    }
}

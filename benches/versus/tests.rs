//! The parts of `versus` that need no control plane. A benchmark without a harness runs no tests,
//! so this is a target of its own.

#![allow(dead_code, reason = "only some parts are tested")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod api;
mod names;
mod proto;
mod script;
mod watch;

use std::collections::HashMap;

use http::Method;
use serde_json::{Value, json};

use api::Call;
use names::{Names, PodName};
use script::{Encoding, Script};
use watch::PodChange;

fn names(turn: usize, count: usize) -> Names {
    Names { namespace: "ns".to_owned(), turn, count }
}

fn bound(pod: PodName, node: &str) -> (PodName, PodChange) {
    (pod, PodChange::Bound { node: node.to_owned() })
}

fn event(pod: &PodName) -> Value {
    json!({
        "metadata": {"name": format!("{}.1", pod.name), "namespace": "ns"},
        "regarding": {"kind": "Pod", "namespace": "ns", "name": pod.name},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "Scheduled",
    })
}

fn claim(names: &Names, index: usize, status: Value) -> Value {
    let pod = names.pod(index).name;
    json!({
        "metadata": {
            "name": format!("{pod}-claim"), "resourceVersion": "7", "managedFields": [{}],
            "ownerReferences": [{"name": pod, "uid": format!("uid-of-{pod}")}],
        },
        "status": status,
    })
}

fn body(call: &Call) -> Value {
    serde_json::from_slice(&call.body).unwrap()
}

fn paths(calls: &[Call]) -> Vec<(Method, &str)> {
    calls.iter().map(|call| (call.method.clone(), call.path.as_str())).collect()
}

/// What a run with two pods wrote, of which only the second has a claim, for another run.
fn repeated() -> Vec<Vec<Call>> {
    let (first, again) = (names(1, 2), names(2, 2));
    let changes = [bound(first.pod(1), "node-a"), bound(first.pod(0), "node-b")];
    let events = vec![event(&first.pod(0)), event(&first.pod(1))];
    let status = json!({"allocation": {"devices": "some"}, "reservedFor": [{"uid": "of the first run"}]});
    let claims = HashMap::from([(1, claim(&first, 1, status))]);
    let script = Script::record(&changes, events, &claims, &first);
    assert_eq!(script.counts().to_string(), "1 allocations (2 writes each), 2 bindings, 2 events");
    let claims = HashMap::from([(1, claim(&again, 1, json!({})))]);
    script.calls(&again, &claims, Encoding::Json).unwrap()
}

#[test]
fn claim_is_written_before_its_pod_is_bound() {
    let claim = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/pod-002-000001-claim";
    let events = "/apis/events.k8s.io/v1/namespaces/ns/events";
    let calls = repeated();
    assert_eq!(calls.len(), 2, "a sequence for each pod");
    assert_eq!(
        paths(&calls[0]),
        [
            (Method::PUT, claim),
            (Method::PUT, format!("{claim}/status").as_str()),
            (Method::POST, "/api/v1/namespaces/ns/pods/pod-002-000001/binding"),
            (Method::POST, events),
        ]
    );
    assert_eq!(
        paths(&calls[1]),
        [(Method::POST, "/api/v1/namespaces/ns/pods/pod-002-000000/binding"), (Method::POST, events)]
    );
}

#[test]
fn claim_is_written_with_its_own_pod_and_the_recorded_devices() {
    let calls = repeated();
    let [protected, status] = [&calls[0][0], &calls[0][1]].map(body);
    assert_eq!(protected["metadata"]["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
    assert_eq!(protected["metadata"]["resourceVersion"], "7");
    assert!(protected["metadata"]["managedFields"].is_null());
    assert!(protected["status"]["allocation"].is_null());
    assert_eq!(status["status"]["allocation"]["devices"], "some");
    assert_eq!(
        status["status"]["reservedFor"],
        json!([{"resource": "pods", "name": "pod-002-000001", "uid": "uid-of-pod-002-000001"}])
    );
    assert!(status["metadata"]["resourceVersion"].is_null(), "the first write has changed it");
}

#[test]
fn pod_without_its_claim_is_no_call() {
    let first = names(1, 2);
    let claims = HashMap::from([(1, claim(&first, 1, json!({"allocation": {}})))]);
    let script = Script::record(&[bound(first.pod(1), "node")], Vec::new(), &claims, &first);
    let calls = |count| script.calls(&names(2, count), &HashMap::new(), Encoding::Json);
    assert!(calls(2).unwrap_err().to_string().contains("pod 1 has no claim"));
    assert!(calls(1).unwrap().is_empty(), "a smaller run has no such pod");
}

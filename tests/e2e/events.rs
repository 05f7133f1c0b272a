//! Events and conditions of pods, field by field. The cluster is idle, so that counts are known.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, Options, assets_or_skip};

use crate::support::{Cluster, Supercargo, config, node, pod};

const WITHIN: Duration = Duration::from_secs(20);

fn hostname() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

/// Waits for the only event with this reason of a pod.
fn event(cluster: &Cluster, supercargo: &Supercargo, ns: &str, pod: &str, reason: &str) -> Value {
    supercargo.eventually(&format!("the event {reason} about {pod}"), WITHIN, || {
        let events = cluster.events(ns, pod);
        let found: Vec<_> = events.into_iter().filter(|event| event["reason"] == reason).collect();
        assert!(found.len() < 2, "{found:#?}");
        found.into_iter().next()
    })
}

/// Asserts the fields that both events have in common.
fn check_event(event: &Value, pod: &Value, kind: &str, action: &str, note: &str) {
    let metadata = &pod["metadata"];
    let expected = json!({
        "type": kind,
        "action": action,
        "note": note,
        "reportingController": "e2e-events",
        "reportingInstance": format!("e2e-events-{}", hostname()),
        "deprecatedSource": {},
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&event[field], value, "{field} of {event:#}");
    }
    for absent in
        ["related", "series", "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount"]
    {
        assert!(event[absent].is_null(), "{absent} of {event:#}");
    }
    let regarding = &event["regarding"];
    for (field, value) in [("kind", &json!("Pod")), ("apiVersion", &json!("v1")), ("uid", &metadata["uid"])] {
        assert_eq!(&regarding[field], value, "{field} of {regarding}");
    }
    for field in ["name", "namespace"] {
        assert_eq!(regarding[field], metadata[field], "{field}");
    }
    assert_eq!(event["metadata"]["namespace"], metadata["namespace"]);
    let time = event["eventTime"].as_str().unwrap();
    assert_eq!(time.len(), "2026-01-01T00:00:00.000000Z".len(), "{time}");
    let name = event["metadata"]["name"].as_str().unwrap();
    let (stem, nanoseconds) = name.rsplit_once('.').unwrap();
    assert_eq!(Some(stem), metadata["name"].as_str());
    assert!(i64::from_str_radix(nanoseconds, 16).is_ok(), "{name}");
}

#[test]
fn events_conditions_and_json_logs_have_upstream_fields() {
    if assets_or_skip().is_none() {
        return;
    }
    let plane = ControlPlane::start(Options::default()).unwrap();
    let cluster = Cluster::of(&plane);
    cluster.namespace("e2e-events");
    for name in ["worker-1.zone-a.example.com", "worker-2.zone-a.example.com"] {
        let zone = [("zone", "a")];
        cluster.create(&node(name, &zone, &[("cpu", "1"), ("memory", "1Gi")]));
    }
    let mut unschedulable = node("cordoned", &[], &[("cpu", "8")]);
    unschedulable["spec"] = json!({ "unschedulable": true });
    cluster.create(&unschedulable);
    let mut tainted = node("tainted", &[], &[("cpu", "8")]);
    tainted["spec"] = json!({ "taints": [{ "key": "gpu", "effect": "NoSchedule" }] });
    cluster.create(&tainted);

    let kubeconfig = plane.kubeconfig("system:kube-scheduler").unwrap();
    let json_logs = ["--logging-format", "json"];
    let supercargo = Supercargo::start(&kubeconfig, Some(&config(&["e2e-events"])), &json_logs);
    supercargo.wait_until_scheduling();
    let mine = |name: &str| pod(name).within("e2e-events").by("e2e-events");

    let small = cluster.create(&mine("small.dotted").asking("cpu", "100m").build());
    let bound_to = cluster.bound_node("e2e-events", "small.dotted");
    assert_eq!(bound_to, "worker-1.zone-a.example.com", "of equals the first");
    let scheduled = event(&cluster, &supercargo, "e2e-events", "small.dotted", "Scheduled");
    let note = format!("Successfully assigned e2e-events/small.dotted to {bound_to}");
    check_event(&scheduled, &small, "Normal", "Binding", &note);
    assert_eq!(scheduled["regarding"]["resourceVersion"], small["metadata"]["resourceVersion"]);

    let large = cluster.create(&mine("large").asking("cpu", "4").build());
    let message = "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, \
                   2 Insufficient cpu. preemption: 0/4 nodes are available: 4 Preemption is not helpful for \
                   scheduling.";
    let failed = event(&cluster, &supercargo, "e2e-events", "large", "FailedScheduling");
    check_event(&failed, &large, "Warning", "Scheduling", message);
    assert_eq!(failed["regarding"]["resourceVersion"], large["metadata"]["resourceVersion"]);
    let condition = cluster.condition("e2e-events", "large", "Unschedulable");
    let transition = condition["lastTransitionTime"].clone();
    assert!(transition.as_str().unwrap().ends_with('Z'));
    let expected = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "observedGeneration": large["metadata"]["generation"],
        "lastProbeTime": null,
        "lastTransitionTime": transition,
    });
    assert_eq!(condition, expected);

    // A node fits: the same pod is bound, and its condition changes.
    let late = format!("{}.example.com", "late".repeat(60));
    cluster.create(&node(&late, &[], &[("cpu", "4"), ("memory", "1Gi")]));
    assert_eq!(cluster.bound_node("e2e-events", "large"), late);
    let scheduled = event(&cluster, &supercargo, "e2e-events", "large", "Scheduled");
    let note = format!("Successfully assigned e2e-events/large to {late}");
    check_event(&scheduled, &large, "Normal", "Binding", &note);

    // The longest pod name leaves no room for the time in the event's name.
    let longest = "x".repeat(253);
    cluster.create(&mine(&longest).build());
    let scheduled = event(&cluster, &supercargo, "e2e-events", &longest, "Scheduled");
    assert_eq!(scheduled["metadata"]["name"].as_str().map(str::len), Some(253));
    let log = supercargo.log();
    supercargo.stop();
    check_json_log(&log, &note);
}

fn check_json_log(log: &str, note: &str) {
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let assigned = lines.iter().find(|line| line["message"] == note);
    let assigned = assigned.unwrap_or_else(|| panic!("{log}"));
    assert_eq!(
        (assigned["level"].as_str(), assigned["pod"].as_str()),
        (Some("INFO"), Some("e2e-events/large"))
    );
    assert!(assigned["timestamp"].is_string() && assigned["target"].is_string());
}

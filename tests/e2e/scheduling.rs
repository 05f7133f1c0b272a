//! Which pods a scheduler handles, and when. The tests share a control plane, with their own nodes,
//! namespaces and scheduler names.

use std::time::Duration;

use serde_json::json;
use supercargo_controlplane::shared_or_skip;

use crate::support::{Cluster, Supercargo, config, node, node_of, pod, priority_class};

#[test]
fn profiles_ignore_but_count_pods_of_other_schedulers() {
    let Some(plane) = shared_or_skip() else { return };
    let cluster = Cluster::of(plane);
    let label = ("e2e", "profiles");
    cluster.create(&node("profiles-1", &[label], &[("cpu", "1"), ("memory", "1Gi")]));
    let namespaces = ["e2e-profiles-a", "e2e-profiles-b"];
    for name in namespaces {
        cluster.namespace(name);
    }
    let mine = |name: &str, ns: &str, by: &str| pod(name).within(ns).by(by).on(label);
    // No scheduler of this name runs.
    cluster.create(&mine("foreign", namespaces[0], "e2e-nobody").asking("cpu", "100m").build());
    // A pod of another scheduler that is already bound.
    let placed = mine("placed", namespaces[0], "e2e-nobody").asking("cpu", "600m");
    cluster.create(&placed.spec("nodeName", json!("profiles-1")).build());
    // A pod that exists before the scheduler starts.
    cluster.create(&mine("early", namespaces[0], "e2e-profile-1").asking("cpu", "100m").build());

    let supercargo = Supercargo::on(plane, Some(&config(&["e2e-profile-1", "e2e-profile-2"])));
    assert_eq!(cluster.bound_node(namespaces[0], "early"), "profiles-1");
    for ns in namespaces {
        for by in ["e2e-profile-1", "e2e-profile-2"] {
            cluster.create(&mine(&format!("late-of-{by}"), ns, by).asking("cpu", "50m").build());
        }
    }
    for ns in namespaces {
        for by in ["e2e-profile-1", "e2e-profile-2"] {
            let name = format!("late-of-{by}");
            assert_eq!(cluster.bound_node(ns, &name), "profiles-1");
            let reporter = supercargo.eventually("the event", Duration::from_secs(20), || {
                Some(cluster.events(ns, &name).first()?["reportingController"].clone())
            });
            assert_eq!(reporter, by);
        }
    }
    // 600m + 100m + 4 × 50m are in use.
    cluster.create(&mine("too-large", namespaces[0], "e2e-profile-1").asking("cpu", "200m").build());
    let condition = cluster.condition(namespaces[0], "too-large", "Unschedulable");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("1 Insufficient cpu"), "{message}");
    let foreign = cluster.pod(namespaces[0], "foreign");
    assert_eq!(node_of(&foreign), None);
    assert!(foreign["status"]["conditions"].is_null(), "{}", foreign["status"]);
    assert!(cluster.events(namespaces[0], "foreign").is_empty());
    // Resources that a foreign pod frees are available.
    cluster.delete_pod(namespaces[0], "placed");
    assert_eq!(cluster.bound_node(namespaces[0], "too-large"), "profiles-1");
    supercargo.stop();
}

#[test]
fn gated_pod_is_not_tried_until_its_gates_are_removed() {
    let Some(plane) = shared_or_skip() else { return };
    let cluster = Cluster::of(plane);
    let (ns, label) = ("e2e-gates", ("e2e", "gates"));
    cluster.namespace(ns);
    cluster.create(&node("gates-1", &[label], &[("cpu", "1")]));
    let supercargo = Supercargo::on(plane, Some(&config(&["e2e-gates"])));
    let mine = |name: &str| pod(name).within(ns).by("e2e-gates").on(label);
    let gates = json!([{ "name": "example.com/a" }, { "name": "example.com/b" }]);
    cluster.create(&mine("gated").spec("schedulingGates", gates).build());
    cluster.create(&mine("free-1").build());
    cluster.bound_node(ns, "free-1");
    let condition = cluster.condition(ns, "gated", "SchedulingGated");
    assert_eq!(condition["status"], "False");

    let one_left = json!({ "spec": { "schedulingGates": [{ "name": "example.com/b" }] } });
    cluster.patch_pod(ns, "gated", &one_left);
    cluster.create(&mine("free-2").build());
    cluster.bound_node(ns, "free-2");
    assert_eq!(node_of(&cluster.pod(ns, "gated")), None);
    assert!(cluster.events(ns, "gated").is_empty());

    cluster.patch_pod(ns, "gated", &json!({ "spec": { "schedulingGates": null } }));
    assert_eq!(cluster.bound_node(ns, "gated"), "gates-1");
    supercargo.stop();
}

#[test]
fn waiting_pod_with_highest_priority_goes_first() {
    let Some(plane) = shared_or_skip() else { return };
    let cluster = Cluster::of(plane);
    let (ns, label) = ("e2e-priority", ("e2e", "priority"));
    cluster.namespace(ns);
    for (name, value) in [("e2e-low", -5), ("e2e-high", 1000)] {
        cluster.create(&priority_class(name, value));
    }
    let mine = |name: &str| pod(name).within(ns).by("e2e-priority").on(label).asking("cpu", "600m");
    cluster.create(&mine("low").spec("priorityClassName", json!("e2e-low")).build());
    cluster.create(&mine("none").build());
    cluster.create(&mine("high").spec("priorityClassName", json!("e2e-high")).build());
    let supercargo = Supercargo::on(plane, Some(&config(&["e2e-priority"])));
    for name in ["low", "none", "high"] {
        cluster.condition(ns, name, "Unschedulable");
    }
    // One node at a time with room for one pod.
    for (node_name, expected) in [("priority-1", "high"), ("priority-2", "none"), ("priority-3", "low")] {
        cluster.create(&node(node_name, &[label], &[("cpu", "1")]));
        assert_eq!(cluster.bound_node(ns, expected), node_name);
    }
    supercargo.stop();
}

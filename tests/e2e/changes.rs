//! Deleted pods and changed nodes while other pods wait. The tests share a control plane, with
//! their own nodes, namespaces and scheduler names.

use serde_json::{Value, json};
use std::time::Duration;

use supercargo_controlplane::shared_or_skip;

use crate::support::{Cluster, Supercargo, config, node, node_of, pod};

#[test]
fn deleted_pending_pods_are_forgotten_and_names_reused() {
    let Some(plane) = shared_or_skip() else { return };
    let cluster = Cluster::of(plane);
    let (ns, label) = ("e2e-deleted", ("e2e", "deleted"));
    cluster.namespace(ns);
    cluster.create(&node("deleted-1", &[label], &[("cpu", "1")]));
    let supercargo = Supercargo::on(plane, Some(&config(&["e2e-deleted"])));
    let mine =
        |name: &str, cpu: &str| pod(name).within(ns).by("e2e-deleted").on(label).asking("cpu", cpu).build();
    cluster.create(&mine("waits", "4"));
    cluster.create(&mine("comes-again", "4"));
    cluster.condition(ns, "waits", "Unschedulable");
    cluster.condition(ns, "comes-again", "Unschedulable");
    cluster.delete_pod(ns, "waits");
    cluster.delete_pod(ns, "comes-again");
    cluster.create(&mine("comes-again", "500m"));
    assert_eq!(cluster.bound_node(ns, "comes-again"), "deleted-1");
    // Deleting a bound pod frees its resources.
    cluster.create(&mine("next", "600m"));
    cluster.condition(ns, "next", "Unschedulable");
    cluster.delete_pod(ns, "comes-again");
    assert_eq!(cluster.bound_node(ns, "next"), "deleted-1");
    // A node that fits the deleted pod does not bring it back.
    cluster.create(&node("deleted-2", &[label], &[("cpu", "8")]));
    cluster.create(&mine("last", "6"));
    assert_eq!(cluster.bound_node(ns, "last"), "deleted-2");
    let log = supercargo.log();
    assert!(!log.contains("Successfully assigned e2e-deleted/waits"), "{log}");
    assert!(!log.contains(" ERROR "), "{log}");
    supercargo.stop();
}

#[test]
fn terminating_pod_keeps_its_resources_until_deleted() {
    let Some(plane) = shared_or_skip() else { return };
    let cluster = Cluster::of(plane);
    let (ns, label) = ("e2e-ending", ("e2e", "ending"));
    cluster.namespace(ns);
    cluster.create(&node("ending-1", &[label], &[("cpu", "1")]));
    let supercargo = Supercargo::on(plane, Some(&config(&[ns])));
    let mine = |name: &str, cpu: &str| pod(name).within(ns).by(ns).on(label).asking("cpu", cpu).build();
    let with_finalizer = |mut pod: Value| {
        pod["metadata"]["finalizers"] = json!(["example.com/wait"]);
        pod
    };

    cluster.create(&mine("ends", "600m"));
    cluster.bound_node(ns, "ends");
    cluster.create(&mine("next", "600m"));
    cluster.create(&with_finalizer(mine("held", "4")));
    cluster.condition(ns, "next", "Unschedulable");
    cluster.condition(ns, "held", "Unschedulable");

    // No kubelet terminates it, so it stays; meanwhile a small pod is scheduled.
    cluster.ask_to_end(ns, "ends");
    cluster.create(&mine("small", "100m"));
    cluster.bound_node(ns, "small");
    assert_eq!(node_of(&cluster.pod(ns, "next")), None);
    cluster.delete_pod(ns, "ends");
    assert_eq!(cluster.bound_node(ns, "next"), "ending-1");

    // A node for the terminating pod: it is popped and skipped.
    cluster.ask_to_end(ns, "held");
    cluster.create(&node("ending-2", &[label], &[("cpu", "8")]));
    let skipped = format!("skip schedule deleting pod: {ns}/held");
    supercargo.eventually("the event", Duration::from_secs(20), || {
        let events = cluster.events(ns, "held");
        let found = events.iter().find(|event| event["note"] == *skipped)?;
        assert_eq!(found["reason"], "FailedScheduling");
        Some(())
    });
    assert_eq!(node_of(&cluster.pod(ns, "held")), None);
    cluster.patch_pod(ns, "held", &json!({ "metadata": { "finalizers": null } }));

    // A succeeded pod frees its resources, although it still exists.
    cluster.create(&mine("more", "300m"));
    cluster.create(&mine("after", "7800m"));
    cluster.condition(ns, "after", "Unschedulable");
    let path = format!("/api/v1/namespaces/{ns}/pods");
    for pod in cluster.list(&path) {
        if node_of(&pod) == Some("ending-2") {
            let name = pod["metadata"]["name"].as_str().unwrap();
            cluster.patch(&format!("{path}/{name}/status"), &json!({ "status": { "phase": "Succeeded" } }));
        }
    }
    assert_eq!(cluster.bound_node(ns, "after"), "ending-2");
    supercargo.stop();
}

#[test]
fn node_changes_admit_waiting_pods() {
    let Some(plane) = shared_or_skip() else { return };
    let cluster = Cluster::of(plane);
    let (ns, label) = ("e2e-changes", ("e2e", "changes"));
    cluster.namespace(ns);
    let path = "/api/v1/nodes/changes-1";
    let mut cordoned = node("changes-1", &[label], &[("cpu", "1")]);
    let taint = json!({ "key": "example.com/kept", "value": "yes", "effect": "NoSchedule" });
    cordoned["spec"] = json!({ "unschedulable": true, "taints": [taint] });
    cluster.create(&cordoned);
    let supercargo = Supercargo::on(plane, Some(&config(&[ns])));
    let mine = |name: &str| pod(name).within(ns).by(ns).on(label);
    let tolerations = json!([{ "key": "example.com/kept", "operator": "Exists" }]);
    cluster.create(&mine("tolerates").spec("tolerations", tolerations.clone()).build());
    cluster.create(&mine("does-not").build());
    let large = mine("large").asking("cpu", "2").spec("tolerations", tolerations.clone());
    cluster.create(&large.build());
    let picky = mine("picky").on(("disk", "fast")).spec("tolerations", tolerations);
    cluster.create(&picky.build());
    let all = ["tolerates", "does-not", "large", "picky"];
    for name in all {
        cluster.condition(ns, name, "Unschedulable");
    }

    let changes = [
        (path.to_owned(), json!({ "spec": { "unschedulable": null } }), "tolerates"),
        (path.to_owned(), json!({ "spec": { "taints": null } }), "does-not"),
        (format!("{path}/status"), json!({ "status": { "allocatable": { "cpu": "4" } } }), "large"),
        (path.to_owned(), json!({ "metadata": { "labels": { "disk": "fast" } } }), "picky"),
    ];
    for (done, (path, change, name)) in changes.into_iter().enumerate() {
        for waiting in &all[done..] {
            assert_eq!(node_of(&cluster.pod(ns, waiting)), None, "{waiting} before {change}");
        }
        cluster.patch(&path, &change);
        assert_eq!(cluster.bound_node(ns, name), "changes-1");
    }
    supercargo.stop();
}

//! Two schedulers on the same nodes.

use std::thread;

use serde_json::json;

use super::scenario::{Scenario, phase};
use crate::support::{name_of, node_of};

/// The number of pods for each scheduler.
const EACH: usize = 30;

#[test]
fn two_schedulers_share_nodes_without_overcommit() {
    let Some(scenario) = Scenario::begin("side-by-side") else { return };
    // 64 places for 60 pods: at the end, both schedulers choose among the same few nodes.
    let nodes = scenario.nodes(8, 800);
    let ours = scenario.template("ours", 100);
    let mut theirs = scenario.template("theirs", 100);
    theirs["spec"]["schedulerName"] = json!("default-scheduler");
    thread::scope(|scope| {
        for (app, template) in [("ours", &ours), ("theirs", &theirs)] {
            let scenario = &scenario;
            scope.spawn(move || scenario.workload("ReplicaSet", app, template, &json!({ "replicas": EACH })));
        }
    });
    let pods = [scenario.await_running("ours", EACH), scenario.await_running("theirs", EACH)];
    let counts = scenario.fill(800);
    assert_eq!(counts.values().sum::<usize>(), 2 * EACH);
    for (pods, scheduler) in pods.iter().zip(["supercargo", "default-scheduler"]) {
        assert_eq!(scenario.scheduled_by(name_of(&pods[0])), scheduler);
        let used = nodes.iter().filter(|node| pods.iter().any(|pod| node_of(pod) == Some(node.as_str())));
        assert!(used.count() > 4, "{scheduler} used few nodes: {counts:?}");
    }
    // If both choose one place at the same time, the kubelet rejects one pod, and its controller
    // replaces it.
    let failed = scenario.pods().iter().filter(|pod| phase(pod) == "Failed").count();
    let refused = scenario.site.kubelets.refusals(&nodes);
    assert_eq!(failed, refused, "pods have failed otherwise");
    scenario.say(&format!("{refused} of {} places were taken twice at one moment", 2 * EACH + refused));

    // Resources that one scheduler frees are available to the other.
    let path = |name: &str| format!("/apis/apps/v1/namespaces/{}/replicasets/{name}", scenario.namespace);
    scenario.scale(&path("theirs"), 0);
    scenario.scale(&path("ours"), 64);
    scenario.await_running("ours", 64);
    scenario.fill(800);
}

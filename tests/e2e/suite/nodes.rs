//! Nodes that are unhealthy, drained or deleted.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::scenario::{PATIENCE, Scenario, phase};
use crate::support::{eventually, name_of, node_of};

/// A pod that is evicted as soon as its node is unhealthy.
fn impatient(mut template: Value) -> Value {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let toleration =
            json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0 });
        template["spec"]["tolerations"].as_array_mut().unwrap().push(toleration);
    }
    template
}

#[test]
fn node_conditions_repel_and_evict_pods_until_recovery() {
    let Some(scenario) = Scenario::begin("conditions") else { return };
    let nodes = scenario.nodes(2, 1000);
    let (ill, well) = (&nodes[0], &nodes[1]);
    let tainted = |expected: &[&str]| {
        scenario.eventually(&format!("the node has the taints {expected:?}"), || {
            let taints: BTreeSet<_> = scenario.taints(ill).into_iter().collect();
            (taints == expected.iter().map(|taint| (*taint).to_owned()).collect()).then_some(())
        });
    };
    // A pod that fits no other node.
    let mut only_there = scenario.template("only-there", 100);
    only_there["spec"]["nodeSelector"]["kubernetes.io/hostname"] = json!(ill);
    scenario.report(ill, "DiskPressure", true);
    tainted(&["node.kubernetes.io/disk-pressure:NoSchedule"]);
    scenario.pod("only-there", &only_there);
    let message = scenario.await_unschedulable("only-there");
    assert!(message.contains("untolerated taint"), "{message}");
    scenario.report(ill, "DiskPressure", false);
    assert_eq!(scenario.await_bound("only-there"), *ill);

    let template = impatient(scenario.template("web", 100));
    scenario.workload("Deployment", "web", &template, &json!({ "replicas": 4 }));
    scenario.await_running("web", 4);
    scenario.report(ill, "Ready", false);
    tainted(&["node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/not-ready:NoSchedule"]);
    scenario.eventually("all of them run on the node that is well", || {
        let pods = scenario.pods_of("web");
        let is_there = |pod: &Value| node_of(pod) == Some(well.as_str()) && phase(pod) == "Running";
        (pods.len() == 4 && pods.iter().all(is_there)).then_some(())
    });
    // This pod tolerates the taint for a while, as pods do by default.
    assert_eq!(scenario.await_running("only-there", 1).len(), 1);

    scenario.report(ill, "Ready", true);
    tainted(&[]);
    only_there["metadata"]["labels"]["app"] = json!("again");
    scenario.pod("again", &only_there);
    assert_eq!(scenario.await_bound("again"), *ill);
}

#[test]
fn drain_respects_pdb_and_pods_run_elsewhere() {
    let Some(scenario) = Scenario::begin("drain") else { return };
    let nodes = scenario.nodes(3, 1000);
    scenario.workload("Deployment", "web", &scenario.template("web", 200), &json!({ "replicas": 6 }));
    scenario.await_running("web", 6);
    let budget = json!({ "minAvailable": 6, "selector": { "matchLabels": { "app": "web" } } });
    scenario.create(&json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": "web" },
        "spec": budget,
    }));
    let path = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets/web", scenario.namespace);
    let worked_out = |allowed: i64| {
        scenario.eventually("the budget is worked out", || {
            let status = &scenario.cluster().get(&path)["status"];
            (status["currentHealthy"] == 6 && status["disruptionsAllowed"] == allowed).then_some(())
        });
    };
    worked_out(0);
    assert!(!evict(&scenario, name_of(&scenario.pods_of("web")[0])), "the budget allows none");
    scenario.cluster().patch(&path, &json!({ "spec": { "minAvailable": 5 } }));
    worked_out(1);
    let drained = &nodes[0];
    let node = format!("/api/v1/nodes/{drained}");
    scenario.cluster().patch(&node, &json!({ "spec": { "unschedulable": true } }));
    scenario.eventually("the node is tainted", || {
        scenario
            .taints(drained)
            .contains(&"node.kubernetes.io/unschedulable:NoSchedule".to_owned())
            .then_some(())
    });

    scenario.eventually("the node is empty", || {
        let pods = scenario.pods_of("web");
        let running = pods.iter().filter(|pod| phase(pod) == "Running").count();
        assert!(running >= 5, "{running} pods run");
        let mut on_it = pods.iter().filter(|pod| node_of(pod) == Some(drained.as_str()));
        for pod in on_it.clone() {
            evict(&scenario, name_of(pod));
        }
        on_it.next().is_none().then_some(())
    });
    let pods = scenario.await_running("web", 6);
    assert!(pods.iter().all(|pod| node_of(pod) != Some(drained.as_str())));

    scenario.cluster().patch(&node, &json!({ "spec": { "unschedulable": false } }));
    let web = format!("/apis/apps/v1/namespaces/{}/deployments/web", scenario.namespace);
    scenario.scale(&web, 9);
    let pods = scenario.await_running("web", 9);
    assert!(pods.iter().any(|pod| node_of(pod) == Some(drained.as_str())), "nothing comes back");
}

/// Requests an eviction. Returns whether it was granted.
fn evict(scenario: &Scenario, pod: &str) -> bool {
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod, "namespace": scenario.namespace } });
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", scenario.namespace);
    match scenario.cluster().request("POST", &path, Some(&eviction)) {
        Ok(_) | Err((404, _)) => true,
        Err((429, _)) => {
            // The budget is updated when the next pod runs.
            thread::sleep(Duration::from_millis(100));
            false
        }
        Err(refusal) => panic!("{path}: {refusal:?}"),
    }
}

#[test]
fn pods_of_a_stopped_node_run_elsewhere() {
    let Some(scenario) = Scenario::begin("node-loss") else { return };
    scenario.nodes(3, 1000);
    let template = impatient(scenario.template("web", 150));
    scenario.workload("Deployment", "web", &template, &json!({ "replicas": 6 }));
    let pods = scenario.await_running("web", 6);
    let lost = node_of(&pods[0]).unwrap();
    let were_there: Vec<_> = pods.iter().filter(|pod| node_of(pod) == Some(lost)).map(name_of).collect();
    assert!(were_there.len() < 6, "all are on one node");

    scenario.site.kubelets.stop(lost);
    scenario.eventually("the node is unreachable", || {
        scenario.taints(lost).contains(&"node.kubernetes.io/unreachable:NoExecute".to_owned()).then_some(())
    });
    scenario.eventually("all of them run elsewhere", || {
        let pods = scenario.pods_of("web");
        let is_elsewhere = |pod: &Value| node_of(pod) != Some(lost) && phase(pod) == "Running";
        (pods.len() == 6 && pods.iter().all(is_elsewhere)).then_some(())
    });
    // Their termination cannot be confirmed, and no pod replaces them on that node.
    let left = |what: &str, count: usize| {
        let there = || {
            let pods = scenario.pods();
            let left = pods.iter().filter(|pod| were_there.contains(&name_of(pod))).count();
            (left == count).then_some(())
        };
        eventually(what, PATIENCE, there, String::new);
    };
    left("the lost pods are about to go", were_there.len());
    scenario.delete_node(lost);
    left("the lost pods are gone", 0);
    assert_eq!(scenario.fill(1000).values().sum::<usize>(), 6);
}

//! Preemption.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::scenario::Scenario;
use crate::support::{name_of, node_of};

/// Creates a priority class for this scenario.
fn class(scenario: &Scenario, name: &str, value: i32, policy: &str) -> String {
    let name = format!("{}-{name}", scenario.namespace);
    scenario.create_global(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        &json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": { "name": name },
            "value": value,
            "preemptionPolicy": policy,
        }),
    );
    name
}

#[test]
fn lowest_priority_pods_are_preempted_for_nominated_pod() {
    let Some(scenario) = Scenario::begin("preemption") else { return };
    scenario.nodes(2, 2000);
    let low = class(&scenario, "low", 10, "PreemptLowerPriority");
    let middle = class(&scenario, "middle", 100, "PreemptLowerPriority");
    let meek = class(&scenario, "meek", 1000, "Never");
    let high = class(&scenario, "high", 1000, "PreemptLowerPriority");
    let of = |app: &str, class: &str, cpu: u64| {
        let mut template = scenario.template(app, cpu);
        template["spec"]["priorityClassName"] = json!(class);
        template
    };
    // The pods of middle and low priority fill different nodes, so that the right node is known.
    scenario.pod("middle-0", &of("middle", &middle, 2000));
    let full = scenario.await_bound("middle-0");
    scenario.workload("ReplicaSet", "low", &of("low", &low, 1000), &json!({ "replicas": 2 }));
    let victims = scenario.await_running("low", 2);
    let theirs: BTreeSet<_> = victims.iter().filter_map(node_of).collect();
    assert!(theirs.len() == 1 && !theirs.contains(full.as_str()), "{theirs:?}");

    scenario.pod("meek", &of("meek", &meek, 2000));
    let message = scenario.await_unschedulable("meek");
    assert!(message.contains("2 Insufficient cpu"), "{message}");
    assert_eq!(scenario.pods_of("low").len(), 2, "nobody makes room for a pod that does not preempt");
    scenario.delete(&format!("/api/v1/namespaces/{}/pods/meek?gracePeriodSeconds=0", scenario.namespace));

    scenario.pod("high", &of("high", &high, 2000));
    let pod = || scenario.cluster().pod(&scenario.namespace, "high");
    let nominated = scenario.eventually("the pod is nominated", || {
        pod()["status"]["nominatedNodeName"].as_str().map(str::to_owned)
    });
    let path = format!("/api/v1/namespaces/{}/pods/{}", scenario.namespace, name_of(&victims[0]));
    let received = scenario.eventually("a victim is on its way out, or gone", || {
        let pod = scenario.cluster().find(&path).unwrap_or_default();
        (pod.is_null() || !pod["metadata"]["deletionTimestamp"].is_null()).then_some(pod)
    });
    assert_eq!(scenario.await_bound("high"), nominated);
    assert!(theirs.contains(nominated.as_str()), "{nominated} is not where the least important are");
    // A victim that is still visible has the condition with the reason.
    let conditions = received["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let says = |condition: &Value| condition["reason"] == "PreemptionByScheduler";
    assert!(received.is_null() || conditions.iter().any(says), "{conditions:?}");
    scenario.eventually("the victims are gone", || {
        let names: Vec<_> = victims.iter().map(name_of).collect();
        scenario.pods().iter().all(|pod| !names.contains(&name_of(pod))).then_some(())
    });
    assert_eq!(scenario.await_bound("middle-0"), full, "it was no victim");
    scenario.fill(2000);
    // Their controller has created replacements, which wait now.
    for pod in scenario.eventually("the victims' successors", || {
        let pods = scenario.pods_of("low");
        (pods.len() == 2).then_some(pods)
    }) {
        scenario.await_unschedulable(name_of(&pod));
    }
}

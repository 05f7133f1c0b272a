//! The metrics of preemption with groups: kube-scheduler's and supercargo's after one scenario.

use std::thread;

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, Options, assets_or_skip};
use supercargo_framework::features::Feature;

use super::exposition::Exposition;
use super::scenario::{Scraped, at_rest, cached, high_priority, pending};
use super::subjects::{Ours, Reference};
use super::upstream::{SCHEDULER, counts, family_differences};
use crate::support::{Cluster, PodBuilder, node, pod};

const GATES: &[Feature] = &[Feature::GenericWorkload];

/// Families of which kube-scheduler has some only with groups.
const FAMILIES: &[&str] = &[
    "scheduler_podgroup_schedule_attempts_total",
    "scheduler_podgroup_scheduling_attempt_duration_seconds",
    "scheduler_podgroup_scheduling_algorithm_duration_seconds",
    "scheduler_workload_preemption_attempts_total",
    "scheduler_workload_preemption_victims",
    "scheduler_preemption_workload_disruptions",
    "scheduler_preemption_evaluation_duration_seconds",
    "scheduler_preemption_execution_duration_seconds",
    "scheduler_preemption_pdb_violations_total",
];

/// Counts that must be equal: a series and some of its labels.
const COUNTS: &[(&str, &[(&str, &str)])] = &[
    ("scheduler_podgroup_schedule_attempts_total", &[("result", "waiting_on_preemption")]),
    ("scheduler_workload_preemption_attempts_total", &[("result", "Success")]),
    ("scheduler_workload_preemption_victims_count", &[]),
    ("scheduler_workload_preemption_victims_sum", &[]),
    ("scheduler_preemption_victims_sum", &[]),
    ("scheduler_preemption_workload_disruptions_count", &[]),
    ("scheduler_preemption_workload_disruptions_sum", &[("preemptor", "podgroup")]),
    ("scheduler_preemption_pdb_violations_total", &[("preemptor", "podgroup")]),
    ("scheduler_preemption_pdb_violations_total", &[("preemptor", "pod")]),
    ("scheduler_preemption_evaluation_duration_seconds_count", &[]),
    (
        "scheduler_preemption_evaluation_duration_seconds_count",
        &[("preemptor", "podgroup"), ("result", "Success")],
    ),
    (
        "scheduler_preemption_evaluation_duration_seconds_count",
        &[("preemptor", "pod"), ("result", "Success")],
    ),
    ("scheduler_preemption_execution_duration_seconds_count", &[]),
    (
        "scheduler_preemption_execution_duration_seconds_count",
        &[("preemptor", "podgroup"), ("result", "success")],
    ),
    ("scheduler_preemption_execution_duration_seconds_count", &[("preemptor", "pod"), ("result", "success")]),
];

fn group(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": { "name": name, "namespace": "default" },
        "spec": spec,
    })
}

/// A gang preempts a whole group, a pod of another one and a protected pod. Then a pod preempts a
/// protected pod of the gang.
fn play(cluster: &Cluster, scraped: &dyn Scraped) -> Exposition {
    let pod = |name: &str, cpu: &str| {
        let pod = pod(name).by(SCHEDULER).asking("cpu", cpu);
        pod.spec("terminationGracePeriodSeconds", json!(0))
    };
    let of_group =
        |pod: PodBuilder, name: &str| pod.spec("schedulingGroup", json!({ "podGroupName": name })).build();
    let high = |pod: PodBuilder| pod.spec("priorityClassName", json!("high"));
    let mut top = high_priority();
    (top["metadata"]["name"], top["value"]) = (json!("top"), json!(2000));
    cluster.create(&high_priority());
    cluster.create(&top);
    cluster.create(&json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": "database", "namespace": "default" },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "database" } } },
    }));
    cluster.create(&node("n", &[], &[("cpu", "4"), ("memory", "4Gi")]));

    cluster.create(&group(
        "whole",
        &json!({
            "schedulingPolicy": { "basic": {} }, "disruptionMode": { "all": {} },
        }),
    ));
    cluster.create(&group("parts", &json!({ "schedulingPolicy": { "basic": {} } })));
    for (name, of) in [("whole-1", "whole"), ("whole-2", "whole"), ("part", "parts")] {
        cluster.create(&of_group(pod(name, "1"), of));
        cluster.bound_node("default", name);
    }
    let protected = |pod: PodBuilder| {
        let mut pod = pod.build();
        pod["metadata"]["labels"] = json!({ "app": "database" });
        pod
    };
    cluster.create(&protected(pod("protected", "1")));
    cluster.bound_node("default", "protected");

    cluster.create(&group(
        "gang",
        &json!({
            "schedulingPolicy": { "gang": { "minCount": 2 } }, "priorityClassName": "high",
        }),
    ));
    for name in ["gang-1", "gang-2"] {
        let mut member = protected(high(pod(name, "2")));
        member["spec"]["schedulingGroup"] = json!({ "podGroupName": "gang" });
        cluster.create(&member);
    }
    for name in ["gang-1", "gang-2"] {
        cluster.bound_node("default", name);
    }
    cluster.create(&pod("top", "2").spec("priorityClassName", json!("top")).build());
    cluster.bound_node("default", "top");
    at_rest(scraped, |it| pending(it) == [0.0; 4] && cached(it) == [1.0, 2.0, 0.0])
}

fn reading<S: Scraped>(start: impl FnOnce(&ControlPlane) -> S) -> Exposition {
    let plane = ControlPlane::start(Options {
        feature_gates: GATES.iter().map(|gate| format!("{}=true", gate.name())).collect(),
        apiserver_args: vec!["--runtime-config=scheduling.k8s.io/v1beta1=true".to_owned()],
        ..Options::default()
    })
    .unwrap();
    play(&Cluster::of(&plane), &start(&plane))
}

#[test]
fn metrics_of_preemption_with_groups_match_kube_scheduler() {
    if assets_or_skip().is_none() {
        return;
    }
    let (theirs, ours) = thread::scope(|scope| {
        let theirs = scope.spawn(|| reading(|plane| Reference::start_with(plane, SCHEDULER, GATES)));
        let ours = scope.spawn(|| reading(|plane| Ours::start_with(plane, SCHEDULER, GATES)));
        (theirs.join().unwrap(), ours.join().unwrap())
    });
    let mut found = counts(COUNTS, "in the end", &theirs, &ours);
    for name in FAMILIES {
        match (theirs.0.get(*name), ours.0.get(*name)) {
            (Some(theirs), Some(ours)) => found.extend(family_differences(name, theirs, ours)),
            (theirs, ours) => found.push(format!(
                "{name}: kube-scheduler {}, supercargo {}",
                theirs.is_some(),
                ours.is_some()
            )),
        }
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

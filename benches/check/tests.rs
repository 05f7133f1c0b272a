//! Each rule is broken once and found.

use super::{Placed, violations};
use crate::plan::{GroupKind, Plan, Signatures};
use crate::workload::{Library, Op, Params, Workload};

fn plan(name: &str) -> Plan {
    changed_plan(name, |_, _| {})
}

fn changed_plan(name: &str, change: impl FnOnce(&mut Workload, &mut Params)) -> Plan {
    let library = Library::here();
    let mut workload =
        library.workloads().unwrap().into_iter().find(|workload| workload.name == name).unwrap();
    let mut params = workload.scaled(&workload.workloads[0].params, Some(120), Some(48));
    change(&mut workload, &mut params);
    Plan::new(&library, &workload, &params, Signatures::Identical, 1).unwrap()
}

/// All pods that are there before on their nodes, and those that are measured where `node` says.
fn found(plan: &Plan, node: impl Fn(usize) -> usize) -> Vec<String> {
    let mut placed = Vec::new();
    for (number, group) in plan.groups_of(GroupKind::Bound) {
        placed.extend((0..group.count).map(|i| {
            let node = plan.pod(number, i)["spec"]["nodeName"].as_str().unwrap().to_owned();
            (format!("pod-{number}-{i}"), node)
        }));
    }
    for (number, group) in plan.groups_of(GroupKind::Measured) {
        placed.extend((0..group.count).map(|i| (format!("pod-{number}-{i}"), plan.node_name(node(i)))));
    }
    violations(plan, placed.iter().map(|(pod, node)| Placed { pod, node })).unwrap()
}

#[test]
fn valid_placement_has_no_violation() {
    for name in ["SchedulingBasic", "TopologySpreading", "SchedulingPodAffinity", "SchedulingCSIPVs"] {
        assert_eq!(found(&plan(name), |i| i), Vec::<String>::new(), "{name}");
    }
    // Nodes that hold none of their kind yet.
    assert_eq!(found(&plan("SchedulingPodAntiAffinity"), |i| 119 - i), Vec::<String>::new());
}

#[test]
fn overcommitted_node_is_found() {
    let found = found(&plan("SchedulingBasic"), |_| 7);
    assert!(found.len() == 1 && found[0].starts_with("scheduler-perf-7 holds"), "{found:?}");
}

#[test]
fn exceeded_volume_limit_is_found() {
    let found = found(&plan("SchedulingCSIPVs"), |i| i / 39);
    assert!(found.len() == 1 && found[0].contains("volumes: 40"), "{found:?}");
}

#[test]
fn violated_anti_affinity_is_found() {
    let plan = plan("SchedulingPodMatchingAntiAffinity");
    assert_eq!(found(&plan, |i| 119 - i), Vec::<String>::new());
    // The first nodes have the pods that want to be without these.
    let found = found(&plan, |_| 0);
    assert!(
        found.iter().any(|violation| violation.contains("others in the kubernetes.io/hostname")),
        "{found:?}"
    );
}

#[test]
fn violated_affinity_is_found() {
    let plan = changed_plan("SchedulingPodAffinity", |workload, params| {
        params.insert("initPods".to_owned(), 0);
        for op in &mut workload.ops {
            if let Op::CreateNodes { label_node_prepare_strategy: Some(strategy), .. } = op {
                strategy.label_values = vec!["a".to_owned(), "b".to_owned()];
            }
        }
    });
    assert_eq!(found(&plan, |i| 2 * i), Vec::<String>::new());
    let found = found(&plan, |i| if i == 0 { 1 } else { 2 * i });
    assert!(
        found.len() == 1 && found[0].starts_with("scheduler-perf-1: 0 others in the topology"),
        "{found:?}"
    );
}

#[test]
fn exceeded_skew_is_found() {
    let found = found(&plan("TopologySpreading"), |i| i * 3 % 120);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("the skew over topology.kubernetes.io/zone is 48"), "{found:?}");
}

#[test]
fn node_affinity_violation_is_found() {
    assert_eq!(found(&plan("SchedulingDaemonset"), |_| 0), Vec::<String>::new());
    assert!(!found(&plan("SchedulingDaemonset"), |_| 1).is_empty());
    // The tainted nodes are the last.
    assert!(!found(&plan("SchedulingWithNodeInclusionPolicy"), |i| 119 - i).is_empty());
}

//! Answers to what-if come true: after the same change, another model of the API server and of
//! controllers shows what the answer said.

mod cluster;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use supercargo_framework::PodInfo;

use self::cluster::{
    Cluster, MOST_CYCLES, Mistake, Placement, Workload, base_name, counted, is_of_node, new_node, owned,
    owner_of,
};
use super::tables::templates::{Shape, of_shape, of_template};
use super::test_bed::{all_plugins, options};
use crate::{End, Verb, WhatIf, WhatIfError};

const ZONES: usize = 2;

/// What the answer says about the pods of the cluster, and the number that drains do not evict.
fn promised(cluster: &Cluster, verbs: &[Verb], answer: &WhatIf) -> (Placement, usize) {
    let mut new_nodes: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
    let mut added = 0;
    for verb in verbs {
        match verb {
            Verb::AddNodes { like, count } => {
                for _ in 0..*count {
                    added += 1;
                    new_nodes.insert(format!("{like}-new-{added}").into(), new_node(new_nodes.len()));
                }
            }
            Verb::AddPods { count, .. } => added += count,
            _ => {}
        }
    }
    let on = |node: &Arc<str>| Some(new_nodes.get(node).unwrap_or(node).clone());
    let pods = cluster.pods.values().filter(|pod| !is_of_node(pod));
    let mut places: BTreeMap<_, _> =
        pods.map(|pod| (Arc::clone(&pod.name), (owner_of(pod), pod.node_name.clone()))).collect();
    for verb in verbs {
        if let Verb::Delete(key) = verb {
            places.remove(&key.name);
        }
    }
    let mut held_up = 0;
    for outcome in &answer.pods {
        let name = &outcome.pod.name;
        let owner =
            cluster.pods.get(name).or_else(|| cluster.pods.get(&base_name(name))).map(|pod| owner_of(pod));
        let place = match &outcome.end {
            End::On(node) | End::Back(node) => on(node),
            End::Pending(_) => None,
            End::HeldUp { node, .. } => {
                held_up += 1;
                on(node)
            }
            End::Gone => {
                places.remove(name);
                continue;
            }
            End::Unknown => panic!("{name} has no claims"),
        };
        places.insert(Arc::clone(name), (owner.expect("the pod or its model existed"), place));
    }
    (counted(places.into_values()), held_up)
}

/// Pods of a controller, or without one.
#[derive(Clone, Debug)]
struct PlannedWorkload {
    kind: &'static str,
    template: usize,
    cpu: usize,
    priority: i32,
    replicas: usize,
}

/// A change. Numbers select among what exists.
#[derive(Clone, Copy, Debug)]
enum Change {
    AddNodes(usize, usize),
    AddPods(usize, usize),
    Delete(usize),
    Cordon(usize),
    Uncordon(usize),
    Drain(usize),
    DrainTwo(usize),
    Fail(usize),
}

/// A cluster, and a question about it.
#[derive(Clone, Debug)]
struct Plan {
    nodes: Vec<(Shape, bool)>,
    workloads: Vec<PlannedWorkload>,
    budgets: Vec<(&'static str, i64)>,
    changes: Vec<Change>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let shape = (0..=ZONES, 2..8_usize, 0..8_usize, prop::bool::weighted(0.1), any::<bool>(), 0..8_usize)
        .prop_map(|(zone, cpu, taint, is_unschedulable, has_ssd, images)| Shape {
            zone,
            cpu,
            taint,
            is_unschedulable,
            has_ssd,
            images,
            pods: 10,
        });
    let kind = prop_oneof![
        5 => Just("ReplicaSet"),
        2 => Just("Job"),
        1 => Just("StatefulSet"),
        1 => Just(""),
    ];
    let template = prop_oneof![2 => Just(40_usize), 3 => 0..26_usize, 1 => 26..35_usize];
    let workload =
        (kind, template, 0..4_usize, prop_oneof![3 => Just(0), 1 => Just(5), 1 => Just(9)], 1..5_usize)
            .prop_map(|(kind, template, cpu, priority, replicas)| PlannedWorkload {
                kind,
                template,
                cpu,
                priority,
                replicas,
            });
    let budget = (prop_oneof![Just("a"), Just("b"), Just("c")], 0..4_i64);
    let which = 0..100_usize;
    let change = prop_oneof![
        1 => (which.clone(), 1..3_usize).prop_map(|(like, count)| Change::AddNodes(like, count)),
        2 => (which.clone(), 1..4_usize).prop_map(|(like, count)| Change::AddPods(like, count)),
        1 => which.clone().prop_map(Change::Delete),
        1 => which.clone().prop_map(Change::Cordon),
        1 => which.clone().prop_map(Change::Uncordon),
        3 => which.clone().prop_map(Change::Drain),
        1 => which.clone().prop_map(Change::DrainTwo),
        2 => which.prop_map(Change::Fail),
    ];
    let budgets = prop_oneof![1 => Just(Vec::new()), 1 => prop::collection::vec(budget, 1..3)];
    (
        prop::collection::vec((shape, prop::bool::weighted(0.4)), 2..6),
        prop::collection::vec(workload, 1..6),
        budgets,
        prop::collection::vec(change, 1..3),
    )
        .prop_map(|(nodes, workloads, budgets, changes)| Plan { nodes, workloads, budgets, changes })
}

impl Plan {
    /// The cluster at rest; `None` if it finds none.
    fn cluster(&self, salt: u64) -> Option<Cluster> {
        let mut cluster = Cluster::new(0);
        for (app, least) in &self.budgets {
            cluster.budgets.insert(app, (*least, None));
        }
        for (number, (shape, has_daemon)) in self.nodes.iter().enumerate() {
            cluster.set_node(of_shape(number, 0, *shape, ZONES));
            if *has_daemon {
                let node = format!("n{number}");
                let (kind, priority) = if number % 3 == 2 { ("Node", 99) } else { ("DaemonSet", 100) };
                let daemon = of_template(40, &format!("agent-{node}")).priority(priority).node(&node).build();
                cluster.create(owned(daemon, kind, "agent"));
            }
        }
        for (number, planned) in self.workloads.iter().enumerate() {
            let owner: Arc<str> = format!("w{number}").into();
            let PlannedWorkload { kind, template, cpu, priority, replicas } = *planned;
            let mut pod = of_template(template, &owner).priority(priority);
            if cpu > 0 {
                pod = pod.request("cpu", &cpu.to_string());
            }
            let mut pod = pod.build();
            if !kind.is_empty() {
                pod = owned(pod, kind, &owner);
                let template = pod.clone();
                cluster.workloads.insert(Arc::clone(&owner), Workload { template, wanted: 0 });
            }
            for replica in 0..replicas {
                if let Some(workload) = cluster.workloads.get_mut(&owner) {
                    workload.wanted += 1;
                }
                cluster.create(PodInfo { name: format!("{owner}-{replica}").into(), ..pod.clone() });
                if replica % 2 == 0 && !cluster.rest() {
                    return None;
                }
                cluster.pass(Duration::from_secs(1));
            }
        }
        // Nothing differs between two runs up to here.
        let is_at_rest = cluster.rest();
        cluster.salt = salt;
        cluster.origins.clear();
        is_at_rest.then_some(cluster)
    }

    /// The question. A node that has failed is not named again.
    fn verbs(&self, cluster: &Cluster) -> Vec<Verb> {
        let mut nodes: Vec<_> = cluster.nodes.keys().cloned().collect();
        let pods: Vec<_> = cluster.pods.values().filter(|pod| !is_of_node(pod)).collect();
        let mut verbs = Vec::new();
        for change in &self.changes {
            let node = |which: usize| nodes.get(which % nodes.len().max(1)).cloned();
            let pod = |which: usize| pods.get(which % pods.len().max(1)).map(|pod| pod.key());
            verbs.extend(match *change {
                Change::AddNodes(which, count) => node(which).map(|like| Verb::AddNodes { like, count }),
                Change::AddPods(which, count) => pod(which).map(|like| Verb::AddPods { like, count }),
                Change::Delete(which) => pod(which).map(Verb::Delete),
                Change::Cordon(which) => node(which).map(Verb::Cordon),
                Change::Uncordon(which) => node(which).map(Verb::Uncordon),
                Change::Drain(which) => node(which).map(|node| Verb::Drain(vec![node])),
                Change::DrainTwo(which) => {
                    let mut two: Vec<_> = [node(which), node(which + 1)].into_iter().flatten().collect();
                    two.dedup();
                    Some(Verb::Drain(two))
                }
                Change::Fail(which) => node(which).map(|node| Verb::Fail(vec![node])),
            });
            if let Some(Verb::Fail(failed)) = verbs.last() {
                nodes.retain(|node| !failed.contains(node));
            }
        }
        verbs
    }
}

/// What became of a plan.
#[derive(Debug)]
enum Verdict {
    /// The answer came true, after this many trials with other UIDs.
    True(WhatIf, u64),
    /// The cluster does not come to rest, or the question has no answer.
    Unanswered,
}

/// The numbers of a node's preemption candidates that are alike depend on UIDs, which nobody
/// knows before. So the answer has to come true with one of a few.
const SALTS: u64 = 8;

/// Asks, makes the same changes, and compares.
fn check(plan: &Plan, mistake: Mistake) -> Result<Verdict, String> {
    let mut differences = Vec::new();
    for salt in 1..=if mistake == Mistake::None { SALTS } else { 1 } {
        let Some(mut cluster) = plan.cluster(salt) else { return Ok(Verdict::Unanswered) };
        let verbs = plan.verbs(&cluster);
        let fork = cluster.scheduler.fork(cluster.now, options(all_plugins(Vec::new()))).unwrap();
        let steps = AtomicUsize::new(0);
        let mut fork = fork.stop_when(move || steps.fetch_add(1, Ordering::Relaxed) > 2 * MOST_CYCLES);
        let answer = match fork.what_if(&verbs, 0) {
            Ok(answer) if answer.is_still => answer,
            Ok(_) | Err(WhatIfError::NoPod(_) | WhatIfError::Claims(_) | WhatIfError::Stopped) => {
                return Ok(Verdict::Unanswered);
            }
            Err(error) => return Err(error.to_string()),
        };
        let promised = promised(&cluster, &verbs, &answer);
        cluster.mistake = mistake;
        if !verbs.iter().all(|verb| cluster.apply(verb)) {
            return Ok(Verdict::Unanswered);
        }
        cluster.held_up.retain(|pod| cluster.pods.contains_key(pod));
        let happened = (cluster.placement(), cluster.held_up.len());
        if happened == promised && cluster.of_nodes == answer.of_nodes {
            return Ok(Verdict::True(answer, salt - 1));
        }
        differences.push(format!("{verbs:?}\npromised {promised:?}\nhappened {happened:?}"));
    }
    Err(differences.swap_remove(0))
}

/// The number of cases; `PROPTEST_CASES` overrides it.
fn config() -> Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000);
    Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_answer_comes_true(plan in plan()) {
        if let Err(difference) = check(&plan, Mistake::None) {
            prop_assert!(false, "{}", difference);
        }
    }
}

/// The plans that a generator makes first.
fn first_plans(count: usize) -> Vec<Plan> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| plan().new_tree(&mut runner).unwrap().current()).collect()
}

#[test]
fn a_wrong_model_is_noticed() {
    let plans = first_plans(100);
    for mistake in [Mistake::ReplacesNothing, Mistake::IgnoresBudgets, Mistake::ForgetsPriorities] {
        let noticed = plans.iter().filter(|plan| check(plan, mistake).is_err()).count();
        assert!(noticed >= 3, "{mistake:?} is noticed in {noticed} plans");
    }
}

#[test]
fn plans_lead_to_all_that_may_become_of_a_pod() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for plan in first_plans(200) {
        let Ok(Verdict::True(answer, attempts)) = check(&plan, Mistake::None) else {
            *counts.entry("unanswered").or_default() += 1;
            continue;
        };
        let mut seen: Vec<_> = answer.pods.iter().map(|pod| name_of(&pod.end)).collect();
        seen.extend(answer.pods.iter().filter(|pod| pod.is_preempted).map(|_| "preempted"));
        seen.extend((attempts > 0).then_some("chance"));
        seen.sort_unstable();
        seen.dedup();
        for end in seen {
            *counts.entry(end).or_default() += 1;
        }
    }
    let of = |end: &str| counts.get(end).copied().unwrap_or_default();
    for end in ["on", "pending", "gone", "held up", "preempted"] {
        assert!(of(end) >= 5, "{counts:?}");
    }
    assert!(of("unanswered") <= 60 && of("chance") <= 10, "{counts:?}");
}

fn name_of(end: &End) -> &'static str {
    match end {
        End::On(_) => "on",
        End::Back(_) => "back",
        End::Pending(_) => "pending",
        End::Gone => "gone",
        End::HeldUp { .. } => "held up",
        End::Unknown => "unknown",
    }
}

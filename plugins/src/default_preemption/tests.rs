//! The plugin on clusters where a pod fits if its CPU request does.

mod choice;
mod minimality;
mod totals;

use std::sync::Arc;

use rustc_hash::FxHashSet;
use serde_json::{Value, json};
use supercargo_framework::context::Command;
use supercargo_framework::event::QueueingHint;
use supercargo_framework::features::{Feature, Features};
use supercargo_framework::objects::resources::POD_DISRUPTION_BUDGET;
use supercargo_framework::objects::{Body, Object, Objects, PodDisruptionBudget};
use supercargo_framework::plugin::{Candidate, ExtensionPoints, NodeStatuses, Nomination, RunFilters};
use supercargo_framework::selector::LabelSelector;
use supercargo_framework::testing::{PodBuilder, node, node_info, nodes, object, pod, pod_deleted};
use supercargo_framework::{
    Code, Context, CycleState, EventResource, Labels, NodeIndex, NodeInfo, Nodes, Now, PodInfo, QueueContext,
    Status, Timestamp, WaitingPods,
};

use super::{NAME, from_args};
use crate::testing::{driver, driver_with_args};

/// Filters that only check CPU.
pub(super) struct ByCpu;

impl RunFilters for ByCpu {
    fn run_filters(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let free = node.allocatable().milli_cpu - node.requested().milli_cpu;
        if node.node().unschedulable {
            Status::unresolvable("node(s) were unschedulable")
        } else if pod.requests().resource.milli_cpu > free {
            Status::unschedulable("Insufficient cpu")
        } else {
            Status::success()
        }
    }

    fn add_pod(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeInfo) -> Status {
        Status::success()
    }

    fn remove_pod(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeInfo) -> Status {
        Status::success()
    }

    fn extend_preemption(
        &self,
        _: &Arc<PodInfo>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Status> {
        Ok(candidates)
    }
}

/// The result of PostFilter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) nomination: Nomination,
    pub(super) status: Status,
    /// The node and the victims of the Preempt command, if any.
    pub(super) order: Option<(String, Vec<String>)>,
}

impl Answer {
    /// Nodes and victims.
    pub(super) fn order(&self) -> Option<(&str, Vec<&str>)> {
        let (node, victims) = self.order.as_ref()?;
        Some((node, victims.iter().map(String::as_str).collect()))
    }
}

/// Runs the filters and then PostFilter.
pub(super) fn post_filter(pod: PodBuilder, nodes: &Nodes, objects: &Objects) -> Answer {
    run(&driver(NAME).points, pod, nodes, objects, &ByCpu, None)
}

fn run(
    points: &ExtensionPoints,
    pod: PodBuilder,
    nodes: &Nodes,
    objects: &Objects,
    filters: &dyn RunFilters,
    statuses: Option<NodeStatuses>,
) -> Answer {
    let pod = Arc::new(pod.build());
    let now = Now { wall: at(100), ..Now::default() };
    let cx = Context::new(nodes, objects, WaitingPods::NONE, now);
    let state = CycleState::new();
    let of_filters = || nodes.iter().map(|(i, node)| (i, ByCpu.run_filters(&state, &pod, node))).collect();
    let statuses = statuses.unwrap_or_else(of_filters);
    let plugin = points.post_filter.as_ref().unwrap();
    let (nomination, status) = plugin.post_filter(&cx, &state, &pod, &statuses, filters);
    let order = cx.take_commands().into_iter().map(|command| match command {
        Command::Preempt { node, victims, plugin, preemptor, asynchronous: true } => {
            assert_eq!((&*plugin, preemptor), (NAME, Arc::clone(&pod).into()));
            (node.to_string(), victims.pods.iter().map(|victim| victim.name.to_string()).collect())
        }
        other => panic!("{other:?}"),
    });
    Answer { nomination, status, order: order.last() }
}

/// A node with four CPUs.
pub(super) fn four(name: &str, pods: impl IntoIterator<Item = PodBuilder>) -> NodeInfo {
    let pods = pods.into_iter().map(PodBuilder::build);
    node_info(node(name).allocatable("cpu", "4").build(), pods)
}

/// A pod that requests this many CPUs.
pub(super) fn cpus(name: &str, cpus: u32) -> PodBuilder {
    pod(name).request("cpu", &cpus.to_string())
}

pub(super) fn started(pod: PodBuilder, seconds: i64) -> PodBuilder {
    pod.with(|pod| pod.status.start_time = Some(at(seconds)))
}

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1_000_000)
}

/// A budget for the pods labelled `app`.
pub(super) fn budget(app: &str, allowed: i32) -> Object {
    let labels: Labels = [("app", app)].into_iter().collect();
    let budget = PodDisruptionBudget {
        selector: Some(LabelSelector::parse(&labels, []).unwrap()),
        disruptions_allowed: allowed,
        ..PodDisruptionBudget::default()
    };
    of_budget("default/budget", budget)
}

fn of_budget(key: &str, budget: PodDisruptionBudget) -> Object {
    object(&POD_DISRUPTION_BUDGET, key, Body::PodDisruptionBudget(budget))
}

pub(super) fn objects(all: impl IntoIterator<Item = Object>) -> Objects {
    let mut objects = Objects::default();
    for object in all {
        objects.insert(Arc::new(object));
    }
    objects
}

fn found(node: &str, victims: usize) -> Status {
    let placement =
        format!("found a potential placement for pod on node {node}, preempting {victims} victims");
    Status::new(Code::Success, format!("preemption: {placement}"))
}

fn none_found(text: &str) -> Status {
    Status::unschedulable(format!("preemption: {text}"))
}

#[test]
fn preemption_nominates_the_chosen_node() {
    let cluster = nodes([four("n1", [cpus("low", 4)])]);
    let answer = post_filter(cpus("high", 3).priority(1), &cluster, &Objects::default());
    assert_eq!(answer.nomination, Nomination::Override(Some("n1".into())));
    assert_eq!(answer.status, found("n1", 1));
    assert_eq!(answer.order(), Some(("n1", vec!["low"])));
}

#[test]
fn the_preemption_message_counts_victims_that_terminate() {
    let cluster = nodes([four("n1", [cpus("low", 2).terminating(), cpus("lower", 2).priority(-1)])]);
    let answer = post_filter(cpus("high", 4).priority(1), &cluster, &Objects::default());
    assert_eq!(answer.status, found("n1", 2));
}

#[test]
fn preemption_policy_never_keeps_the_nomination() {
    let cluster = nodes([four("n1", [cpus("low", 4)])]);
    let patient = cpus("high", 3).priority(1).with_spec(|spec| spec.never_preempts = true);
    let answer = post_filter(patient, &cluster, &Objects::default());
    let status = none_found("not eligible due to preemptionPolicy=Never.");
    assert_eq!(answer, Answer { nomination: Nomination::Keep, status, order: None });
}

#[test]
fn the_preemption_message_covers_every_node() {
    let cordoned = node_info(node("cordoned").unschedulable().build(), []);
    let cluster = nodes([
        cordoned,
        four("equals", [cpus("equal", 4).priority(1)]),
        four("both", [cpus("same", 3).priority(1), cpus("lower", 1)]),
    ]);
    let answer = post_filter(cpus("high", 3).priority(1), &cluster, &Objects::default());
    let status = none_found(
        "0/3 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, \
         1 Preemption is not helpful for scheduling.",
    );
    assert_eq!(answer, Answer { nomination: Nomination::Override(None), status, order: None });
}

#[test]
fn unhelpful_preemption_counts_all_nodes() {
    let cordoned = |name: &str| node_info(node(name).unschedulable().build(), []);
    let answer = post_filter(pod("p"), &nodes([cordoned("a"), cordoned("b")]), &Objects::default());
    let text = "0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(answer.status, none_found(text));
}

#[test]
fn nodes_without_own_status_use_the_common_status() {
    let cluster = nodes([four("n1", [cpus("a", 4)]), four("n2", [started(cpus("b", 4), 5)])]);
    let points = driver(NAME).points.clone();
    let preempt = |absent, by_node: Vec<(NodeIndex, Status)>| {
        let mut statuses: NodeStatuses = by_node.into_iter().collect();
        statuses.absent = absent;
        let high = cpus("high", 4).priority(1);
        run(&points, high, &cluster, &Objects::default(), &ByCpu, Some(statuses))
    };
    let first = cluster.order()[0];
    let beyond_help = || Status::unresolvable("never");
    let answer = preempt(Some(Status::unschedulable("no")), vec![(first, beyond_help())]);
    assert_eq!(answer.order(), Some(("n2", vec!["b"])));
    let answer = preempt(Some(beyond_help()), vec![(first, Status::unschedulable("no"))]);
    assert_eq!(answer.order(), Some(("n1", vec!["a"])));
    let answer = preempt(None, Vec::new());
    assert_eq!(answer.order(), None, "no node has a status");
}

#[test]
fn terminating_victims_on_the_nominated_node_block_preemption() {
    let leaving = |reason: Option<&str>| {
        let low = cpus("low", 4).terminating();
        match reason {
            Some(reason) => low.disrupted(reason, ""),
            None => low,
        }
    };
    let waits = Some("preemption: not eligible due to a terminating pod on the nominated node.");
    let cases = [
        ("ours", leaving(Some("PreemptionByScheduler")), "n1", waits),
        ("not preempted", leaving(None), "n1", None),
        ("evicted", leaving(Some("EvictionByEvictionAPI")), "n1", None),
        ("elsewhere", leaving(Some("PreemptionByScheduler")), "n2", None),
        ("on a node that is gone", leaving(Some("PreemptionByScheduler")), "n9", None),
        ("as important as the pod", leaving(Some("PreemptionByScheduler")).priority(1), "n1", None),
    ];
    for (name, victim, nominated, expected) in cases {
        let cluster = nodes([four("n1", [victim]), four("n2", [cpus("other", 4)])]);
        let high = cpus("high", 4).priority(1).nominated(nominated);
        let answer = post_filter(high, &cluster, &Objects::default());
        match expected {
            Some(text) => {
                assert_eq!(answer.status, Status::unschedulable(text), "{name}");
                assert_eq!((answer.nomination, answer.order), (Nomination::Keep, None), "{name}");
            }
            None => assert!(answer.order.is_some(), "{name}: {:?}", answer.status),
        }
    }
}

#[test]
fn an_unresolvable_nominated_node_allows_preemption() {
    let victim = cpus("low", 4).terminating().disrupted(super::PREEMPTED, "");
    let mut cordoned = four("n1", [victim]);
    cordoned.set_node(Arc::new(node("n1").unschedulable().build()));
    let cluster = nodes([cordoned, four("n2", [cpus("other", 4)])]);
    let answer = post_filter(cpus("high", 4).priority(1).nominated("n1"), &cluster, &Objects::default());
    assert_eq!(answer.order(), Some(("n2", vec!["other"])));
}

/// Filters that fail.
struct Broken(&'static str);

impl RunFilters for Broken {
    fn run_filters(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        match self.0 {
            "filter" => Status::error("it broke"),
            "always fits" => Status::success(),
            _ => ByCpu.run_filters(state, pod, node),
        }
    }

    fn add_pod(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeInfo) -> Status {
        if self.0 == "add" { Status::unschedulable("cannot add") } else { Status::success() }
    }

    fn remove_pod(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, node: &NodeInfo) -> Status {
        if self.0 == "remove" { Status::error(format!("no {}", node.name())) } else { Status::success() }
    }

    fn extend_preemption(
        &self,
        _: &Arc<PodInfo>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Status> {
        match self.0 {
            "extender" => Err(Status::error("the extender broke")),
            "strict extender" => Ok(Vec::new()),
            _ => Ok(candidates),
        }
    }
}

#[test]
fn failures_are_reported_and_keep_the_nomination() {
    let cluster = nodes([four("n1", [cpus("a", 4)])]);
    let error = Status::error;
    let cases = [
        ("filter", error("preemption: it broke")),
        ("add", error("preemption: cannot add")),
        ("remove", error("preemption: no n1")),
        ("always fits", error("preemption: expected at least one victim pod on node \"n1\"")),
        ("extender", error("preemption: the extender broke")),
        ("strict extender", Status::unschedulable("preemption: no candidate node for preemption")),
    ];
    let points = driver(NAME).points.clone();
    for (what, status) in cases {
        let high = cpus("high", 4).priority(1);
        let answer = run(&points, high, &cluster, &Objects::default(), &Broken(what), None);
        assert_eq!(answer, Answer { nomination: Nomination::Keep, status, order: None }, "{what}");
    }
}

#[test]
fn pods_with_a_preemption_in_flight_are_gated() {
    // Without the gate of groups, that of the pod does not matter.
    let (objects, high) = (Objects::default(), pod("high").group("g").build());
    let held = |points: &ExtensionPoints, uids: &[&str]| {
        let preempting: FxHashSet<_> = uids.iter().map(|uid| (*uid).into()).collect();
        let cx = QueueContext { objects: &objects, preempting: &preempting };
        points.pre_enqueue.as_ref().unwrap().pre_enqueue(&cx, &high)
    };
    let points = driver(NAME).points.clone();
    let text = "waiting for the preemption for this pod to be finished";
    assert_eq!(held(&points, &["high"]), Status::unresolvable(text));
    assert!(held(&points, &["other"]).is_success());
    let synchronous = Features::default().with(Feature::SchedulerAsyncPreemption, false);
    let points = from_args(&Value::Null, &synchronous).unwrap().extension_points();
    assert!(held(&points, &["high"]).is_success());
    assert!(points.enqueue_extensions.unwrap().events_to_register().is_empty());
}

#[test]
fn deleted_pods_do_not_wake_the_preemptor() {
    let driver = driver(NAME);
    let hint = driver.hint(
        EventResource::AssignedPod,
        supercargo_framework::ActionType::DELETE,
        &pod("high").build(),
        &pod_deleted(pod("low").node("n1").build()),
    );
    assert_eq!(hint, Some(Ok(QueueingHint::Skip)));
    let hint = driver.hint(
        EventResource::Node,
        supercargo_framework::ActionType::ADD,
        &pod("high").build(),
        &supercargo_framework::testing::node_added(node("n1").build()),
    );
    assert_eq!(hint, None);
}

#[test]
fn the_search_ends_with_enough_candidates_without_violations() {
    let args = json!({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1});
    let points = driver_with_args(NAME, args).points.clone();
    let names: Vec<_> = (0..20).map(|i| format!("n{i}")).collect();
    let tried = |protected: &dyn Fn(usize) -> bool, uid: &str| {
        let infos = names.iter().enumerate().map(|(i, name)| {
            let victim = cpus(&format!("low-{name}"), 4);
            four(name, [if protected(i) { victim.label("app", "web") } else { victim }])
        });
        let high = cpus("high", 4).priority(1).uid(uid);
        let answer = run(&points, high, &nodes(infos), &objects([budget("web", 0)]), &ByCpu, None);
        answer.order.unwrap().0
    };
    let firsts: FxHashSet<_> = (0..40).map(|uid| tried(&|_| false, &uid.to_string())).collect();
    assert!(firsts.len() > 5, "pods begin in different places: {firsts:?}");
    for uid in ["a", "b", "c"] {
        assert_eq!(tried(&|i| i != 13, uid), "n13", "the only node without a violation is found");
    }
}

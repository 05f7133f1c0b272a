//! Optimized preemption leads to the same result as dry runs of everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use supercargo_framework::objects::resources::POD_DISRUPTION_BUDGET;
use supercargo_framework::objects::{Body, PodDisruptionBudget};
use supercargo_framework::plugin::{
    Candidate, ExtensionPoints, NodeStatuses, Nomination, PostFilterPlugin, RunFilters,
};
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::selector::LabelSelector;
use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, object, pod};
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{
    Context, CycleState, Features, Labels, NodeInfo, Plugin, PodInfo, Status, TaintEffect, Timestamp,
};
use supercargo_plugins::default_preemption;

use super::test_bed::{TestBed, all_plugins, options, plugins};
use crate::{Effect, Eviction, Input, Notification};

/// DefaultPreemption without access to optimizations.
struct Plodding(ExtensionPoints);

impl Plugin for Plodding {
    fn name(&self) -> &'static str {
        default_preemption::NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        let own = ExtensionPoints::new().post_filter(&self);
        ExtensionPoints { post_filter: own.post_filter, ..self.0.clone() }
    }
}

impl PostFilterPlugin for Plodding {
    fn post_filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &Arc<PodInfo>,
        statuses: &NodeStatuses,
        filters: &dyn RunFilters,
    ) -> (Nomination, Status) {
        let inner = self.0.post_filter.as_ref().expect("preemption is a PostFilter plugin");
        inner.post_filter(cx, state, pod, statuses, &Bare(filters))
    }
}

/// Filters without optimizations of dry runs.
struct Bare<'a>(&'a dyn RunFilters);

impl RunFilters for Bare<'_> {
    fn run_filters(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        self.0.run_filters(state, pod, node)
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status {
        self.0.add_pod(state, pod, added, node)
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
    ) -> Status {
        self.0.remove_pod(state, pod, removed, node)
    }

    fn extend_preemption(
        &self,
        pod: &Arc<PodInfo>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Status> {
        self.0.extend_preemption(pod, candidates)
    }
}

fn selecting(app: &str) -> LabelSelector {
    LabelSelector::parse(&[("app", app)].into_iter().collect::<Labels>(), []).expect("a plain label")
}

pub(super) fn repelling(pod: PodBuilder, app: &str, key: &str) -> PodBuilder {
    let term = PodAffinityTerm {
        selector: Some(selecting(app)),
        topology_key: key.into(),
        ..PodAffinityTerm::default()
    };
    pod.with_spec(|spec| {
        spec.pod_affinity =
            Some(Box::new(PodAffinity { required_anti_affinity: [term].into(), ..PodAffinity::default() }));
    })
}

pub(super) fn spreading(pod: PodBuilder, app: &str) -> PodBuilder {
    let constraint = TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "zone".into(),
        hard: true,
        selector: Some(selecting(app)),
        min_domains: None,
        honors_affinity: true,
        honors_taints: false,
        match_label_keys: Box::default(),
    };
    pod.with_spec(|spec| spec.topology_spread = [constraint].into())
}

type PodChange = fn(PodBuilder) -> PodBuilder;

const POD_CHANGES: &[PodChange] = &[
    |pod| pod,
    |pod| pod.request("cpu", "1"),
    |pod| pod.request("cpu", "2"),
    |pod| pod.request("cpu", "3").request("memory", "2Gi"),
    |pod| pod.request("memory", "3Gi").request("ephemeral-storage", "1Gi"),
    |pod| pod.request("example.com/gpu", "1"),
    |pod| pod.request("cpu", "1").request("example.com/gpu", "2"),
    |pod| pod.host_port(80),
    |pod| pod.label("app", "a"),
    |pod| pod.label("app", "b"),
    |pod| repelling(pod.label("app", "a"), "a", "host"),
    |pod| repelling(pod, "b", "zone"),
    |pod| spreading(pod.label("app", "b"), "b"),
    |pod| pod.node_selector("zone", "z0"),
    |pod| pod.tolerates("k", "", TaintEffect::NoSchedule),
    |pod| pod.with(|pod| pod.status.start_time = Some(Timestamp(7))),
];

/// The changes of a pod, and its priority.
type Shape = (Vec<PodChange>, i32);

fn shape(priorities: std::ops::Range<i32>) -> impl Strategy<Value = Shape> {
    (proptest::collection::vec(proptest::sample::select(POD_CHANGES), 1..4), priorities)
}

fn build(name: &str, (changes, priority): &Shape) -> PodBuilder {
    changes.iter().fold(pod(name).priority(*priority), |pod, change| change(pod))
}

type NodeChange = fn(NodeBuilder) -> NodeBuilder;

const NODE_CHANGES: &[NodeChange] = &[
    |node| node,
    |node| node,
    |node| node.allocatable("cpu", "2"),
    |node| node.allocatable("pods", "2"),
    |node| node.allocatable("example.com/gpu", "2").allocatable("ephemeral-storage", "1Gi"),
    |node| node.taint("k", "", TaintEffect::NoSchedule),
    NodeBuilder::unschedulable,
];

type NodePlan = (Vec<NodeChange>, Vec<Shape>);

fn node_plan() -> impl Strategy<Value = NodePlan> {
    let changes = proptest::collection::vec(proptest::sample::select(NODE_CHANGES), 1..3);
    (changes, proptest::collection::vec(shape(-1..4), 0..6))
}

/// Fills one of the two clusters.
fn populate(bed: &mut TestBed, nodes: &[NodePlan], budget: Option<i32>) {
    if let Some(disruptions_allowed) = budget {
        let selector = Some(selecting("a"));
        let budget = PodDisruptionBudget { selector, disruptions_allowed, ..Default::default() };
        let budget = object(&POD_DISRUPTION_BUDGET, "default/budget", Body::PodDisruptionBudget(budget));
        bed.handle(Input::Object(Notification::Added(Arc::new(budget))));
    }
    for (i, (changes, pods)) in nodes.iter().enumerate() {
        let name = format!("n{i}");
        let small = node(&name)
            .allocatable("memory", "4Gi")
            .label("host", &name)
            .label("zone", &format!("z{}", i % 2));
        bed.node(changes.iter().fold(small, |node, change| change(node)));
        for (j, shape) in pods.iter().enumerate() {
            bed.assigned(build(&format!("{name}-{j}"), shape).node(&name));
        }
    }
}

/// Deletes the victims of a cycle. Returns the lines of its effects.
fn follow(bed: &mut TestBed, assigned: &mut BTreeMap<String, PodBuilder>) -> Vec<String> {
    let effects = bed.effects();
    let reported = effects.iter().map(super::test_bed::line).collect();
    for effect in effects {
        if let Effect::Evict { preemption, victims } = effect {
            let outcomes = vec![Eviction::Deleted; victims.len()];
            bed.handle(Input::Evicted { preemption, outcomes });
            for victim in victims {
                if let Some(pod) = assigned.remove(&*victim.pod.name) {
                    bed.delete_assigned(pod);
                }
            }
        }
    }
    reported
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Nodes, victims and texts are equal for a sequence of pods. Later pods run while earlier ones
    /// are nominated.
    #[test]
    fn preemption_equals_plain_dry_runs(
        nodes in proptest::collection::vec(node_plan(), 1..8),
        newcomers in proptest::collection::vec(shape(0..6), 1..5),
        budget in prop::option::of(0..2_i32),
    ) {
        let inner = supercargo_plugins::registry().get(default_preemption::NAME).expect("it is in-tree");
        let inner = inner(&serde_json::Value::Null, &Features::default()).expect("it needs no arguments");
        let plodding: Arc<dyn Plugin> = Arc::new(Plodding(inner.extension_points()));
        let mut beds = [TestBed::of(options(all_plugins(vec![]))), TestBed::of(options(plugins(vec![plodding])))];
        let mut received: Vec<Vec<Vec<String>>> = Vec::new();
        for bed in &mut beds {
            populate(bed, &nodes, budget);
            let mut assigned: BTreeMap<_, _> = nodes
                .iter()
                .enumerate()
                .flat_map(|(i, (_, pods))| pods.iter().enumerate().map(move |(j, shape)| (i, j, shape)))
                .map(|(i, j, shape)| {
                    let name = format!("n{i}-{j}");
                    (name.clone(), build(&name, shape).node(&format!("n{i}")))
                })
                .collect();
            let mut reported = Vec::new();
            for (i, shape) in newcomers.iter().enumerate() {
                bed.pod(build(&format!("new-{i}"), shape));
                bed.cycle();
                reported.push(follow(bed, &mut assigned));
                reported.push(follow(bed, &mut assigned));
            }
            bed.pass_seconds(30);
            while bed.cycle() {
                reported.push(follow(bed, &mut assigned));
            }
            received.push(reported);
        }
        prop_assert_eq!(&received[0], &received[1]);
    }
}

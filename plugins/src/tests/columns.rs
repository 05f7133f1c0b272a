//! Answers by columns equal answers by node.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use supercargo_framework::objects::Objects;
use supercargo_framework::testing::caching::{Columns, check_columns};
use supercargo_framework::testing::{self, Driver, NodeBuilder, PodBuilder, node, pod};
use supercargo_framework::{Context, Feature, Features, NodeIndex, NodeInfo, Nodes, PodInfo, TaintEffect};

use crate::testing::driver_with_args;
use crate::{DEFAULT_PLUGINS, registry};

/// Amounts of every magnitude, on both sides of the floating-point limit, and invalid ones.
fn amount() -> impl Strategy<Value = i64> {
    const EDGES: &[i64] = &[0, 1, 99, 100, 1 << 44, (1 << 45) - 1, 1 << 45, 1 << 52, i64::MAX, -1, i64::MIN];
    prop_oneof![
        2 => 0..2_000_i64,
        2 => (0..40_u32, 1..i64::from(u32::MAX)).prop_map(|(shift, amount)| amount << 8 >> shift),
        1 => proptest::sample::select(EDGES),
    ]
}

const RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "example.com/gpu"];

/// Sets an allocatable resource of a node.
fn offer(node: NodeBuilder, name: &str, amount: i64) -> NodeBuilder {
    let unit = if name == "cpu" { "m" } else { "" };
    node.allocatable(name, &format!("{amount}{unit}"))
}

fn ask(pod: PodBuilder, name: &str, amount: i64) -> PodBuilder {
    let unit = if name == "cpu" { "m" } else { "" };
    pod.request(name, &format!("{}{unit}", amount.max(0)))
}

type PodChange = fn(PodBuilder) -> PodBuilder;

const POD_CHANGES: &[PodChange] = &[
    |pod| pod.request("cpu", "100m").request("memory", "500Mi"),
    |pod| pod.request("cpu", "2").request("memory", "1Gi").request("ephemeral-storage", "1Gi"),
    |pod| pod.pod_level_request("cpu", "2").pod_level_request("memory", "1Gi"),
    |pod| pod.container(),
    |pod| pod.host_port(80),
    |pod| pod.host_port(81),
    |pod| pod.image("app:1"),
    |pod| pod.image("app:1").image("other").image("app:1"),
    |pod| pod.node("n2"),
    |pod| pod.node("nowhere"),
    |pod| pod.tolerates("k", "", TaintEffect::NoSchedule),
    |pod| pod.tolerates("k", "", TaintEffect::PreferNoSchedule),
    |pod| pod.tolerates("node.kubernetes.io/unschedulable", "", TaintEffect::NoSchedule),
    |pod| pod.with_spec(|spec| spec.required_features = ["F".into()].into()),
    |pod| pod.request("example.com/gpu", "1"),
    |pod| pod.request("example.com/gpu", "1").request("other.com/gpu", "1"),
];

fn random_pod() -> impl Strategy<Value = PodInfo> {
    let changes = proptest::collection::vec(proptest::sample::select(POD_CHANGES), 0..4);
    let asked = proptest::collection::vec((proptest::sample::select(&RESOURCES[..]), amount()), 0..3);
    (changes, asked, 0..u64::MAX).prop_map(|(changes, asked, id)| {
        let start = pod(&format!("pod-{id}"));
        let changed = changes.into_iter().fold(start, |pod, change| change(pod));
        asked.into_iter().fold(changed, |pod, (name, amount)| ask(pod, name, amount)).build()
    })
}

type NodeChange = fn(NodeBuilder) -> NodeBuilder;

const NODE_CHANGES: &[NodeChange] = &[
    |node| node,
    |node| node,
    |node| node,
    |node| node.allocatable("pods", "1"),
    |node| node.allocatable("ephemeral-storage", "100Gi"),
    |node| node.allocatable("example.com/gpu", "2"),
    |node| node.taint("k", "", TaintEffect::NoSchedule),
    |node| node.taint("k", "", TaintEffect::PreferNoSchedule).taint("l", "", TaintEffect::PreferNoSchedule),
    |node| node.taint("m", "", TaintEffect::NoExecute),
    |node| node.unschedulable(),
    |node| node.image("app:1", 400_000_000).image("more:1", 100),
    |node| node.image("docker.io/library/other:latest", i64::MAX),
    |node| node.image("other:latest", 90_000_000),
];

/// A planned node, and whether it is removed again.
type Plan = (Vec<NodeChange>, Vec<(&'static str, i64)>, Vec<usize>, bool);

fn random_plan() -> impl Strategy<Value = Plan> {
    let changes = proptest::collection::vec(proptest::sample::select(NODE_CHANGES), 0..3);
    let offered = prop_oneof![
        3 => Just(Vec::new()),
        1 => proptest::collection::vec((proptest::sample::select(&RESOURCES[..]), amount()), 1..3),
    ];
    (changes, offered, proptest::collection::vec(0..6_usize, 0..4), proptest::bool::weighted(0.1))
}

fn build(plans: Vec<Plan>, pods: &[Arc<PodInfo>], features: &[bool]) -> Nodes {
    let mut nodes = Nodes::default();
    let mut gone = Vec::new();
    for (i, (changes, offered, placed, leaves)) in plans.into_iter().enumerate() {
        let start = node(&format!("n{i}")).label("kubernetes.io/hostname", &format!("n{i}"));
        let changed = changes.into_iter().fold(start, |node, change| change(node));
        let mut record =
            offered.into_iter().fold(changed, |node, (name, amount)| offer(node, name, amount)).build();
        if features[i % features.len()] {
            record.declared_features = ["F".into()].into();
        }
        let mut info = NodeInfo::new(Arc::new(record));
        for pod in placed {
            info.add_pod(Arc::clone(&pods[pod]));
        }
        let index = nodes.insert(info);
        if leaves {
            gone.push(index);
        }
    }
    for index in &gone {
        nodes.remove(*index);
    }
    let slots = nodes.columns().len() as u32;
    nodes.set_order((0..slots).map(NodeIndex).filter(|index| !gone.contains(index)).collect());
    nodes
}

/// Every default plugin, and resource scores with other arguments.
fn drivers() -> Vec<(String, Driver)> {
    let ratio = json!({"shape": [{"utilization": 10, "score": 0}, {"utilization": 70, "score": 10}, {"utilization": 90, "score": 3}]});
    let weighted = json!([{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}, {"name": "ephemeral-storage", "weight": 100}]);
    let with_gpu = json!([{"name": "memory", "weight": 2}, {"name": "example.com/gpu", "weight": 7}]);
    let fit = |kind: &str, resources: &Value, ratio: Value| {
        let strategy = json!({"type": kind, "resources": resources, "requestedToCapacityRatio": ratio});
        ("NodeResourcesFit", json!({"scoringStrategy": strategy, "ignoredResources": ["other.com/gpu"]}))
    };
    let balanced = |names: &[&str]| {
        let resources: Vec<_> = names.iter().map(|name| json!({"name": name, "weight": 1})).collect();
        ("NodeResourcesBalancedAllocation", json!({"resources": resources}))
    };
    let defaults = DEFAULT_PLUGINS.iter().map(|plugin| (plugin.name, Value::Null));
    let others = [
        fit("LeastAllocated", &weighted, Value::Null),
        fit("LeastAllocated", &with_gpu, Value::Null),
        fit("MostAllocated", &Value::Null, Value::Null),
        fit("MostAllocated", &weighted, Value::Null),
        fit("RequestedToCapacityRatio", &Value::Null, ratio.clone()),
        fit("RequestedToCapacityRatio", &weighted, ratio),
        balanced(&["memory"]),
        balanced(&["ephemeral-storage", "cpu"]),
        balanced(&["cpu", "memory", "ephemeral-storage"]),
        balanced(&["cpu", "example.com/gpu"]),
    ];
    defaults
        .chain(others)
        .map(|(name, args)| (format!("{name} {args}"), driver_with_args(name, args)))
        .collect()
}

/// Compares the columns' answers of one plugin with those of single nodes.
fn compare(driver: &testing::Driver, pod: &PodInfo, nodes: &Nodes) -> Result<Columns, TestCaseError> {
    let objects = Objects::default();
    let cx = || Context::at_rest(nodes, &objects).tracking();
    check_columns(driver, cx, pod, nodes).map_err(|mismatch| TestCaseError::fail(mismatch.to_string()))
}

proptest! {
    #[test]
    fn columns_equal_single_answers(
        plans in proptest::collection::vec(random_plan(), 0..140),
        placed in proptest::collection::vec(random_pod(), 6),
        features in proptest::collection::vec(any::<bool>(), 1..4),
        pods in proptest::collection::vec(random_pod(), 1..4),
    ) {
        let placed: Vec<_> = placed.into_iter().map(Arc::new).collect();
        let nodes = build(plans, &placed, &features);
        for (name, driver) in drivers() {
            for pod in &pods {
                compare(&driver, pod, &nodes).map_err(|error| TestCaseError::fail(format!("{name}: {error}")))?;
            }
        }
    }
}

#[test]
fn columns_answer_for_simple_pods_and_nodes() {
    let features = Features::default().with(Feature::NodeDeclaredFeatures, true);
    let mut nodes = Nodes::default();
    let order =
        (0..3).map(|i| nodes.insert(NodeInfo::new(Arc::new(node(&format!("n{i}")).build())))).collect();
    nodes.set_order(order);
    let pod = pod("p").request("cpu", "100m").host_port(80).image("app").request("example.com/gpu", "1");
    let pod = pod.with_spec(|spec| spec.required_features = ["F".into()].into()).build();
    let (mut filters, mut scores) = (Vec::new(), Vec::new());
    for plugin in DEFAULT_PLUGINS {
        let factory = registry().get(plugin.name).expect("every default plugin is registered");
        let built = factory(&Value::Null, &features).expect("every default plugin works without arguments");
        let driver = testing::Driver::new(built);
        let answered =
            compare(&driver, &pod, &nodes).unwrap_or_else(|error| panic!("{}: {error}", plugin.name));
        filters.extend(answered.filter.then_some(plugin.name));
        scores.extend(answered.score.then_some(plugin.name));
    }
    let expected = [
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodePorts",
        "NodeResourcesFit",
        "NodeDeclaredFeatures",
    ];
    assert_eq!(filters, expected);
    assert_eq!(
        scores,
        ["TaintToleration", "NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality"]
    );
}

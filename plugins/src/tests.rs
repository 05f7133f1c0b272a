//! Properties of all plugins.

mod columns;
mod exclusive_claims;
mod hint_scopes;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use supercargo_framework::features::Version;
use supercargo_framework::objects::{
    Body, Namespace, Object, Objects, PersistentVolume, StorageClass, Workload, annotations, resources,
};
use supercargo_framework::plugin::{Normalize, Plugin};
use supercargo_framework::pod::{OwnerRef, RareSpec};
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm};
use supercargo_framework::signature::{Signature, Signer};
use supercargo_framework::testing::{
    Driver, NodeBuilder, PodBuilder, claim, node, node_info, nodes, object, objects, pod,
};
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::volume::{Volume, VolumeSource};
use supercargo_framework::{
    ActionType, EventResource, Features, LabelSelector, Labels, NodeInfo, Nodes, PodInfo, TaintEffect,
};

use crate::testing::driver;
use crate::{DEFAULT_PLUGINS, history, registry};

fn build(name: &str) -> Arc<dyn Plugin> {
    let factory = registry().get(name).expect("every default plugin is registered");
    factory(&Value::Null, &Features::default()).expect("every default plugin works without arguments")
}

#[test]
fn default_plugins_are_registered_under_their_names() {
    let registered: BTreeSet<_> = registry().names().collect();
    let enabled: BTreeSet<_> = DEFAULT_PLUGINS.iter().map(|plugin| plugin.name).collect();
    assert_eq!(registered, enabled);
    assert_eq!(enabled.len(), DEFAULT_PLUGINS.len(), "none is enabled twice");
    for name in registered {
        assert_eq!(build(name).name(), name);
    }
}

#[test]
fn default_plugins_of_disabled_features_are_omitted() {
    let names = |minor| {
        let features = Features::of(Version::new(minor).expect("a known version"));
        let enabled = DEFAULT_PLUGINS.iter().filter(|plugin| plugin.is_enabled(&features));
        enabled.map(|plugin| plugin.name).collect::<Vec<_>>()
    };
    assert_eq!(names(35).last(), Some(&"DefaultBinder"));
    assert_eq!(names(36).last(), Some(&"NodeDeclaredFeatures"));
}

#[test]
fn default_plugins_have_a_weight_iff_they_score() {
    for plugin in DEFAULT_PLUGINS {
        // VolumeBinding scores only with its feature gate, and then has weight 1 in upstream's
        // list.
        let points = build(plugin.name).extension_points();
        let scores = points.placement_score.is_some()
            || points.score.is_some() && plugin.name != crate::volume_binding::NAME;
        assert_eq!(plugin.weight > 0, scores, "{}", plugin.name);
    }
}

/// The letters of a plugin's extension points, as in the reference list.
fn points(name: &str) -> String {
    let points = build(name).extension_points();
    let taken = [
        ("PE", points.pre_enqueue.is_some()),
        ("QS", points.queue_sort.is_some()),
        ("PF", points.pre_filter.is_some()),
        ("F", points.filter.is_some()),
        ("PS", points.pre_score.is_some()),
        ("Sc", points.score.is_some()),
        ("B", points.bind.is_some()),
        ("Ev", points.enqueue_extensions.is_some()),
        ("Sg", points.sign.is_some()),
    ];
    let names = taken.iter().filter(|(_, taken)| *taken).map(|(name, _)| *name);
    names.collect::<Vec<_>>().join(" ")
}

#[test]
fn plugins_implement_upstreams_extension_points() {
    for (name, expected) in [
        ("SchedulingGates", "PE Ev"),
        ("PrioritySort", "QS"),
        ("UnsupportedConstraints", "PF Ev Sg"),
        ("NodeName", "PF F Ev Sg"),
        ("NodeUnschedulable", "PF F Ev Sg"),
        ("TaintToleration", "PF F PS Sc Ev Sg"),
        ("NodeAffinity", "PF F PS Sc Ev Sg"),
        ("NodePorts", "PF F Ev Sg"),
        ("NodeResourcesFit", "PF F PS Sc Ev Sg"),
        ("PodTopologySpread", "PF F PS Sc Ev Sg"),
        ("InterPodAffinity", "PF F PS Sc Ev Sg"),
        ("VolumeRestrictions", "PF F Ev Sg"),
        ("NodeVolumeLimits", "PF F Ev Sg"),
        ("VolumeZone", "PF F Ev Sg"),
        ("NodeDeclaredFeatures", "PF F Ev Sg"),
        ("NodeResourcesBalancedAllocation", "PS Sc Sg"),
        ("ImageLocality", "Sc Sg"),
        ("DefaultBinder", "B"),
    ] {
        assert_eq!(points(name), expected, "{name}");
    }
}

#[test]
fn plugins_register_upstreams_events() {
    use EventResource::{AssignedPod, Node, TargetPod};
    type Registered = (EventResource, ActionType, bool);
    const ADD: ActionType = ActionType::ADD;
    let claims = || EventResource::Other(resources::PERSISTENT_VOLUME_CLAIM);
    let cases: [(&str, &[Registered]); 14] = [
        ("SchedulingGates", &[(TargetPod, ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED, false)]),
        ("UnsupportedConstraints", &[(TargetPod, ActionType::UPDATE, true)]),
        (
            "NodeUnschedulable",
            &[
                (Node, ADD.union(ActionType::UPDATE_NODE_TAINT), true),
                (TargetPod, ActionType::UPDATE_POD_TOLERATION, true),
            ],
        ),
        ("NodeName", &[(Node, ADD, false)]),
        (
            "TaintToleration",
            &[
                (Node, ADD.union(ActionType::UPDATE_NODE_TAINT), true),
                (TargetPod, ActionType::UPDATE_POD_TOLERATION, false),
            ],
        ),
        ("NodeAffinity", &[(Node, ADD.union(ActionType::UPDATE_NODE_LABEL), true)]),
        ("NodePorts", &[(AssignedPod, ActionType::DELETE, true), (Node, ADD, false)]),
        (
            "NodeResourcesFit",
            &[
                (AssignedPod, ActionType::DELETE, true),
                (Node, ADD.union(ActionType::UPDATE_NODE_ALLOCATABLE), true),
                (EventResource::Other(resources::DEVICE_CLASS), ADD.union(ActionType::UPDATE), true),
                (AssignedPod, ActionType::UPDATE_POD_SCALE_DOWN, true),
                (TargetPod, ActionType::UPDATE_POD_SCALE_DOWN, false),
            ],
        ),
        (
            "PodTopologySpread",
            &[
                (AssignedPod, ADD.union(ActionType::UPDATE_POD_LABEL).union(ActionType::DELETE), true),
                (TargetPod, ActionType::UPDATE_POD_LABEL.union(ActionType::UPDATE_POD_TOLERATION), true),
                (
                    Node,
                    ADD.union(ActionType::DELETE)
                        .union(ActionType::UPDATE_NODE_LABEL)
                        .union(ActionType::UPDATE_NODE_TAINT),
                    true,
                ),
            ],
        ),
        (
            "InterPodAffinity",
            &[
                (AssignedPod, ADD.union(ActionType::UPDATE_POD_LABEL).union(ActionType::DELETE), true),
                (TargetPod, ActionType::UPDATE_POD_LABEL, false),
                (Node, ADD.union(ActionType::UPDATE_NODE_LABEL), true),
            ],
        ),
        (
            "VolumeRestrictions",
            &[(AssignedPod, ActionType::DELETE, true), (Node, ADD, false), (claims(), ADD, true)],
        ),
        (
            "NodeVolumeLimits",
            &[
                (EventResource::Other(resources::CSI_NODE), ADD, false),
                (EventResource::Other(resources::CSI_NODE), ActionType::UPDATE, true),
                (AssignedPod, ActionType::DELETE, true),
                (claims(), ADD, true),
                (EventResource::Other(resources::VOLUME_ATTACHMENT), ActionType::DELETE, true),
            ],
        ),
        (
            "VolumeZone",
            &[
                (EventResource::Other(resources::STORAGE_CLASS), ADD, true),
                (Node, ADD.union(ActionType::UPDATE_NODE_LABEL), false),
                (claims(), ADD.union(ActionType::UPDATE), true),
                (EventResource::Other(resources::PERSISTENT_VOLUME), ADD.union(ActionType::UPDATE), true),
            ],
        ),
        (
            "NodeDeclaredFeatures",
            &[
                (Node, ADD.union(ActionType::UPDATE_NODE_DECLARED_FEATURE), true),
                (TargetPod, ActionType::UPDATE, true),
            ],
        ),
    ];
    for (name, expected) in cases {
        let registered = driver(name).events().into_iter().map(|registration| {
            let hinted = registration.hint.is_some();
            (registration.event.resource, registration.event.action, hinted)
        });
        assert_eq!(registered.collect::<Vec<_>>(), expected, "{name}");
    }
}

#[test]
fn score_plugins_declare_their_normalization() {
    for (name, normalization) in [
        ("TaintToleration", Normalize::ByMax { reverse: true }),
        ("NodeAffinity", Normalize::ByMax { reverse: false }),
        ("NodeResourcesFit", Normalize::None),
        ("PodTopologySpread", Normalize::Custom),
        ("InterPodAffinity", Normalize::Custom),
        ("NodeResourcesBalancedAllocation", Normalize::None),
        ("ImageLocality", Normalize::None),
    ] {
        let plugin = driver(name).points.score.clone().expect("the plugin scores");
        assert_eq!(plugin.normalization(), normalization, "{name}");
        let caching = driver(name).points.caching.clone();
        let by_range = caching.is_some_and(|caching| caching.normalizes_by_range());
        assert_eq!(by_range, normalization == Normalize::Custom, "{name}");
    }
}

#[test]
fn stateful_plugins_are_incremental_and_evaluating_ones_sign() {
    for plugin in DEFAULT_PLUGINS {
        let points = build(plugin.name).extension_points();
        let prepares = points.pre_filter.is_some() || points.pre_score.is_some();
        assert_eq!(points.incremental.is_some(), prepares, "{}", plugin.name);
        let evaluates = prepares || points.filter.is_some() || points.score.is_some();
        assert_eq!(points.sign.is_some(), evaluates, "{}", plugin.name);
    }
}

/// A change of a pod; few of each kind, so that pods are often equal.
type PodChange = fn(PodBuilder) -> PodBuilder;

const POD_CHANGES: &[PodChange] = &[
    |pod| pod,
    |pod| pod.request("cpu", "1"),
    |pod| pod.request("cpu", "2"),
    |pod| pod.request("cpu", "1").request("memory", "1Gi"),
    |pod| pod.container(),
    |pod| pod.request("example.com/gpu", "1"),
    |pod| pod.init_request("cpu", "3"),
    |pod| pod.pod_level_request("cpu", "2"),
    |pod| pod.host_port(80),
    |pod| pod.image("app:1"),
    |pod| pod.image("app:1").image("app:1"),
    |pod| pod.image("other"),
    |pod| pod.node("a"),
    |pod| pod.node_selector("zone", "z1"),
    |pod| pod.required_affinity("zone", "In", &["z1", "z2"]),
    |pod| pod.required_affinity("cores", "Gt", &["many"]),
    |pod| pod.required_field("metadata.name", "In", &["a"]),
    |pod| pod.preferred_affinity(5, "zone", "In", &["z1"]),
    |pod| pod.preferred_affinity(5, "zone", "Exists", &[]),
    |pod| pod.tolerates("k", "", TaintEffect::NoSchedule),
    |pod| pod.tolerates("k", "", TaintEffect::PreferNoSchedule),
    |pod| pod.tolerates("node.kubernetes.io/unschedulable", "", TaintEffect::NoSchedule),
    |pod| {
        let unsupported = ["spec.resourceClaims".into()].into();
        let rare = RareSpec { unsupported, ..RareSpec::default() };
        pod.with_spec(|spec| spec.rare = rare.boxed())
    },
    |pod| pod.label("app", "x"),
    |pod| pod.namespace("elsewhere"),
    |pod| pod.with_spec(|spec| spec.required_features = ["F".into()].into()),
    |pod| {
        pod.with_spec(|spec| {
            let source = VolumeSource::AwsElasticBlockStore { volume_id: "vol-1".into(), read_only: true };
            spec.volumes = [Volume { name: "v".into(), source }].into();
        })
    },
];

/// A change that no answer may depend on within a cycle.
const BYSTANDERS: &[PodChange] =
    &[|pod| pod, |pod| pod.priority(7), |pod| pod.gate("g"), |pod| pod.nominated("b")];

/// A change that relates a pod to other pods and objects.
const RELATIONS: &[PodChange] = &[
    |pod| affine(pod, |affinity| affinity.required_affinity = [near("x")].into()),
    |pod| affine(pod, |affinity| affinity.required_anti_affinity = [near("x")].into()),
    |pod| affine(pod, |affinity| affinity.preferred_affinity = [weighted("x")].into()),
    |pod| affine(pod, |affinity| affinity.preferred_anti_affinity = [weighted("y")].into()),
    |pod| affine(pod, |affinity| affinity.required_affinity = [across("x")].into()),
    |pod| pod.with_spec(|spec| spec.topology_spread = [spread(true)].into()),
    |pod| pod.with_spec(|spec| spec.topology_spread = [spread(false)].into()),
    |pod| {
        let keyed = TopologySpreadConstraint { match_label_keys: ["track".into()].into(), ..spread(true) };
        pod.with_spec(|spec| spec.topology_spread = [keyed].into())
    },
    |pod| claiming(pod, "bound"),
    |pod| claiming(pod, "waiting"),
    |pod| claiming(pod, "none"),
    |pod| pod.label("app", "x"),
    |pod| pod.label("app", "y"),
    |pod| pod.label("track", "canary"),
    |pod| pod.label("free", "1"),
    |pod| pod.namespace("elsewhere"),
    |pod| owned(pod, "owner"),
    |pod| owned(pod, "gone"),
];

fn of_app(app: &str) -> LabelSelector {
    LabelSelector::parse(&[("app", app)].into_iter().collect::<Labels>(), []).expect("the label is valid")
}

fn near(app: &str) -> PodAffinityTerm {
    PodAffinityTerm { selector: Some(of_app(app)), topology_key: "zone".into(), ..PodAffinityTerm::default() }
}

/// The term for namespaces of the blue team.
fn across(app: &str) -> PodAffinityTerm {
    let team = [("team", "blue")].into_iter().collect::<Labels>();
    let namespaces = LabelSelector::parse(&team, []).expect("the label is valid");
    PodAffinityTerm { namespace_selector: Some(namespaces), ..near(app) }
}

fn weighted(app: &str) -> WeightedPodAffinityTerm {
    WeightedPodAffinityTerm { weight: 5, term: near(app) }
}

fn affine(pod: PodBuilder, change: impl FnOnce(&mut PodAffinity)) -> PodBuilder {
    pod.with_spec(|spec| change(spec.pod_affinity.get_or_insert_default()))
}

fn spread(hard: bool) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "zone".into(),
        hard,
        selector: Some(of_app("x")),
        min_domains: None,
        honors_affinity: true,
        honors_taints: false,
        match_label_keys: Box::default(),
    }
}

fn claiming(pod: PodBuilder, name: &str) -> PodBuilder {
    let source = VolumeSource::Claim(name.into());
    pod.with_spec(|spec| spec.volumes = [Volume { name: "claim".into(), source }].into())
}

fn owned(pod: PodBuilder, by: &str) -> PodBuilder {
    let owner = OwnerRef {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: by.into(),
        uid: format!("uid-{by}").into(),
    };
    pod.with(|pod| pod.controller = Some(Arc::new(owner)))
}

/// Claims, their volume and class, a workload and a namespace.
fn related_objects() -> Objects {
    let zone: Labels = [("topology.kubernetes.io/zone", "z1")].into_iter().collect();
    let volume =
        object(&resources::PERSISTENT_VOLUME, "v", Body::PersistentVolume(PersistentVolume::default()));
    let done = [(annotations::BIND_COMPLETED, "yes")].into_iter().collect();
    let class = StorageClass { waits_for_first_consumer: Some(true), ..StorageClass::default() };
    let team = [("team", "blue")].into_iter().collect();
    let namespace = object(&resources::NAMESPACE, "elsewhere", Body::Namespace(Namespace {}));
    objects([
        Object { labels: zone, ..volume },
        Object { annotations: done, ..claim("default/bound", "", "v") },
        claim("default/waiting", "later", ""),
        object(&resources::STORAGE_CLASS, "later", Body::StorageClass(class)),
        object(
            &resources::REPLICA_SET,
            "default/owner",
            Body::Workload(Workload { selector: Some(of_app("x")) }),
        ),
        Object { labels: team, ..namespace },
    ])
}

type NodeChange = fn(NodeBuilder) -> NodeBuilder;

const NODE_CHANGES: &[NodeChange] = &[
    |node| node,
    |node| node.allocatable("cpu", "1"),
    |node| node.allocatable("cpu", "2").allocatable("memory", "2Gi"),
    |node| node.allocatable("pods", "1"),
    |node| node.allocatable("example.com/gpu", "2"),
    |node| node.label("zone", "z1").label("cores", "4"),
    |node| node.label("zone", "z2"),
    |node| node.taint("k", "", TaintEffect::NoSchedule),
    |node| node.taint("k", "", TaintEffect::PreferNoSchedule),
    |node| node.unschedulable(),
    |node| node.image("app:1", 400_000_000),
    |node| node.image("other:latest", 90_000_000),
];

fn random_pod() -> impl Strategy<Value = PodInfo> {
    let changes = proptest::collection::vec(proptest::sample::select(POD_CHANGES), 0..3);
    (changes, proptest::sample::select(BYSTANDERS), 0..1000_u32).prop_map(|(changes, bystander, id)| {
        let start = bystander(pod(&format!("pod-{id}")));
        changes.into_iter().fold(start, |pod, change| change(pod)).build()
    })
}

/// A pod that may be related to others.
fn related_pod() -> impl Strategy<Value = PodInfo> {
    let changes = proptest::collection::vec(proptest::sample::select(POD_CHANGES), 0..2);
    let relations = proptest::collection::vec(proptest::sample::select(RELATIONS), 0..3);
    (changes, relations, proptest::sample::select(BYSTANDERS), 0..1000_u32).prop_map(
        |(changes, relations, bystander, id)| {
            let start = bystander(pod(&format!("pod-{id}")));
            changes.into_iter().chain(relations).fold(start, |pod, change| change(pod)).build()
        },
    )
}

/// Two pods and a third one: the rest of one of them with the spec of the other. So signatures are
/// often equal.
fn alike_pods() -> impl Strategy<Value = Vec<PodInfo>> {
    (related_pod(), related_pod()).prop_map(|(one, other)| {
        let mixed = PodInfo { spec: Arc::clone(&one.spec), ..other.clone() };
        vec![one, mixed, other]
    })
}

fn random_node(name: impl Into<String>) -> impl Strategy<Value = NodeInfo> {
    let name = name.into();
    let changes = proptest::collection::vec(proptest::sample::select(NODE_CHANGES), 0..4);
    let pods = proptest::collection::vec(random_pod(), 0..3);
    (changes, pods).prop_map(move |(changes, pods)| {
        let record = changes.into_iter().fold(node(&name), |node, change| change(node));
        node_info(record.build(), pods)
    })
}

/// Every plugin.
fn drivers() -> Vec<Driver> {
    DEFAULT_PLUGINS.iter().map(|plugin| driver(plugin.name)).collect()
}

/// The pod's signature over these plugins.
fn signature(drivers: &[Driver], pod: &PodInfo) -> Signature {
    signature_in(drivers, pod, &Nodes::default(), &Objects::default())
}

fn signature_in(drivers: &[Driver], pod: &PodInfo, nodes: &Nodes, objects: &Objects) -> Signature {
    let mut signer = Signer::default();
    for driver in drivers {
        driver.sign_in(pod, nodes, objects, &mut signer).expect("in-tree plugins sign");
    }
    signer.finish()
}

proptest! {
    /// Pods with equal signatures get equal verdicts and raw scores, plugin by plugin.
    #[test]
    fn equal_signatures_give_equal_answers(
        pods in proptest::collection::vec(alike_pods(), 1..3),
        on_nodes in proptest::collection::vec(related_pod(), 0..5),
        a in random_node("a"),
        b in random_node("b"),
    ) {
        let (drivers, objects, pods) = (drivers(), related_objects(), pods.concat());
        let with = |info: NodeInfo, pods: &[PodInfo]| {
            let all = info.pods().iter().map(|pod| (**pod).clone()).chain(pods.iter().cloned());
            node_info((**info.node()).clone(), all.collect::<Vec<_>>())
        };
        let (on_a, on_b) = on_nodes.split_at(on_nodes.len() / 2);
        let cluster = nodes([with(a, on_a), with(b, on_b)]);
        let sign = |drivers: &[Driver], pod| signature_in(drivers, pod, &cluster, &objects);
        for (i, first) in pods.iter().enumerate() {
            for second in &pods[i + 1..] {
                let alike_to_all = sign(&drivers, first) == sign(&drivers, second);
                for driver in drivers.chunks(1).filter(|driver| driver[0].points.sign.is_some()) {
                    if sign(driver, first) != sign(driver, second) {
                        prop_assert!(!alike_to_all, "if a part differs, the whole differs");
                        continue;
                    }
                    let driver = &driver[0];
                    prop_assert_eq!(
                        driver.verdicts(first, &cluster, &objects),
                        driver.verdicts(second, &cluster, &objects)
                    );
                    prop_assert_eq!(
                        driver.raw_scores_in(first, &cluster, &objects),
                        driver.raw_scores_in(second, &cluster, &objects)
                    );
                }
            }
        }
    }

    /// Names and fields that only the queue reads are not signed, so that equal pods share a
    /// signature.
    #[test]
    fn names_and_priorities_are_not_signed(
        changes in proptest::collection::vec(proptest::sample::select(POD_CHANGES), 0..3),
        bystander in proptest::sample::select(BYSTANDERS),
    ) {
        let drivers = drivers();
        let build = |start: PodBuilder| {
            changes.iter().fold(start, |pod, change| change(pod)).build()
        };
        let (plain, other) = (build(pod("one")), build(bystander(pod("two"))));
        prop_assert_eq!(signature(&drivers, &plain), signature(&drivers, &other));
    }
}

proptest! {
    // Each case tests every plugin.
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Cached answers equal fresh ones for every pod of the signature.
    #[test]
    fn cached_answers_equal_fresh_ones(
        pods in proptest::collection::vec(random_pod(), 2),
        steps in history::steps(random_pod, random_node, || Just(claim("default/a", "", "")), 2),
    ) {
        for driver in drivers().iter().filter(|driver| driver.points.sign.is_some()) {
            history::check(driver, &pods, steps.clone())?;
        }
    }
}

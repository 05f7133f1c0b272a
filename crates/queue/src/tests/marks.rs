//! Tests of events and waiting pods that ask for something of their own.

use supercargo_framework::affinity::RawRequirement;
use supercargo_framework::objects::resources;
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::selector::LabelSelector;
use supercargo_framework::testing::{claim, claim_source, object_added};
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{Labels, NodeRecord, TaintEffect, Volume};

use super::*;

const AFFINITY: Option<&str> = Some("InterPodAffinity");

fn selector(requirements: impl IntoIterator<Item = (String, &'static str, Vec<Arc<str>>)>) -> LabelSelector {
    let raw = |(key, operator, values): (String, &str, _)| RawRequirement {
        key: key.into(),
        operator: operator.into(),
        values,
    };
    LabelSelector::parse(&Labels::default(), requirements.into_iter().map(raw)).unwrap()
}

fn term(selector: LabelSelector, topology_key: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        selector: Some(selector),
        topology_key: topology_key.into(),
        ..PodAffinityTerm::default()
    }
}

fn with_terms(pod: PodBuilder, affinity: PodAffinity) -> PodBuilder {
    pod.with_spec(|spec| spec.pod_affinity = Some(Box::new(affinity)))
}

/// A bed with a thousand pods that want others near, or away, each by labels and a key of its own.
fn bed_of_terms() -> TestBed {
    let mut bed = TestBed::new(QueueOptions::default());
    for i in 0..1000 {
        let label = selector([("app".to_owned(), "In", vec![format!("app{i}").into()])]);
        let terms = Box::new([term(label, &format!("zone{i}"))]);
        let affinity = if i % 2 == 0 {
            PodAffinity { required_affinity: terms, ..PodAffinity::default() }
        } else {
            PodAffinity { required_anti_affinity: terms, ..PodAffinity::default() }
        };
        bed.add(with_terms(pod(&format!("p{i}")).label("index", &i.to_string()), affinity));
        let entry = bed.pop();
        bed.fail(entry, AFFINITY);
    }
    bed.counted.hints.set(0);
    bed
}

fn pod_event(bed: &mut TestBed, old: Option<PodInfo>, new: Option<PodInfo>) {
    let action = match (&old, &new) {
        (None, _) => ActionType::ADD,
        (_, None) => ActionType::DELETE,
        _ => ActionType::UPDATE_POD_LABEL,
    };
    let change = Change::Pod { old: old.map(Arc::new), new: new.map(Arc::new) };
    happens(bed, EventResource::AssignedPod, action, &change);
}

fn happens(bed: &mut TestBed, resource: EventResource, action: ActionType, change: &Change) {
    let event = ClusterEvent::new(resource, action);
    bed.with(|queue, cx| queue.move_all(cx, &event, change, PreCheck::All));
}

fn node_event(bed: &mut TestBed, old: Option<&Labels>, new: &Labels) {
    let labelled = |labels: &Labels| {
        Arc::new(labels.texts().fold(node("n"), |node, (key, value)| node.label(key, value)).build())
    };
    let action = if old.is_none() { ActionType::ADD } else { ActionType::UPDATE_NODE_LABEL };
    let change = Change::Node { old: old.map(labelled), new: Some(labelled(new)) };
    happens(bed, EventResource::Node, action, &change);
}

#[test]
fn hints_are_asked_about_pods_with_terms_that_an_event_may_meet() {
    let mut bed = bed_of_terms();
    let app = |i: u32| Some(pod("other").label("app", &format!("app{i}")).node("n").build());
    let labels = |key: &str| [(key, "a")].into_iter().collect::<Labels>();
    let mut asked = |change: &dyn Fn(&mut TestBed)| {
        change(&mut bed);
        (bed.counted.hints.take(), bed.queue.lengths()[2])
    };
    assert_eq!(asked(&|bed| pod_event(bed, None, app(5000))), (0, 1000), "it helps none");
    assert_eq!(asked(&|bed| pod_event(bed, None, app(4))), (1, 999));
    assert_eq!(asked(&|bed| pod_event(bed, app(5), app(6))), (2, 997), "one goes away, one comes");
    assert_eq!(asked(&|bed| pod_event(bed, app(5000), None)), (0, 997));
    assert_eq!(asked(&|bed| pod_event(bed, app(7), None)), (1, 996));
    assert_eq!(asked(&|bed| node_event(bed, Some(&labels("rack")), &labels("row"))), (0, 996));
    assert_eq!(asked(&|bed| node_event(bed, Some(&labels("zone9")), &labels("zone10"))), (2, 994));
    let (hints, left) = asked(&|bed| node_event(bed, None, &labels("zone12")));
    assert_eq!((hints, left), (498, 496), "a new node helps each pod that wants others away");
    let invalid = PodAffinity { invalid: Some("invalid".into()), ..PodAffinity::default() };
    let gone = with_terms(pod("other").node("n"), invalid).build();
    assert_eq!(
        asked(&|bed| pod_event(bed, Some(gone.clone()), None)),
        (496, 0),
        "nobody knows what it kept away"
    );
}

fn any_label() -> impl Strategy<Value = (String, String)> {
    ((0..3_u8).prop_map(|key| format!("k{key}")), (0..3_u8).prop_map(|value| format!("v{value}")))
}

fn any_selector() -> impl Strategy<Value = LabelSelector> {
    let values = prop::collection::btree_set(0..12_u8, 1..11);
    let values = values.prop_map(|values| values.into_iter().map(|it| format!("v{it}").into()).collect());
    let requirement = (0..3_u8, 0..5_usize, values).prop_map(|(key, operator, values): (_, _, Vec<_>)| {
        let operator = ["In", "In", "NotIn", "Exists", "DoesNotExist"][operator];
        (format!("k{key}"), operator, if operator.ends_with("In") { values } else { Vec::new() })
    });
    prop::collection::vec(requirement, 0..3).prop_map(selector)
}

fn any_term() -> impl Strategy<Value = PodAffinityTerm> {
    let namespaces = prop::collection::btree_set(0..3_u8, 0..2);
    let selectors =
        (prop::option::weighted(0.9, any_selector()), prop::option::weighted(0.2, any_selector()));
    (selectors, namespaces, 0..3_u8).prop_map(|((selector, namespace_selector), namespaces, key)| {
        PodAffinityTerm {
            selector,
            topology_key: format!("k{key}").into(),
            namespaces: namespaces.into_iter().map(|it| format!("n{it}").into()).collect(),
            namespace_selector,
        }
    })
}

/// Something that a pod asks for, or has.
const PARTS: &[fn(PodBuilder) -> PodBuilder] = &[
    |pod| pod.node_selector("k0", "v0"),
    |pod| pod.node_selector("k1", "v1").node_selector("k2", "long"),
    |pod| pod.required_affinity("k1", "In", &["v0", "v1"]),
    |pod| pod.required_affinity("k2", "NotIn", &["v0"]),
    |pod| pod.required_affinity("k2", "Gt", &["many"]),
    |pod| pod.required_field("metadata.name", "In", &["n1"]),
    |pod| pod.tolerates("k0", "", TaintEffect::NoSchedule),
    |pod| pod.tolerates("k1", "", TaintEffect::NoExecute),
    |pod| pod.host_port(80),
    |pod| pod.host_port(81),
    |pod| pod.request("cpu", "1"),
    |pod| pod.request("cpu", "3"),
    |pod| with_claim(pod, "a"),
    |pod| with_claim(pod, "b"),
    |pod| spread(pod, "k0", true),
    |pod| spread(pod, "k1", true),
    |pod| spread(pod, "k1", false),
];

fn with_claim(pod: PodBuilder, name: &str) -> PodBuilder {
    pod.with_spec(|spec| spec.volumes = [Volume { name: "v".into(), source: claim_source(name) }].into())
}

fn spread(pod: PodBuilder, key: &str, hard: bool) -> PodBuilder {
    let constraint = TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.into(),
        hard,
        selector: Some(selector([(key.to_owned(), "In", vec!["v0".into()])])),
        min_domains: None,
        honors_affinity: true,
        honors_taints: true,
        match_label_keys: Box::default(),
    };
    pod.with_spec(|spec| spec.topology_spread = [constraint].into())
}

fn any_pod() -> impl Strategy<Value = PodInfo> {
    let terms = || prop::collection::vec(any_term(), 0..3);
    let labels = prop::collection::vec(any_label(), 0..3);
    let parts = prop::collection::vec(prop::sample::select(PARTS), 0..4);
    (0..3_u8, labels, parts, terms(), terms(), prop::bool::weighted(0.05)).prop_map(
        |(namespace, labels, parts, near, away, is_invalid)| {
            let affinity = PodAffinity {
                required_affinity: near.into(),
                required_anti_affinity: away.into(),
                invalid: is_invalid.then(|| "invalid".into()),
                ..PodAffinity::default()
            };
            let pod = pod("other").namespace(&format!("n{namespace}"));
            let pod = parts.iter().fold(pod, |pod, part| part(pod));
            let labelled = labels.iter().fold(pod, |pod, (key, value)| pod.label(key, value));
            with_terms(labelled, affinity).build()
        },
    )
}

fn any_node() -> impl Strategy<Value = Arc<NodeRecord>> {
    let labels = prop::collection::btree_map("k[0-3]", "v[0-2]|long", 0..3);
    let taints = prop::collection::vec((0..3_u8, any::<bool>()), 0..2);
    (0..3_u8, labels, taints, 1..4_u8).prop_map(|(name, labels, taints, cpu)| {
        let node = node(&format!("n{name}")).allocatable("cpu", &cpu.to_string());
        let labelled = labels.iter().fold(node, |node, (key, value)| node.label(key, value));
        let effect = |executes| if executes { TaintEffect::NoExecute } else { TaintEffect::NoSchedule };
        let tainted = taints
            .into_iter()
            .fold(labelled, |node, (key, executes)| node.taint(&format!("k{key}"), "", effect(executes)));
        Arc::new(tainted.build())
    })
}

#[derive(Clone, Debug)]
enum Step {
    Pod(Box<(Option<PodInfo>, Option<PodInfo>)>),
    Node(ActionType, Arc<NodeRecord>, Arc<NodeRecord>),
    Claim(&'static str),
    Delete(usize),
}

const NODE_ACTIONS: [ActionType; 5] = [
    ActionType::ADD,
    ActionType::DELETE,
    ActionType::UPDATE_NODE_LABEL,
    ActionType::UPDATE_NODE_TAINT,
    ActionType::UPDATE_NODE_ALLOCATABLE,
];

fn any_step() -> impl Strategy<Value = Step> {
    let pod = || prop::option::weighted(0.7, any_pod());
    let pods = (pod(), pod()).prop_filter("no pod", |(old, new)| old.is_some() || new.is_some());
    let nodes = (prop::sample::select(&NODE_ACTIONS[..]), any_node(), any_node());
    prop_oneof![
        3 => pods.prop_map(|change| Step::Pod(change.into())),
        3 => nodes.prop_map(|(action, old, new)| Step::Node(action, old, new)),
        1 => prop::sample::select(&["n0/a", "n1/b"][..]).prop_map(Step::Claim),
        1 => (0..20_usize).prop_map(Step::Delete),
    ]
}

/// Plugins that reject pods.
const PLUGINS: [&str; 9] = [
    "InterPodAffinity",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "PodTopologySpread",
    "TaintToleration",
    "VolumeRestrictions",
    "VolumeZone",
];

proptest! {
    /// `move_all` compares the pods that it moves with those that hints queue one by one.
    #[test]
    fn an_event_moves_every_pod_that_asks_for_what_it_brings(
        waiting in prop::collection::vec((any_pod(), prop::sample::subsequence(&PLUGINS[..], 1..4)), 1..20),
        steps in prop::collection::vec(any_step(), 1..8),
    ) {
        let mut bed = TestBed::new(QueueOptions::default());
        for (i, (waiting, plugins)) in waiting.into_iter().enumerate() {
            let name = format!("p{i}");
            let pod = PodInfo { name: (&*name).into(), uid: (&*name).into(), ..waiting };
            bed.with(|queue, cx| queue.add(cx, Arc::new(pod), ProfileIndex(0)));
            let mut entry = bed.pop();
            entry.unschedulable_plugins.extend(plugins.into_iter().map(Into::into));
            bed.with(|queue, cx| queue.add_unschedulable(cx, entry));
        }
        for step in steps {
            match step {
                Step::Pod(change) => {
                    let on_node = |pod: PodInfo| PodInfo { node_name: Some("n".into()), ..pod };
                    let (old, new) = *change;
                    pod_event(&mut bed, old.map(on_node), new.map(on_node));
                }
                Step::Node(action, old, new) => {
                    let change = Change::Node {
                        old: (action != ActionType::ADD).then_some(old),
                        new: (action != ActionType::DELETE).then_some(new),
                    };
                    happens(&mut bed, EventResource::Node, action, &change);
                }
                Step::Claim(key) => {
                    let change = object_added(claim(key, "", ""));
                    let resource = EventResource::Other(resources::PERSISTENT_VOLUME_CLAIM);
                    happens(&mut bed, resource, ActionType::ADD, &change);
                }
                Step::Delete(i) => bed.with(|queue, cx| queue.delete(cx, &(&*format!("p{i}")).into())),
            }
        }
    }
}

/// Rejected by two plugins, a pod may be helped by either.
#[test]
fn hints_of_several_plugins_are_asked_about_the_pods_that_each_may_help() {
    let mut bed = TestBed::new(QueueOptions::default());
    for i in 0..1000 {
        let pod = pod(&format!("p{i}")).node_selector("pool", &format!("pool{i}"));
        bed.add(pod.request("cpu", if i < 10 { "2" } else { "9" }));
        let mut entry = bed.pop();
        let plugins = ["NodeAffinity", "NodeResourcesFit", "NodeUnschedulable"];
        entry.unschedulable_plugins.extend(plugins.map(Into::into));
        bed.with(|queue, cx| queue.add_unschedulable(cx, entry));
    }
    let closed = |pool: &str| {
        Some(Arc::new(node("n").label("pool", pool).allocatable("cpu", "4").unschedulable().build()))
    };
    bed.counted.hints.set(0);
    let mut asked = |action, change| {
        happens(&mut bed, EventResource::Node, action, &change);
        (bed.counted.hints.take(), bed.queue.lengths()[2])
    };
    let change = Change::Node { old: closed("other"), new: closed("pool500") };
    assert_eq!(asked(ActionType::UPDATE_NODE_LABEL, change), (1, 999), "a pod has the selector");
    let added = Change::Node { old: None, new: closed("pool20") };
    let (of_any, of_small_pods, of_the_pool) = (1, 10 * 3, 2);
    let hints = of_any + of_small_pods + of_the_pool;
    assert_eq!(asked(ActionType::ADD, added), (hints, 988), "ten pods are small, and one has the selector");
}

/// Of what a pod asks for, the index uses what the fewest others ask for.
#[test]
fn pods_are_found_by_what_few_ask_for() {
    let mut bed = TestBed::new(QueueOptions::default());
    for i in 0..1000 {
        let zone = format!("zone-with-a-long-name-{}", i % 2);
        let pod = pod(&format!("p{i}")).node_selector("zone", &zone).node_selector("pool", &format!("{i}"));
        bed.add(pod);
        let entry = bed.pop();
        bed.fail(entry, Some("NodeAffinity"));
    }
    bed.counted.hints.set(0);
    node_event(
        &mut bed,
        None,
        &[("zone", "zone-with-a-long-name-1"), ("pool", "none")].into_iter().collect(),
    );
    assert!(bed.counted.hints.take() <= 1, "a zone is shared by half of the pods");
    node_event(&mut bed, None, &[("zone", "zone-with-a-long-name-1"), ("pool", "501")].into_iter().collect());
    assert!(bed.counted.hints.take() <= 2);
    assert_eq!(bed.queue.lengths()[2], 999);
}

/// Very many wishes, values and labels.
#[test]
fn giants_are_found_and_find_others() {
    let mut bed = TestBed::new(QueueOptions::default());
    let terms = |range: std::ops::Range<u32>| {
        let of = |i| term(selector([("app".to_owned(), "In", vec![format!("app{i}").into()])]), "zone");
        PodAffinity { required_anti_affinity: range.map(of).collect(), ..PodAffinity::default() }
    };
    let values = (0..20).map(|i| format!("app{i}").into()).collect();
    let one_of_many = Box::new([term(selector([("app".to_owned(), "In", values)]), "zone")]);
    let near = PodAffinity { required_affinity: one_of_many, ..PodAffinity::default() };
    for (name, affinity) in [("many-terms", terms(0..300)), ("many-values", near), ("small", terms(7..8))] {
        bed.add(with_terms(pod(name), affinity));
        let entry = bed.pop();
        bed.fail(entry, AFFINITY);
    }
    let labelled = (0..300).fold(pod("other"), |pod, i| pod.label(&format!("key{i}"), ""));
    let other = labelled.label("app", "app7").node("n").build();
    pod_event(&mut bed, None, Some(other.clone()));
    assert_eq!(bed.queue.lengths()[2], 2, "the one with many values comes near");
    pod_event(&mut bed, Some(other), None);
    assert_eq!(bed.queue.lengths()[2], 0, "the others keep away from it");
}

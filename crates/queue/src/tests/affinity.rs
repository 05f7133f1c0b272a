//! Tests of events and waiting pods that have terms of their own.

use supercargo_framework::Labels;
use supercargo_framework::affinity::RawRequirement;
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::selector::LabelSelector;

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
    let event = ClusterEvent::new(EventResource::AssignedPod, action);
    bed.with(|queue, cx| queue.move_all(cx, &event, &change, PreCheck::All));
}

fn node_event(bed: &mut TestBed, old: Option<&Labels>, new: &Labels) {
    let labelled = |labels: &Labels| {
        Arc::new(labels.texts().fold(node("n"), |node, (key, value)| node.label(key, value)).build())
    };
    let action = if old.is_none() { ActionType::ADD } else { ActionType::UPDATE_NODE_LABEL };
    let change = Change::Node { old: old.map(labelled), new: Some(labelled(new)) };
    let event = ClusterEvent::new(EventResource::Node, action);
    bed.with(|queue, cx| queue.move_all(cx, &event, &change, PreCheck::All));
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

fn any_pod() -> impl Strategy<Value = PodInfo> {
    let terms = || prop::collection::vec(any_term(), 0..3);
    let labels = prop::collection::vec(any_label(), 0..3);
    (0..3_u8, labels, terms(), terms(), prop::bool::weighted(0.05)).prop_map(
        |(namespace, labels, near, away, is_invalid)| {
            let affinity = PodAffinity {
                required_affinity: near.into(),
                required_anti_affinity: away.into(),
                invalid: is_invalid.then(|| "invalid".into()),
                ..PodAffinity::default()
            };
            let pod = pod("other").namespace(&format!("n{namespace}"));
            let labelled = labels.iter().fold(pod, |pod, (key, value)| pod.label(key, value));
            with_terms(labelled, affinity).build()
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Pod(Box<(Option<PodInfo>, Option<PodInfo>)>),
    Node(Option<Labels>, Labels),
    Delete(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let pod = || prop::option::weighted(0.7, any_pod());
    let pods = (pod(), pod()).prop_filter("no pod", |(old, new)| old.is_some() || new.is_some());
    let labels = || {
        let labels = prop::collection::btree_map("k[0-3]", "v[0-2]", 0..3);
        labels.prop_map(|labels| labels.into_iter().collect::<Labels>())
    };
    prop_oneof![
        3 => pods.prop_map(|change| Step::Pod(change.into())),
        2 => (prop::option::of(labels()), labels()).prop_map(|(old, new)| Step::Node(old, new)),
        1 => (0..20_usize).prop_map(Step::Delete),
    ]
}

proptest! {
    /// `move_all` compares the pods that it moves with those that hints queue one by one.
    #[test]
    fn an_event_moves_every_pod_whose_terms_it_meets(
        waiting in prop::collection::vec((any_pod(), 0..3_u8), 1..20),
        steps in prop::collection::vec(any_step(), 1..8),
    ) {
        let mut bed = TestBed::new(QueueOptions::default());
        for (i, (waiting, rejection)) in waiting.into_iter().enumerate() {
            let name = format!("p{i}");
            let pod = PodInfo { name: (&*name).into(), uid: (&*name).into(), ..waiting };
            bed.with(|queue, cx| queue.add(cx, Arc::new(pod), ProfileIndex(0)));
            let entry = bed.pop();
            bed.fail(entry, if rejection == 0 { FIT } else { AFFINITY });
        }
        for step in steps {
            match step {
                Step::Pod(change) => {
                    let on_node = |pod: PodInfo| PodInfo { node_name: Some("n".into()), ..pod };
                    let (old, new) = *change;
                    pod_event(&mut bed, old.map(on_node), new.map(on_node));
                }
                Step::Node(old, new) => node_event(&mut bed, old.as_ref(), &new),
                Step::Delete(i) => bed.with(|queue, cx| queue.delete(cx, &(&*format!("p{i}")).into())),
            }
        }
    }
}

//! Hints read no more of the waiting pod than their scopes promise.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;
use supercargo_framework::caching::{HintMarks, HintScope, Mark};
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::objects::{
    Body, CsiDriver, DeviceClass, Objects, Service, VolumeAttachment, resources,
};
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::requests::PodRequests;
use supercargo_framework::testing::{
    claim, claim_source, node_added, node_updated, object, object_added, object_deleted, object_updated, pod,
    pod_deleted, pod_updated,
};
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{
    LabelSelector, Labels, PodInfo, PodSpec, QueueContext, Resource, Volume, VolumeSource,
};

use super::{POD_CHANGES, PodChange, drivers, owned, random_node, related_objects};
use crate::testing::driver_with_args;

fn app(value: &str) -> LabelSelector {
    let labels: Labels = [("app", value)].into_iter().collect();
    LabelSelector::parse(&labels, []).expect("it is a selector")
}

fn near(spec: &mut PodSpec, value: &str) {
    let term = PodAffinityTerm {
        selector: Some(app(value)),
        topology_key: "zone".into(),
        ..PodAffinityTerm::default()
    };
    let affinity = PodAffinity { required_affinity: [term].into(), ..PodAffinity::default() };
    spec.pod_affinity = Some(Box::new(affinity));
}

fn away(spec: &mut PodSpec, value: &str) {
    near(spec, value);
    if let Some(affinity) = &mut spec.pod_affinity {
        affinity.required_anti_affinity = std::mem::take(&mut affinity.required_affinity);
    }
}

fn spread(spec: &mut PodSpec, match_label_keys: &[&str]) {
    let constraint = TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "zone".into(),
        hard: true,
        selector: Some(app("x")),
        min_domains: None,
        honors_affinity: true,
        honors_taints: true,
        match_label_keys: match_label_keys.iter().map(|key| Arc::from(*key)).collect(),
    };
    spec.topology_spread = [constraint].into();
}

fn csi(driver: &str) -> Volume {
    Volume { name: "v".into(), source: VolumeSource::Csi(driver.into()) }
}

/// What hints read, beside what all plugins' tests vary.
const CHANGES: &[PodChange] = &[
    |pod| pod,
    |pod| pod.label("app", "x"),
    |pod| pod.label("version", "1").label("app", "x"),
    |pod| pod.label("version", "2"),
    |pod| pod.with_spec(|spec| near(spec, "x")),
    |pod| pod.with_spec(|spec| away(spec, "x")),
    |pod| pod.with_spec(|spec| spread(spec, &[])),
    |pod| pod.with_spec(|spec| spread(spec, &["version"])),
    |pod| {
        pod.with_spec(|spec| spec.volumes = [Volume { name: "v".into(), source: claim_source("a") }].into())
    },
    |pod| pod.with_spec(|spec| spec.volumes = [csi("d")].into()),
    |pod| {
        let source = VolumeSource::Ephemeral;
        pod.with_spec(|spec| spec.volumes = [Volume { name: "v".into(), source }].into())
    },
    |pod| pod.required_field("metadata.name", "In", &["n"]),
    |pod| pod.required_affinity("zone", "NotIn", &["z1"]),
    |pod| pod.node_selector("zone", "z2"),
    |pod| pod.namespace("elsewhere"),
    |pod| owned(pod, "owner"),
];

fn any_pod() -> impl Strategy<Value = PodInfo> {
    let changes = (vec(select(POD_CHANGES), 0..3), vec(select(CHANGES), 0..3));
    (changes, 0..1000_u32, option::weighted(0.2, 0..3_i64)).prop_map(|((some, more), id, resized)| {
        let start = pod(&format!("pod-{id}"));
        let pod = some.into_iter().chain(more).fold(start, |pod, change| change(pod)).build();
        let resized = resized.map(|cpus| Resource::new(1000 * cpus, 0));
        let requests = |resource| Arc::new(PodRequests { resource, ..PodRequests::default() });
        PodInfo { status_requests: resized.map(requests), ..pod }
    })
}

/// An event about a pod with a node or another object.
fn any_change() -> impl Strategy<Value = Change> {
    let other = || {
        (any_pod(), any::<bool>()).prop_map(|(pod, has_node)| {
            let node_name = has_node.then(|| Arc::from("n")).or(pod.node_name.clone());
            PodInfo { uid: "other".into(), name: "other".into(), node_name, ..pod }
        })
    };
    let attachment = VolumeAttachment { attacher: "d".into(), ..VolumeAttachment::default() };
    let driver = |storage_capacity| {
        let body = CsiDriver { storage_capacity, ..CsiDriver::default() };
        object(&resources::CSI_DRIVER, "d", Body::CsiDriver(body))
    };
    let class = |name: Option<&str>| {
        let extended_resource_name = name.map(Into::into);
        let body = DeviceClass { extended_resource_name, ..DeviceClass::default() };
        object(&resources::DEVICE_CLASS, "c", Body::DeviceClass(body))
    };
    let record = || random_node("n").prop_map(|info| Arc::unwrap_or_clone(Arc::clone(info.node())));
    prop_oneof![
        other().prop_map(|new| Change::Pod { old: None, new: Some(Arc::new(new)) }),
        other().prop_map(pod_deleted),
        (other(), other()).prop_map(|(old, new)| pod_updated(old, new)),
        record().prop_map(node_added),
        (record(), record()).prop_map(|(old, new)| node_updated(old, new)),
        Just(object_deleted(object(&resources::VOLUME_ATTACHMENT, "a", Body::VolumeAttachment(attachment)))),
        Just(object_updated(driver(true), driver(false))),
        Just(object_added(class(None))),
        Just(object_updated(class(None), class(Some("example.com/gpu")))),
        Just(object_added(claim("default/a", "", ""))),
        Just(object_updated(claim("default/a", "", ""), claim("default/a", "", "v"))),
    ]
}

/// A waiting pod, another one, and events.
type Sample = (PodInfo, PodInfo, Vec<Change>);

fn any_sample() -> impl Strategy<Value = Sample> {
    (any_pod(), any_pod(), vec(any_change(), 1..6))
}

/// `other` with the parts of `pod` that are in the scope.
fn equal_in(scope: HintScope, pod: &PodInfo, other: &PodInfo) -> PodInfo {
    if scope.contains(HintScope::POD) {
        return pod.clone();
    }
    let (mut twin, mut spec) = (other.clone(), (*other.spec).clone());
    for part in scope {
        match part {
            HintScope::NAMESPACE => twin.namespace = Arc::clone(&pod.namespace),
            HintScope::LABELS => twin.labels = pod.labels.clone(),
            HintScope::MATCH_LABELS => {
                let mut constraints = pod.spec.topology_spread.iter();
                if constraints.any(|constraint| !constraint.match_label_keys.is_empty()) {
                    twin.labels = pod.labels.clone();
                }
            }
            HintScope::CONTROLLER => twin.controller.clone_from(&pod.controller),
            HintScope::REQUESTS => {
                spec.requests = pod.spec.requests.clone();
                twin.status_requests.clone_from(&pod.status_requests);
            }
            HintScope::NODE_AFFINITY => {
                spec.node_selector = pod.spec.node_selector.clone();
                spec.node_affinity.clone_from(&pod.spec.node_affinity);
            }
            HintScope::POD_AFFINITY => spec.pod_affinity.clone_from(&pod.spec.pod_affinity),
            HintScope::TOPOLOGY_SPREAD => spec.topology_spread.clone_from(&pod.spec.topology_spread),
            HintScope::TOLERATIONS => spec.tolerations = pod.spec.tolerations.clone(),
            HintScope::HOST_PORTS => spec.host_ports = pod.spec.host_ports.clone(),
            HintScope::VOLUMES => spec.volumes = pod.spec.volumes.clone(),
            other => panic!("{other:?} is not compared"),
        }
    }
    PodInfo { spec: Arc::new(spec), ..twin }
}

/// Objects that hints look up.
fn looked_up() -> Objects {
    let mut objects = related_objects();
    let service = Service { selector: [("version", "1")].into_iter().collect::<Labels>().into() };
    objects.insert(Arc::new(object(&resources::SERVICE, "default/service", Body::Service(service))));
    objects
}

/// Whether two pods that are equal in the scope, but for a part of it, get different answers.
fn differ(
    it: &EventRegistration,
    part: HintScope,
    objects: &Objects,
    (pod, other, changes): &Sample,
) -> bool {
    let cx = QueueContext { objects, preempting: &rustc_hash::FxHashSet::default() };
    let hint = it.hint.as_ref().expect("it has a hint");
    changes.iter().any(|change| {
        let scope = it.caching.scope_after(change);
        hint(&cx, pod, change) != hint(&cx, &equal_in(scope - part, pod, other), change)
    })
}

/// The hints of every plugin, and of one with default constraints.
fn hints() -> impl Iterator<Item = EventRegistration> {
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let args = json!({"defaultingType": "List", "defaultConstraints": [constraint]});
    let drivers = drivers().into_iter().chain([driver_with_args("PodTopologySpread", args)]);
    let registrations = drivers.flat_map(|driver| driver.events());
    registrations.filter(|it| it.hint.is_some())
}

proptest! {
    #[test]
    fn pods_equal_in_the_scope_get_one_answer(sample in any_sample()) {
        let objects = looked_up();
        for it in hints() {
            prop_assert!(!differ(&it, HintScope::empty(), &objects, &sample), "{it:?}, {:?}", it.caching.scope);
        }
    }
}

/// Whether the queue may pass over the pod: each wish has a way to find it that fails.
fn passes_over(marks: &HintMarks, pod: &PodInfo, change: &Change) -> bool {
    let Some(brought) = (marks.of_change)(change) else { return false };
    let finds = |way: &Vec<Mark>| way.iter().any(|mark| *mark == Mark::Any || brought.contains(mark));
    (marks.of_pod)(pod).iter().all(|wish| wish.iter().any(|way| !finds(way)))
}

/// Hints with marks, and their answers to changes.
fn marked(sample: &Sample) -> impl Iterator<Item = (String, bool, Result<QueueingHint, String>)> {
    let ((pod, _, changes), objects) = (sample.clone(), looked_up());
    let marked = hints().filter_map(|it| Some((it.caching.marks?, it)));
    marked.flat_map(move |(marks, it)| {
        let cx = QueueContext { objects: &objects, preempting: &rustc_hash::FxHashSet::default() };
        let hint = it.hint.as_ref().expect("it has a hint");
        let answer = |change| (format!("{it:?}"), passes_over(&marks, &pod, change), hint(&cx, &pod, change));
        changes.iter().map(answer).collect::<Vec<_>>()
    })
}

proptest! {
    #[test]
    fn hints_queue_only_pods_that_ask_for_what_the_event_brings(sample in any_sample()) {
        for (name, is_passed_over, answer) in marked(&sample) {
            prop_assert!(!is_passed_over || answer == Ok(QueueingHint::Skip), "{name}");
        }
    }

    #[test]
    fn pods_equal_in_the_scope_ask_for_the_same((pod, other, _) in any_sample()) {
        for it in hints() {
            let Some(marks) = it.caching.marks else { continue };
            let twin = equal_in(it.caching.scope - HintScope::LABELS, &pod, &other);
            prop_assert_eq!((marks.of_pod)(&pod), (marks.of_pod)(&twin), "{:?}", it);
        }
    }
}

/// So the property above notices a part that a hint reads and does not declare.
#[test]
fn some_pods_that_differ_in_a_part_of_the_scope_get_two_answers() {
    let mut runner = TestRunner::deterministic();
    let mut sample = || any_sample().new_tree(&mut runner).expect("nothing is rejected").current();
    let samples: Vec<_> = (0..8_000).map(|_| sample()).collect();
    let objects = looked_up();
    for it in hints().filter(|it| !it.caching.scope.contains(HintScope::POD)) {
        for part in it.caching.scope {
            let noticed = samples.iter().any(|sample| differ(&it, part, &objects, sample));
            assert!(noticed, "{it:?} does not read {part:?}");
        }
    }
    let marked: BTreeSet<_> =
        samples.iter().flat_map(marked).map(|(name, is_passed_over, _)| (name, is_passed_over)).collect();
    for (name, _) in &marked {
        let both = [false, true].map(|it| marked.contains(&(name.clone(), it)));
        assert_eq!(both, [true, true], "{name} passes over some pods");
    }
}

//! Hints read no more of the waiting pod than their scopes promise.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use supercargo_framework::event::{Change, HintScope};
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::testing::pod;
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{LabelSelector, Labels, OwnerRef, PodInfo, PodSpec, QueueContext, Volume};

use super::{POD_CHANGES, PodChange, drivers, random_node};
use crate::testing::{claim, claim_source, node_added, node_updated, object_added, object_updated};
use crate::testing::{objects, pod_deleted, pod_updated};

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
    |pod| {
        let owner = OwnerRef { kind: "ReplicaSet".into(), name: "r".into(), ..OwnerRef::default() };
        pod.with(|pod| pod.controller = Some(Arc::new(owner)))
    },
];

fn any_pod() -> impl Strategy<Value = PodInfo> {
    let changes = (vec(select(POD_CHANGES), 0..3), vec(select(CHANGES), 0..3), 0..1000_u32);
    changes.prop_map(|(some, more, id)| {
        let start = pod(&format!("pod-{id}"));
        some.into_iter().chain(more).fold(start, |pod, change| change(pod)).build()
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
    let record = || random_node("n").prop_map(|info| Arc::unwrap_or_clone(Arc::clone(info.node())));
    prop_oneof![
        other().prop_map(|new| Change::Pod { old: None, new: Some(Arc::new(new)) }),
        other().prop_map(pod_deleted),
        (other(), other()).prop_map(|(old, new)| pod_updated(old, new)),
        record().prop_map(node_added),
        (record(), record()).prop_map(|(old, new)| node_updated(old, new)),
        Just(object_added(claim("default/a", "", ""))),
        Just(object_updated(claim("default/a", "", ""), claim("default/a", "", "v"))),
    ]
}

/// `other` with the parts of `pod` that a hint of this scope may read.
fn equal_in(scope: HintScope, pod: &PodInfo, other: &PodInfo) -> PodInfo {
    let mut twin = other.clone();
    if scope == HintScope::Pod {
        return pod.clone();
    }
    if scope >= HintScope::Spec {
        twin.namespace = Arc::clone(&pod.namespace);
        twin.spec = Arc::clone(&pod.spec);
        twin.status_requests.clone_from(&pod.status_requests);
    }
    if scope >= HintScope::Template {
        twin.labels = pod.labels.clone();
        twin.controller.clone_from(&pod.controller);
    }
    twin
}

proptest! {
    #[test]
    fn pods_equal_in_the_scope_get_one_answer(
        pod in any_pod(),
        other in any_pod(),
        changes in vec(any_change(), 1..6),
    ) {
        let (objects, preempting) = (objects([]), rustc_hash::FxHashSet::default());
        let cx = QueueContext { objects: &objects, preempting: &preempting };
        for driver in drivers() {
            for registration in driver.events() {
                let Some(hint) = registration.hint else { continue };
                let twin = equal_in(registration.scope, &pod, &other);
                for change in &changes {
                    let (answer, of_twin) = (hint(&cx, &pod, change), hint(&cx, &twin, change));
                    prop_assert_eq!(answer, of_twin, "{:?}", registration.event);
                }
            }
        }
    }
}

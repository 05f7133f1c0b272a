//! The cluster events that follow from two versions of an object.

use crate::{ActionType, ClusterEvent, EventResource, Feature, Features, NodeRecord, PodInfo, Resource};
use smallvec::SmallVec;

/// Usually one event.
pub type Events = SmallVec<[ClusterEvent; 2]>;

/// The events of a pod update; one generic update if no specific change is found. The caller knows
/// whether the pod is assigned, the waiting pod itself, or another one.
pub fn pod_events(resource: &EventResource, old: &PodInfo, new: &PodInfo) -> Events {
    let mut actions = SmallVec::<[ActionType; 2]>::new();
    if old.labels != new.labels {
        actions.push(ActionType::UPDATE_POD_LABEL);
    }
    if any_less(&new.requests().resource, &old.requests().resource) {
        actions.push(ActionType::UPDATE_POD_SCALE_DOWN);
    }
    if any_less(&old.requests().resource, &new.requests().resource) {
        actions.push(ActionType::UPDATE_POD_SCALE_UP);
    }
    if !old.scheduling_gates.is_empty() && new.scheduling_gates.is_empty() {
        actions.push(ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED);
    }
    if old.spec.tolerations.len() != new.spec.tolerations.len() {
        actions.push(ActionType::UPDATE_POD_TOLERATION);
    }
    if old.status.claims != new.status.claims {
        actions.push(ActionType::UPDATE_POD_GENERATED_RESOURCE_CLAIM);
    }
    if actions.is_empty() {
        actions.push(ActionType::UPDATE);
    }
    actions.into_iter().map(|action| ClusterEvent::new(resource.clone(), action)).collect()
}

/// The events of a node update; none if nothing changed that scheduling reads.
pub fn node_events(old: &NodeRecord, new: &NodeRecord, features: &Features) -> Events {
    let mut events = Events::new();
    let mut push = |changed: bool, action| {
        if changed {
            events.push(ClusterEvent::new(EventResource::Node, action));
        }
    };
    push(old.unschedulable && !new.unschedulable, ActionType::UPDATE_NODE_TAINT);
    push(old.allocatable != new.allocatable, ActionType::UPDATE_NODE_ALLOCATABLE);
    push(old.labels != new.labels, ActionType::UPDATE_NODE_LABEL);
    push(old.taints != new.taints, ActionType::UPDATE_NODE_TAINT);
    push(old.conditions != new.conditions, ActionType::UPDATE_NODE_CONDITION);
    push(old.annotations_hash != new.annotations_hash, ActionType::UPDATE_NODE_ANNOTATION);
    push(
        old.disable_resize_preemption != new.disable_resize_preemption,
        ActionType::UPDATE_NODE_PREEMPTION_POLICY,
    );
    if features.enabled(Feature::NodeDeclaredFeatures) {
        push(old.declared_features != new.declared_features, ActionType::UPDATE_NODE_DECLARED_FEATURE);
    }
    events
}

/// Whether `one` requests less of any resource than `other`.
fn any_less(one: &Resource, other: &Resource) -> bool {
    one.milli_cpu < other.milli_cpu
        || one.memory < other.memory
        || one.ephemeral_storage < other.ephemeral_storage
        || other.scalars().iter().any(|(name, amount)| one.scalar(name) < *amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaintEffect;
    use crate::testing::{node, pod};

    fn labels(events: &Events) -> Vec<String> {
        events.iter().map(ToString::to_string).collect()
    }

    fn own_update(old: &PodInfo, new: &PodInfo) -> Vec<String> {
        labels(&pod_events(&EventResource::TargetPod, old, new))
    }

    #[test]
    fn a_pod_update_is_named_after_what_changed() {
        let base = || pod("a").request("cpu", "2");
        let cases = [
            ("labels", base().build(), base().label("a", "b").build(), vec!["TargetPodUpdatePodLabel"]),
            (
                "a smaller request",
                base().build(),
                pod("a").request("cpu", "1").build(),
                vec!["TargetPodUpdatePodScaleDown"],
            ),
            (
                "a larger request",
                base().build(),
                pod("a").request("cpu", "3").build(),
                vec!["TargetPodUpdatePodScaleUp"],
            ),
            (
                "less of one and more of another",
                base().build(),
                pod("a").request("cpu", "1").request("memory", "1Gi").build(),
                vec!["TargetPodUpdatePodScaleDown", "TargetPodUpdatePodScaleUp"],
            ),
            (
                "the last gate lifted",
                base().gate("g").build(),
                base().build(),
                vec!["TargetPodUpdatePodSchedulingGatesEliminated"],
            ),
            (
                "one of two gates lifted",
                base().gate("g").gate("h").build(),
                base().gate("g").build(),
                vec!["TargetPodUpdate"],
            ),
            (
                "a toleration and a label",
                base().build(),
                base().label("a", "b").tolerates("k", "v", TaintEffect::NoSchedule).build(),
                vec!["TargetPodUpdatePodLabel", "TargetPodUpdatePodToleration"],
            ),
        ];
        for (name, old, new, expected) in cases {
            assert_eq!(own_update(&old, &new), expected, "{name}");
        }
    }

    #[test]
    fn declared_features_cause_events_only_with_the_feature() {
        let old = node("n").build();
        let new = NodeRecord { declared_features: ["f".into()].into(), ..old.clone() };
        for (on, expected) in [(true, vec!["NodeUpdateNodeDeclaredFeature"]), (false, vec![])] {
            let features = Features::default().with(Feature::NodeDeclaredFeatures, on);
            assert_eq!(labels(&node_events(&old, &new, &features)), expected);
        }
    }

    #[test]
    fn requests_of_a_resized_pod_follow_its_status() {
        let asks = |cpu: &str| pod("a").request("cpu", cpu).node("n").build();
        let resizing = |cpu: &str| {
            let requests = asks(cpu).spec.requests.clone();
            PodInfo { status_requests: Some(requests.into()), ..asks("1") }
        };
        let cases = [
            ("the smaller size is there", resizing("2"), asks("1"), "AssignedPodUpdatePodScaleDown"),
            ("the larger size is still there", asks("1"), resizing("2"), "AssignedPodUpdatePodScaleUp"),
            ("the smaller size is wanted and not yet there", asks("2"), resizing("2"), "AssignedPodUpdate"),
        ];
        for (name, old, new, expected) in cases {
            assert_eq!(labels(&pod_events(&EventResource::AssignedPod, &old, &new)), [expected], "{name}");
        }
    }

    #[test]
    fn removing_a_resource_request_is_a_scale_down() {
        let (old, new) = (pod("a").request("example.com/gpu", "1").build(), pod("a").build());
        assert_eq!(own_update(&old, &new), ["TargetPodUpdatePodScaleDown"]);
        assert_eq!(own_update(&new, &old), ["TargetPodUpdatePodScaleUp"]);
    }

    #[test]
    fn a_generated_resource_claim_has_its_own_event() {
        let old = pod("a").build();
        let mut new = old.clone();
        new.status.claims = Some(Box::default());
        assert_eq!(own_update(&old, &new), ["TargetPodUpdatePodGeneratedResourceClaim"]);
    }

    #[test]
    fn a_changed_preemption_policy_of_a_node_has_its_own_event() {
        let policy = |owners: Option<&[&str]>| NodeRecord {
            disable_resize_preemption: owners.map(|owners| owners.iter().map(|o| (*o).into()).collect()),
            ..node("n").build()
        };
        let cases = [
            ("an owner", policy(None), policy(Some(&["a"])), true),
            ("another owner", policy(Some(&["a"])), policy(Some(&["a", "b"])), true),
            ("an empty policy is not none", policy(None), policy(Some(&[])), true),
            ("the same", policy(Some(&["a"])), policy(Some(&["a"])), false),
        ];
        for (name, old, new, changes) in cases {
            let expected = if changes { vec!["NodeUpdateNodePreemptionPolicy"] } else { vec![] };
            assert_eq!(labels(&node_events(&old, &new, &Features::default())), expected, "{name}");
        }
    }

    #[test]
    fn a_node_update_is_named_after_what_changed() {
        let base = || node("n").label("l", "1").condition("Ready", "True");
        let cases = [
            ("a heartbeat", base().build(), base().resource_version("9").build(), vec![]),
            ("uncordoned", base().unschedulable().build(), base().build(), vec!["NodeUpdateNodeTaint"]),
            ("cordoned", base().build(), base().unschedulable().build(), vec![]),
            (
                "uncordoned and a taint gone",
                base().unschedulable().taint("k", "", TaintEffect::NoSchedule).build(),
                base().build(),
                vec!["NodeUpdateNodeTaint", "NodeUpdateNodeTaint"],
            ),
            (
                "more memory",
                base().build(),
                base().allocatable("memory", "64Gi").build(),
                vec!["NodeUpdateNodeAllocatable"],
            ),
            (
                "a condition and a label",
                base().build(),
                node("n").condition("Ready", "False").build(),
                vec!["NodeUpdateNodeLabel", "NodeUpdateNodeCondition"],
            ),
            (
                "an annotation",
                base().build(),
                base().annotation("a", "b").build(),
                vec!["NodeUpdateNodeAnnotation"],
            ),
        ];
        for (name, old, new, expected) in cases {
            assert_eq!(labels(&node_events(&old, &new, &Features::default())), expected, "{name}");
        }
    }
}

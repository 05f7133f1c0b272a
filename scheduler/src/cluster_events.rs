//! What exactly changed between two versions of an object.

use smallvec::SmallVec;
use supercargo_framework::{ActionType, ClusterEvent, EventResource, NodeRecord, PodInfo, Resource};

/// Usually one event, seldom more.
pub(crate) type Events = SmallVec<[ClusterEvent; 2]>;

/// The events of a pod update, or one generic update when nothing in particular changed.
pub(crate) fn pod_events(old: &PodInfo, new: &PodInfo) -> Events {
    let resource =
        if new.is_assigned() { EventResource::AssignedPod } else { EventResource::UnschedulablePod };
    let mut actions = SmallVec::<[ActionType; 2]>::new();
    if old.labels != new.labels {
        actions.push(ActionType::UPDATE_POD_LABEL);
    }
    if any_less(&new.requests().resource, &old.requests().resource) {
        actions.push(ActionType::UPDATE_POD_SCALE_DOWN);
    }
    if !old.scheduling_gates.is_empty() && new.scheduling_gates.is_empty() {
        actions.push(ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED);
    }
    if old.spec.tolerations.len() != new.spec.tolerations.len() {
        actions.push(ActionType::UPDATE_POD_TOLERATION);
    }
    if old.status.claim_statuses != new.status.claim_statuses {
        actions.push(ActionType::UPDATE_POD_GENERATED_RESOURCE_CLAIM);
    }
    if actions.is_empty() {
        actions.push(ActionType::UPDATE);
    }
    actions.into_iter().map(|action| ClusterEvent::new(resource.clone(), action)).collect()
}

/// The events of a node update; none when nothing changed that scheduling reads.
pub(crate) fn node_events(old: &NodeRecord, new: &NodeRecord) -> Events {
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
    push(old.annotations != new.annotations, ActionType::UPDATE_NODE_ANNOTATION);
    push(old.declared_features != new.declared_features, ActionType::UPDATE_NODE_DECLARED_FEATURE);
    events
}

/// Whether `new` asks for less of anything than `old`.
fn any_less(new: &Resource, old: &Resource) -> bool {
    new.milli_cpu < old.milli_cpu
        || new.memory < old.memory
        || new.ephemeral_storage < old.ephemeral_storage
        || old.scalars().iter().any(|(name, amount)| new.scalar(name) < *amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use supercargo_framework::TaintEffect;
    use supercargo_framework::testing::{node, pod};

    fn labels(events: &Events) -> Vec<String> {
        events.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_pod_update_is_named_after_what_changed() {
        let base = || pod("a").request("cpu", "2");
        let cases = [
            (
                "labels",
                base().build(),
                base().label("a", "b").build(),
                vec!["UnschedulablePodUpdatePodLabel"],
            ),
            (
                "a smaller request",
                base().build(),
                pod("a").request("cpu", "1").build(),
                vec!["UnschedulablePodUpdatePodScaleDown"],
            ),
            (
                "a larger request",
                base().build(),
                pod("a").request("cpu", "3").build(),
                vec!["UnschedulablePodUpdate"],
            ),
            (
                "the last gate lifted, on an assigned pod",
                base().gate("g").build(),
                base().node("n").build(),
                vec!["AssignedPodUpdatePodSchedulingGatesEliminated"],
            ),
            (
                "one of two gates lifted",
                base().gate("g").gate("h").build(),
                base().gate("g").build(),
                vec!["UnschedulablePodUpdate"],
            ),
            (
                "a toleration and a label",
                base().build(),
                base().label("a", "b").tolerates("k", "v", TaintEffect::NoSchedule).build(),
                vec!["UnschedulablePodUpdatePodLabel", "UnschedulablePodUpdatePodToleration"],
            ),
        ];
        for (name, old, new, expected) in cases {
            assert_eq!(labels(&pod_events(&old, &new)), expected, "{name}");
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
            assert_eq!(labels(&node_events(&old, &new)), expected, "{name}");
        }
    }
}

//! Queueing hints for pods that hard constraints rejected.

use supercargo_framework::caching::{HintMarks, Mark, Wish};
use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::hint::{self, Hint, held_a_node};
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{NodeRecord, PodInfo, QueueContext};

use super::PodTopologySpread;
use super::constraint::{Constraint, has_every_key};

/// Whether another pod can affect the pending pod.
fn is_involved(changed: &PodInfo, waiting: &PodInfo) -> bool {
    held_a_node(changed) && changed.namespace == waiting.namespace
}

/// Whether a constraint selects the pod.
fn is_spread(pod: &PodInfo, constraints: &[Constraint]) -> bool {
    constraints.iter().any(|constraint| constraint.selects(&pod.labels))
}

impl PodTopologySpread {
    /// Another pod was added, changed its labels, or was deleted.
    pub(super) fn after_pod_change(&self, cx: &QueueContext<'_>, pod: &PodInfo, change: &Change) -> Hint {
        let (old, new) = (change.old_pod(), change.new_pod());
        if old.into_iter().chain(new).any(|changed| !is_involved(changed, pod)) {
            return Ok(QueueingHint::Skip);
        }
        let constraints = self.constraints(cx, pod, true);
        match (old, new) {
            (Some(old), Some(new)) => Ok(QueueingHint::queue_if(flips(&constraints, old, new))),
            (Some(only), None) | (None, Some(only)) => {
                Ok(QueueingHint::queue_if(is_spread(only, &constraints)))
            }
            (None, None) => Err("expected a pod before or after the event".to_owned()),
        }
    }

    /// The pending pod changed its labels or tolerations. More tolerations can make more nodes
    /// count.
    pub(super) fn after_own_update(&self, cx: &QueueContext<'_>, pod: &PodInfo, change: &Change) -> Hint {
        let (old, new) = (hint::old_pod(change)?, hint::new_pod(change)?);
        let constraints = self.constraints(cx, pod, true);
        let tolerates_more =
            old.spec.tolerations != new.spec.tolerations && constraints.iter().any(Constraint::honors_taints);
        Ok(QueueingHint::queue_if(tolerates_more || flips(&constraints, old, new)))
    }

    pub(super) fn after_node_change(&self, cx: &QueueContext<'_>, pod: &PodInfo, change: &Change) -> Hint {
        let constraints = self.constraints(cx, pod, true);
        let counts = |node: &NodeRecord| has_every_key(&node.labels, &constraints);
        match (change.old_node(), change.new_node()) {
            (Some(old), Some(new)) => {
                let (before, after) = (counts(old), counts(new));
                let moved = || {
                    constraints.iter().any(|constraint| {
                        let key = &constraint.topology_key;
                        old.labels.get(key) != new.labels.get(key)
                    })
                };
                let helps = before != after || (after && (moved() || old.taints != new.taints));
                Ok(QueueingHint::queue_if(helps))
            }
            (Some(only), None) | (None, Some(only)) => Ok(QueueingHint::queue_if(counts(only))),
            (None, None) => Err("expected a node before or after the event".to_owned()),
        }
    }
}

/// Whether a changed pod started or stopped to count for a constraint.
fn flips(constraints: &[Constraint], old: &PodInfo, new: &PodInfo) -> bool {
    constraints.iter().any(|constraint| constraint.selects(&old.labels) != constraint.selects(&new.labels))
}

/// What the pod's own hard constraints ask for. A pod without any may have default ones, and
/// without those, every node counts.
fn asks_for(pod: &PodInfo, wish: impl Fn(&TopologySpreadConstraint) -> Option<Wish>) -> Vec<Wish> {
    let hard = || pod.spec.topology_spread.iter().filter(|constraint| constraint.hard);
    if hard().next().is_none() { Mark::wishes([Mark::Any]) } else { hard().filter_map(wish).collect() }
}

/// Finds the pods with a constraint that may select the event's pod. `matchLabelKeys` only select
/// fewer.
pub(super) const POD_MARKS: HintMarks = HintMarks {
    of_pod: |pod| {
        asks_for(pod, |constraint| {
            Some(Mark::of_selectors([(Some(&pod.namespace), constraint.selector.as_ref()?)]))
        })
    },
    of_change: |change| Mark::of_labels(change.old_pod().into_iter().chain(change.new_pod())),
};

/// Finds the pods with a topology key that the event's node has, or that changes if its taints do
/// not.
pub(super) const NODE_MARKS: HintMarks = HintMarks {
    of_pod: |pod| {
        asks_for(pod, |constraint| Some(vec![vec![Mark::Node((constraint.topology_key.clone(), None))]]))
    },
    of_change: |change| match (change.old_node(), change.new_node()) {
        (Some(old), Some(new)) if old.taints == new.taints => Mark::of_changed_node(&old.labels, &new.labels),
        (old, new) => Mark::of_nodes(old.into_iter().chain(new)),
    },
};

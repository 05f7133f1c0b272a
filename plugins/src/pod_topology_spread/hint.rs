//! Queueing hints for pods that hard constraints rejected.

use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::{NodeRecord, PodInfo, QueueContext};

use super::PodTopologySpread;
use super::constraint::{Constraint, has_every_key};
use crate::hint::{Hint, held_a_node};

/// Whether the pod of an event can affect the pending pod.
fn is_involved(changed: &PodInfo, waiting: &PodInfo) -> bool {
    changed.uid == waiting.uid || (held_a_node(changed) && changed.namespace == waiting.namespace)
}

/// Whether a constraint selects the pod.
fn is_spread(pod: &PodInfo, constraints: &[Constraint]) -> bool {
    constraints.iter().any(|constraint| constraint.selects(&pod.labels))
}

impl PodTopologySpread {
    pub(super) fn after_pod_change(&self, cx: &QueueContext<'_>, pod: &PodInfo, change: &Change) -> Hint {
        let (old, new) = (change.old_pod(), change.new_pod());
        if old.into_iter().chain(new).any(|changed| !is_involved(changed, pod)) {
            return Ok(QueueingHint::Skip);
        }
        let constraints = self.constraints(cx, pod, true);
        match (old, new) {
            (Some(old), Some(new)) => {
                Ok(QueueingHint::queue_if(update_can_help(pod, &constraints, old, new)))
            }
            (Some(only), None) | (None, Some(only)) => {
                Ok(QueueingHint::queue_if(is_spread(only, &constraints)))
            }
            (None, None) => Err("expected a pod before or after the event".to_owned()),
        }
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

/// Whether a changed pod started or stopped to count, or the pending pod got tolerations that make
/// more nodes count.
fn update_can_help(pod: &PodInfo, constraints: &[Constraint], old: &PodInfo, new: &PodInfo) -> bool {
    let tolerates_more = pod.uid == new.uid
        && old.spec.tolerations != new.spec.tolerations
        && constraints.iter().any(Constraint::honors_taints);
    let flips = |constraint: &Constraint| constraint.selects(&old.labels) != constraint.selects(&new.labels);
    tolerates_more || constraints.iter().any(flips)
}

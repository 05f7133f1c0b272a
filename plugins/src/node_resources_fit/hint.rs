//! Queueing hints for pods that did not fit.
//!
//! As upstream, hints do not consider ignored resources: a node without one does not fit here,
//! although it passes Filter.

use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::{PodInfo, Resource};

use crate::hint::{Hint, held_a_node, new_node, new_pod, old_pod};

/// A pod was deleted.
pub(super) fn after_pod_deleted(_: &PodInfo, change: &Change) -> Hint {
    Ok(QueueingHint::queue_if(held_a_node(old_pod(change)?)))
}

/// A pod on a node was scaled down.
pub(super) fn after_pod_shrunk(pod: &PodInfo, change: &Change) -> Hint {
    let (old, new) = (old_pod(change)?, new_pod(change)?);
    let frees = new.is_assigned() && shrank(pod, &old.requests().resource, &new.requests().resource);
    Ok(QueueingHint::queue_if(frees))
}

/// Whether the amount of a resource that the pod requests has decreased.
fn shrank(pod: &PodInfo, old: &Resource, new: &Resource) -> bool {
    any_requested(&pod.requests().resource, |amount| amount(new) < amount(old))
}

/// A node was added, or its allocatable changed.
pub(super) fn after_node_change(pod: &PodInfo, change: &Change) -> Hint {
    let new = &new_node(change)?.allocatable;
    let request = &pod.spec.requests.resource;
    let helps = fits_when_empty(request, new)
        && change.old_node().is_none_or(|old| offers_more(request, &old.allocatable, new));
    Ok(QueueingHint::queue_if(helps))
}

/// What the node offers when it is empty.
pub(super) fn offered(change: &Change) -> Option<&Resource> {
    Some(&change.new_node()?.allocatable)
}

fn fits_when_empty(request: &Resource, offered: &Resource) -> bool {
    offered.allowed_pod_number >= 1 && !any_requested(request, |amount| amount(request) > amount(offered))
}

fn offers_more(request: &Resource, old: &Resource, new: &Resource) -> bool {
    new.allowed_pod_number > old.allowed_pod_number
        || any_requested(request, |amount| amount(new) > amount(old))
}

/// Whether the condition holds for any requested resource. The condition gets a function that reads
/// the resource's amount.
fn any_requested(request: &Resource, condition: impl Fn(&dyn Fn(&Resource) -> i64) -> bool) -> bool {
    let holds = |amount: &dyn Fn(&Resource) -> i64| amount(request) > 0 && condition(amount);
    holds(&|of| of.milli_cpu)
        || holds(&|of| of.memory)
        || holds(&|of| of.ephemeral_storage)
        || request.scalars().iter().any(|(name, _)| holds(&|of| of.scalar(name)))
}

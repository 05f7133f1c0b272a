//! What queueing hints have in common.
//!
//! An event without the object that a hint needs is an error, which counts as `Queue`: better one attempt too many than
//! a pod that waits for nothing.

use std::sync::Arc;

use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::{NodeRecord, PodInfo};

/// What a hint answers.
pub(crate) type Hint = Result<QueueingHint, String>;

/// The pod after the event.
pub(crate) fn new_pod(change: &Change) -> Result<&Arc<PodInfo>, String> {
    change.new_pod().ok_or_else(|| "expected a pod after the event".to_owned())
}

/// The pod before the event.
pub(crate) fn old_pod(change: &Change) -> Result<&Arc<PodInfo>, String> {
    change.old_pod().ok_or_else(|| "expected a pod before the event".to_owned())
}

/// The node after the event.
pub(crate) fn new_node(change: &Change) -> Result<&Arc<NodeRecord>, String> {
    change.new_node().ok_or_else(|| "expected a node after the event".to_owned())
}

/// Whether the event is about the waiting pod itself.
pub(crate) fn is_about(pod: &PodInfo, change: &Change) -> Result<bool, String> {
    new_pod(change).map(|updated| updated.uid == pod.uid)
}

/// `Queue` when the event is about the waiting pod itself.
pub(crate) fn queue_if_own(pod: &PodInfo, change: &Change) -> Hint {
    is_about(pod, change).map(QueueingHint::queue_if)
}

/// Whether a pod that is gone held anything on a node, or was about to.
pub(crate) fn held_a_node(gone: &PodInfo) -> bool {
    gone.is_assigned() || gone.status.nominated_node_name.is_some()
}

//! Common parts of queueing hints.
//!
//! An event without the object that a hint needs is an error, which counts as `Queue`: a needless
//! attempt is better than a stuck pod.

use std::sync::Arc;

use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::{NodeRecord, PodInfo};

/// The result of a hint.
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

/// Whether a pod of an event was assigned to a node or nominated for one.
pub(crate) fn held_a_node(gone: &PodInfo) -> bool {
    gone.is_assigned() || gone.status.nominated_node_name.is_some()
}

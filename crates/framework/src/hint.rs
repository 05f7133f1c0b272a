//! Common parts of queueing hints.
//!
//! An event without the object that a hint needs is an error, which counts as `Queue`: a needless
//! attempt is better than a stuck pod.

use std::sync::Arc;

use crate::event::{Change, QueueingHint};
use crate::node::NodeRecord;
use crate::pod::PodInfo;

/// The result of a hint.
pub type Hint = Result<QueueingHint, String>;

/// The pod after the event.
pub fn new_pod(change: &Change) -> Result<&Arc<PodInfo>, String> {
    change.new_pod().ok_or_else(|| "expected a pod after the event".to_owned())
}

/// The pod before the event.
pub fn old_pod(change: &Change) -> Result<&Arc<PodInfo>, String> {
    change.old_pod().ok_or_else(|| "expected a pod before the event".to_owned())
}

/// The node after the event.
pub fn new_node(change: &Change) -> Result<&Arc<NodeRecord>, String> {
    change.new_node().ok_or_else(|| "expected a node after the event".to_owned())
}

/// Whether a pod of an event was assigned to a node or nominated for one.
pub fn held_a_node(gone: &PodInfo) -> bool {
    gone.is_assigned() || gone.status.nominated_node_name.is_some()
}

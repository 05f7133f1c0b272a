//! Changes of the cluster, for queueing hints.

use std::sync::Arc;

use crate::event::Change;
use crate::node::NodeRecord;
use crate::objects::Object;
use crate::pod::PodInfo;

/// The deletion of a pod.
pub fn pod_deleted(pod: PodInfo) -> Change {
    Change::Pod { old: Some(Arc::new(pod)), new: None }
}

/// The update of a pod.
pub fn pod_updated(old: PodInfo, new: PodInfo) -> Change {
    Change::Pod { old: Some(Arc::new(old)), new: Some(Arc::new(new)) }
}

/// The addition of a node.
pub fn node_added(node: NodeRecord) -> Change {
    Change::Node { old: None, new: Some(Arc::new(node)) }
}

/// The update of a node.
pub fn node_updated(old: NodeRecord, new: NodeRecord) -> Change {
    Change::Node { old: Some(Arc::new(old)), new: Some(Arc::new(new)) }
}

/// The addition of an object.
pub fn object_added(object: Object) -> Change {
    Change::Object { old: None, new: Some(Arc::new(object)) }
}

/// The update of an object.
pub fn object_updated(old: Object, new: Object) -> Change {
    Change::Object { old: Some(Arc::new(old)), new: Some(Arc::new(new)) }
}

/// The deletion of an object.
pub fn object_deleted(object: Object) -> Change {
    Change::Object { old: Some(Arc::new(object)), new: None }
}

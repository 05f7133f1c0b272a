//! What the scheduler is told.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use supercargo_framework::binding::BindOutcome;
use supercargo_framework::objects::Object;
use supercargo_framework::{NodeRecord, PodInfo, Status, Text, Uid};

/// A change that an informer's handler saw.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Notification<T> {
    /// The object is new to the handler.
    Added(Arc<T>),
    /// The object changed. The two may be different objects of one name.
    Updated {
        /// Before.
        old: Arc<T>,
        /// After.
        new: Arc<T>,
    },
    /// The object is gone; this is its last known state.
    Deleted(Arc<T>),
}

/// The answer to [`Effect::ReadPod`](crate::Effect::ReadPod), read from the API server with a quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodRead {
    /// There is no pod of that name and UID.
    Gone,
    /// The pod exists; this is its node, if it has one.
    Exists(Option<Arc<str>>),
    /// The server did not answer.
    Failed,
}

/// How the deletion of a victim went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Eviction {
    /// The pod has been deleted, or will be when its grace period has ended.
    Deleted,
    /// There was no such pod any more.
    Gone,
    /// The server would not, or did not answer.
    Failed(String),
}

/// Everything that changes the scheduler. Together with the time it was handled at, the log of inputs determines every
/// decision.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Input {
    /// A pod with a node, whoever scheduled it: for the cache.
    AssignedPod(Notification<PodInfo>),
    /// A pod without a node that one of the profiles is responsible for: for the queue.
    QueuedPod(Notification<PodInfo>),
    /// A node.
    Node(Notification<NodeRecord>),
    /// An object of another kind.
    Object(Notification<Object>),
    /// PreBind ended.
    PreBound {
        /// The pod.
        pod: Uid,
        /// How.
        status: Status,
    },
    /// Bind ended.
    Bound {
        /// The pod.
        pod: Uid,
        /// The plugin whose outcome it is; empty when it was an extender, or none.
        #[serde(default)]
        by: Text,
        /// How.
        outcome: BindOutcome,
    },
    /// The answer to a read.
    PodRead {
        /// The pod.
        pod: Uid,
        /// What the server says.
        read: PodRead,
    },
    /// The answer to [`Effect::Evict`](crate::Effect::Evict).
    Evicted {
        /// The preemption.
        preemption: u64,
        /// One for each victim, in their order.
        outcomes: Vec<Eviction>,
    },
    /// Time has passed: do what is due.
    Tick,
    /// Take no more pods; turn back those on their way that Bind has not begun with, and let the others end.
    Drain,
}

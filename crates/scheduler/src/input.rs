//! The inputs of the scheduler.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use supercargo_framework::binding::{BindOutcome, BindingReport};
use supercargo_framework::objects::Object;
use supercargo_framework::{NodeRecord, PodInfo, Status, Text, Uid};

/// A change that an informer reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Notification<T> {
    /// The object is new to the handler.
    Added(Arc<T>),
    /// The object changed. The two may be different objects of the same name.
    Updated {
        /// Before.
        old: Arc<T>,
        /// After.
        new: Arc<T>,
    },
    /// The object was deleted; this is its last known state.
    Deleted(Arc<T>),
}

/// The answer to [`Effect::ReadPod`](crate::Effect::ReadPod), read from the API server with a
/// quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodRead {
    /// No pod of this name and UID exists.
    Gone,
    /// The pod exists; this is its node, if it has one.
    Exists(Option<Arc<str>>),
    /// The read failed.
    Failed,
}

/// The result of deleting a victim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Eviction {
    /// The pod was deleted, or terminates.
    Deleted,
    /// The pod did not exist.
    Gone,
    /// The deletion failed.
    Failed(String),
}

/// All changes of the scheduler's state. The log of inputs and their times determines every
/// decision.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Input {
    /// A pod with a node, of any scheduler: for the cache.
    AssignedPod(Notification<PodInfo>),
    /// A pod without a node: for the queue if one of the profiles is responsible for it.
    QueuedPod(Notification<PodInfo>),
    /// A node.
    Node(Notification<NodeRecord>),
    /// An object of another kind.
    Object(Notification<Object>),
    /// The API server's answer to a binding's write of an object, before the informer shows it.
    Written(Arc<Object>),
    /// The requests of an [`Effect::Write`](crate::Effect::Write) for a pod have been answered, or
    /// failed.
    WriteEnded {
        /// The pod.
        pod: Uid,
        /// Whether to try it again after its backoff.
        retry: bool,
    },
    /// PreBind reports something.
    BindingReport(BindingReport),
    /// PreBind ended.
    PreBound {
        /// The pod.
        pod: Uid,
        /// The result.
        status: Status,
    },
    /// Bind ended.
    Bound {
        /// The pod.
        pod: Uid,
        /// The plugin that reports the outcome; empty if an extender does, or none.
        #[serde(default)]
        by: Text,
        /// The result.
        outcome: BindOutcome,
    },
    /// The answer to a read.
    PodRead {
        /// The pod.
        pod: Uid,
        /// The answer.
        read: PodRead,
    },
    /// The answer to [`Effect::Evict`](crate::Effect::Evict).
    Evicted {
        /// The number of the preemption.
        preemption: u64,
        /// One result per victim, in their order.
        outcomes: Vec<Eviction>,
    },
    /// Time has passed: handle what is due.
    Tick,
    /// Take no more pods, cancel bindings before Bind, and let started Binds end.
    Drain,
}

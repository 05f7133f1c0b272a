//! An entry of the log.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use supercargo_framework::Timestamp;
use supercargo_framework::pod::PodKey;

/// Something that happened to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happening<S = Arc<str>> {
    /// It entered the queue.
    Added,
    /// This PreEnqueue plugin holds it.
    Gated(S),
    /// No PreEnqueue plugin holds it any more.
    Released,
    /// This made it worth another attempt. Not noted for pods of groups.
    Woken(S),
    /// An attempt chose this node.
    Chosen(S, Attempt),
    /// This Permit plugin holds it.
    Waits(S),
    /// Permit no longer holds it.
    Permitted,
    /// It was bound to this node.
    Bound(S),
    /// An attempt failed: no node fits, or the binding failed. The message says why.
    Failed(S, Attempt),
    /// It preempts this many pods on this node.
    Preempts(S, usize),
    /// It was evicted for this pod.
    PreemptedBy {
        /// The pod's namespace.
        namespace: S,
        /// Its name.
        name: S,
    },
    /// It gave its node up, for this reason, and is tried again at once.
    GaveUp(S),
    /// Another scheduler bound it to this node.
    BoundElsewhere(S),
    /// It was deleted, or left the queue.
    Deleted,
    /// It succeeded or failed, or was deleted at once: the informer does not tell which.
    Ended,
}

impl<S> Happening<S> {
    /// The same with other texts.
    pub(crate) fn map<'a, T>(&'a self, mut text: impl FnMut(&'a S) -> T) -> Happening<T> {
        match self {
            Self::Added => Happening::Added,
            Self::Gated(plugin) => Happening::Gated(text(plugin)),
            Self::Released => Happening::Released,
            Self::Woken(cause) => Happening::Woken(text(cause)),
            Self::Chosen(node, attempt) => Happening::Chosen(text(node), *attempt),
            Self::Waits(plugin) => Happening::Waits(text(plugin)),
            Self::Permitted => Happening::Permitted,
            Self::Bound(node) => Happening::Bound(text(node)),
            Self::Failed(message, attempt) => Happening::Failed(text(message), *attempt),
            Self::Preempts(node, pods) => Happening::Preempts(text(node), *pods),
            Self::PreemptedBy { namespace, name } => {
                Happening::PreemptedBy { namespace: text(namespace), name: text(name) }
            }
            Self::GaveUp(cause) => Happening::GaveUp(text(cause)),
            Self::BoundElsewhere(node) => Happening::BoundElsewhere(text(node)),
            Self::Deleted => Happening::Deleted,
            Self::Ended => Happening::Ended,
        }
    }
}

/// An attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// Whether the pod was tried because it had waited too long.
    pub after_flush: bool,
}

/// What happened to a pod, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The time.
    pub time: Timestamp,
    /// The pod.
    pub pod: PodKey,
    /// What happened.
    pub what: Happening,
}

//! The queues between the reflector and the processor, and their common parts.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::delta::{Batch, Delta, Queue};
use crate::delta_fifo::ByKey;
use crate::kind::Kind;
use crate::real_fifo::InOrder;
use crate::store::{Indexers, Store};

/// The queue between the reflector and the store. It determines the order in which a list is
/// processed, and what the store shows in between.
///
/// For a list without `c`, with the known `a` and `b`, and with the new `d`:
///
/// | queue | order of calls | and the store then contains |
/// |---|---|---|
/// | `RealFifo { atomic: true }` | `c` deleted, `a`, `b`, `d` | the whole list |
/// | `RealFifo { atomic: false }` | `c` deleted, `a`, `b`, `d` | up to 1000 more of these changes |
/// | `DeltaFifo { .. }` | `a`, `b`, `d`, `c` deleted | one more of these changes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueKind {
    /// Keeps every change, in order across all objects. Same as client-go's `RealFIFO`: delivers
    /// the deletion of an object that was never seen.
    RealFifo {
        /// Treats lists and resyncs as one change each, as client-go does since 1.36. Otherwise,
        /// they are split, bookmarks do not reach the store, and the store has no resource version.
        atomic: bool,
    },
    /// Groups the changes of an object at the position of its first one. Same as client-go's
    /// `DeltaFIFO`, the default before 1.33: drops the deletion of an object that was never seen,
    /// and merges two consecutive deletions into the better informed one.
    DeltaFifo {
        /// Whether items of a list are replaced or resynced. Same as client-go's
        /// `EmitDeltaTypeReplaced`. Handlers see no difference, as in client-go: an update's
        /// resource version decides which handlers receive it.
        replaced: bool,
    },
}

impl Default for QueueKind {
    /// client-go's default since 1.36.
    fn default() -> Self {
        Self::RealFifo { atomic: true }
    }
}

impl QueueKind {
    /// The store that matches this queue.
    pub(crate) fn store<K: Kind>(self, kind: Arc<K>, indexers: Indexers<K::Object>) -> Store<K::Object> {
        match self {
            Self::RealFifo { atomic: true } => Store::new(kind, indexers),
            Self::RealFifo { atomic: false } | Self::DeltaFifo { .. } => Store::unversioned(kind, indexers),
        }
    }
}

/// The content of a queue.
pub(crate) trait Content: Send + 'static {
    type Object: Send + Sync + 'static;

    fn push(&mut self, delta: Delta<Self::Object>);

    /// Removes the next batch, if there is one.
    fn next_batch(&mut self) -> Option<Batch<Self::Object>>;

    /// The number of queued changes, or of objects if changes are grouped.
    fn len(&self) -> usize;

    /// Whether pushes read the store. What was popped must then be in the store before the next
    /// push.
    fn consults_store(&self) -> bool;
}

/// A queue with one consumer. The reflector pushes without waiting.
pub(crate) struct InformerQueue<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

struct State<T> {
    content: Box<dyn Content<Object = T>>,
    closed: bool,
}

impl<T: Send + Sync + 'static> InformerQueue<T> {
    /// A queue whose consumer writes to `store`.
    pub(crate) fn new(kind: QueueKind, store: &Store<T>) -> Self {
        match kind {
            QueueKind::RealFifo { atomic: true } => Self::holding(InOrder::new(None)),
            QueueKind::RealFifo { atomic: false } => Self::holding(InOrder::new(Some(store.clone()))),
            QueueKind::DeltaFifo { replaced } => Self::holding(ByKey::new(store.clone(), replaced)),
        }
    }

    pub(crate) fn holding(content: impl Content<Object = T>) -> Self {
        let state = State { content: Box::new(content), closed: false };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    /// Waits for the next batch and processes it. Returns `None` once the queue is closed and
    /// empty. If the content consults the store, nothing is pushed during `process`.
    ///
    /// Cancel safe.
    pub(crate) async fn process_next<R>(&self, process: impl FnOnce(Batch<T>) -> R) -> Option<R> {
        loop {
            // The block drops the guard before the wait.
            {
                let mut state = self.state.lock();
                if let Some(batch) = state.content.next_batch() {
                    if !state.content.consults_store() {
                        drop(state);
                    }
                    return Some(process(batch));
                }
                if state.closed {
                    // Wakes the next waiter, too.
                    self.changed.notify_one();
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// See [`Content::len`].
    pub(crate) fn len(&self) -> usize {
        self.state.lock().content.len()
    }

    /// The next batch, for tests without a store.
    #[cfg(test)]
    pub(crate) async fn pop_batch(&self) -> Option<Batch<T>> {
        self.process_next(|batch| batch).await
    }
}

impl<T: Send + Sync + 'static> Queue<T> for InformerQueue<T> {
    fn append(&self, delta: Delta<T>) {
        let mut state = self.state.lock();
        if !state.closed {
            state.content.push(delta);
        }
    }

    fn announce(&self) {
        self.changed.notify_one();
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }
}

/// Tracks the first list through a queue.
#[derive(Debug, Default)]
pub(crate) struct Population {
    populated: bool,
    remaining: usize,
    announced: bool,
}

impl Population {
    /// Notes a change that is not a list. If it precedes any list, there is no first list to wait
    /// for.
    pub(crate) fn touch(&mut self) {
        self.populated = true;
    }

    /// Notes a list that will have been popped after `count` pops.
    pub(crate) fn list(&mut self, count: usize) {
        if !std::mem::replace(&mut self.populated, true) {
            self.remaining = count;
        }
    }

    pub(crate) fn popped(&mut self, count: usize) {
        self.remaining = self.remaining.saturating_sub(count);
    }

    /// The remaining pops of the first list, if any.
    pub(crate) fn remaining(&self) -> Option<usize> {
        (self.remaining > 0).then_some(self.remaining)
    }

    /// Whether the first list has been popped, or there is none.
    pub(crate) fn has_synced(&self) -> bool {
        self.populated && self.remaining == 0
    }

    /// Builds a batch of `popped` changes.
    pub(crate) fn batch<T>(&mut self, deltas: Vec<Delta<T>>, popped: usize) -> Batch<T> {
        let in_initial_list = !self.has_synced();
        self.popped(popped);
        self.announced |= self.has_synced();
        Batch { deltas, in_initial_list, synced: self.has_synced() }
    }

    /// An empty batch that reports an empty first list, once.
    pub(crate) fn untold<T>(&mut self) -> Option<Batch<T>> {
        (self.has_synced() && !self.announced).then(|| self.batch(Vec::new(), 0))
    }
}

#[cfg(test)]
pub(crate) mod tests;

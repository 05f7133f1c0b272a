//! Queues between the reflector and what processes its news: their kinds, and what they have in common.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::delta::{Batch, Delta, Queue};
use crate::delta_fifo::DeltaFifo;
use crate::kind::Kind;
use crate::real_fifo::RealFifo;
use crate::store::{Indexers, Store};

/// The queue between the reflector and the store. It decides in which order a list comes to notice, and what
/// the store shows meanwhile.
///
/// With a list that lacks `c`, still has `a` and `b`, and has `d` for the first time:
///
/// | queue | handlers hear of | and the store then has |
/// |---|---|---|
/// | `RealFifo { atomic: true }` | `c` gone, `a`, `b`, `d` | all of the list |
/// | `RealFifo { atomic: false }` | `c` gone, `a`, `b`, `d` | up to a thousand of these changes at a time |
/// | `DeltaFifo { .. }` | `a`, `b`, `d`, `c` gone | one change at a time |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Every change in its order over all objects, none left out. Same as client-go's `RealFIFO`: the deletion
    /// of an object that was never seen is told as well.
    RealFifo {
        /// Lists and resyncs are one change each. Otherwise they are taken apart, bookmarks do not reach the
        /// store, and the store cannot say which resource version it has. As client-go since 1.36 if set, and
        /// as before if not.
        atomic: bool,
    },
    /// All changes of an object together, in the place of its first. Same as client-go's `DeltaFIFO`, which
    /// was the default before 1.33: the deletion of an object that was never seen is not told, and of two
    /// deletions in a row the one that knows more is.
    DeltaFifo {
        /// Whether what a list has counts as replaced, or as resynced. Same as client-go's
        /// `EmitDeltaTypeReplaced`, and like there no handler can tell: who hears of an update is decided by
        /// whether its resource version changed.
        replaced: bool,
    },
}

impl Default for QueueKind {
    /// client-go's since 1.36.
    fn default() -> Self {
        Self::RealFifo { atomic: true }
    }
}

impl QueueKind {
    /// The store that goes with such a queue.
    pub(crate) fn store<K: Kind>(self, kind: Arc<K>, indexers: Indexers<K::Object>) -> Store<K::Object> {
        match self {
            Self::RealFifo { atomic: true } => Store::new(kind, indexers),
            Self::RealFifo { atomic: false } | Self::DeltaFifo { .. } => Store::unversioned(kind, indexers),
        }
    }
}

/// The content of a queue, without the waiting.
pub(crate) trait Content: Send + 'static {
    type Object: Send + Sync + 'static;

    fn push(&mut self, delta: Delta<Self::Object>);

    /// What is to be processed next, if anything is.
    fn next_batch(&mut self) -> Option<Batch<Self::Object>>;

    /// How much is in the queue: changes, or objects if those have their changes together.
    fn len(&self) -> usize;

    /// Whether pushes look at the store. What was popped must then be in the store before the next push.
    fn consults_store(&self) -> bool;
}

/// A queue for one consumer. The reflector pushes and never waits for room.
pub(crate) struct Fifo<C> {
    state: Mutex<State<C>>,
    changed: Notify,
}

struct State<C> {
    content: C,
    closed: bool,
}

impl<C: Content> Fifo<C> {
    pub(crate) fn holding(content: C) -> Self {
        Self { state: Mutex::new(State { content, closed: false }), changed: Notify::new() }
    }

    /// Waits for the next batch and processes it; `None` once the queue is closed and everything in it was
    /// processed. Nothing is pushed meanwhile if the content consults the store.
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn process_next<R>(&self, process: impl FnOnce(Batch<C::Object>) -> R) -> Option<R> {
        loop {
            // In a block of its own, so that the guard is gone before the wait.
            {
                let mut state = self.state.lock();
                if let Some(batch) = state.content.next_batch() {
                    if !state.content.consults_store() {
                        drop(state);
                    }
                    return Some(process(batch));
                }
                if state.closed {
                    // Whoever else waits is to learn of it too.
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

    /// The next batch, for those who keep no store.
    #[cfg(test)]
    pub(crate) async fn pop_batch(&self) -> Option<Batch<C::Object>> {
        self.process_next(|batch| batch).await
    }
}

impl<C: Content> Queue<C::Object> for Fifo<C> {
    fn append(&self, delta: Delta<C::Object>) {
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

/// A queue of the kind that was asked for.
pub(crate) enum InformerQueue<T> {
    Real(RealFifo<T>),
    Delta(DeltaFifo<T>),
}

impl<T: Send + Sync + 'static> InformerQueue<T> {
    /// A queue whose consumer writes to `store`.
    pub(crate) fn new(kind: QueueKind, store: &Store<T>) -> Self {
        match kind {
            QueueKind::RealFifo { atomic: true } => Self::Real(RealFifo::new()),
            QueueKind::RealFifo { atomic: false } => Self::Real(RealFifo::per_object(store.clone())),
            QueueKind::DeltaFifo { replaced } => Self::Delta(DeltaFifo::new(store.clone(), replaced)),
        }
    }

    /// See [`Content::len`].
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Real(queue) => queue.len(),
            Self::Delta(queue) => queue.len(),
        }
    }

    /// See [`Fifo::process_next`].
    pub(crate) async fn process_next<R>(&self, process: impl FnOnce(Batch<T>) -> R) -> Option<R> {
        match self {
            Self::Real(queue) => queue.process_next(process).await,
            Self::Delta(queue) => queue.process_next(process).await,
        }
    }
}

impl<T: Send + Sync + 'static> Queue<T> for InformerQueue<T> {
    fn append(&self, delta: Delta<T>) {
        match self {
            Self::Real(queue) => queue.append(delta),
            Self::Delta(queue) => queue.append(delta),
        }
    }

    fn announce(&self) {
        match self {
            Self::Real(queue) => queue.announce(),
            Self::Delta(queue) => queue.announce(),
        }
    }

    fn close(&self) {
        match self {
            Self::Real(queue) => queue.close(),
            Self::Delta(queue) => queue.close(),
        }
    }
}

/// How much of the first list a queue still holds.
#[derive(Debug, Default)]
pub(crate) struct Population {
    populated: bool,
    remaining: usize,
    told: bool,
}

impl Population {
    /// Something other than a list was pushed. If it comes before any list, there is none to wait for.
    pub(crate) fn touch(&mut self) {
        self.populated = true;
    }

    /// A list was pushed, and is popped after `count` pops from now on.
    pub(crate) fn list(&mut self, count: usize) {
        if !std::mem::replace(&mut self.populated, true) {
            self.remaining = count;
        }
    }

    pub(crate) fn popped(&mut self, count: usize) {
        self.remaining = self.remaining.saturating_sub(count);
    }

    /// How much is left, if anything.
    pub(crate) fn remaining(&self) -> Option<usize> {
        (self.remaining > 0).then_some(self.remaining)
    }

    /// Whether nothing is left of the first list, or it never was awaited.
    pub(crate) fn has_synced(&self) -> bool {
        self.populated && self.remaining == 0
    }

    /// A batch of what was popped: `popped` changes that a list may have brought.
    pub(crate) fn batch<T>(&mut self, deltas: Vec<Delta<T>>, popped: usize) -> Batch<T> {
        let in_initial_list = !self.has_synced();
        self.popped(popped);
        self.told |= self.has_synced();
        Batch { deltas, in_initial_list, synced: self.has_synced() }
    }

    /// For a queue with nothing in it: an empty first list is news as well, once.
    pub(crate) fn untold<T>(&mut self) -> Option<Batch<T>> {
        (self.has_synced() && !self.told).then(|| self.batch(Vec::new(), 0))
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! What the reflector tells the informer, and the queue in between.

use std::future::Future;
use std::sync::Arc;

use crate::key::{Deleted, ObjectKey};

/// One change, in the order in which the reflector saw it.
#[derive(Debug)]
pub(crate) enum Delta<T> {
    /// The watch said ADDED. Whether it is news is for the store to decide.
    Added(ObjectKey, Arc<T>),
    /// The watch said MODIFIED.
    Updated(ObjectKey, Arc<T>),
    /// The object is gone.
    Deleted(ObjectKey, Deleted<T>),
    /// A list replaces everything that was known.
    ReplacedAll(Replacement<T>),
    /// A resync: every stored object is to be shown again.
    SyncAll,
    /// Nothing changed up to this resource version.
    Bookmark(String),
}

/// The content of one complete list.
#[derive(Debug)]
pub(crate) struct Replacement<T> {
    pub(crate) objects: Vec<(ObjectKey, Arc<T>)>,
    /// Objects that exist but could not be decoded: what the store has of them stays.
    pub(crate) keep: Vec<ObjectKey>,
    pub(crate) resource_version: String,
}

impl<T> Delta<T> {
    /// The key, if the change concerns a single object.
    pub(crate) fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Added(key, _) | Self::Updated(key, _) | Self::Deleted(key, _) => Some(key),
            Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }
}

/// Changes to be applied under one lock of the store, no key among them twice.
#[derive(Debug)]
pub(crate) struct Batch<T> {
    pub(crate) deltas: Vec<Delta<T>>,
    /// The changes come from the first list.
    pub(crate) in_initial_list: bool,
    /// Once this batch has been processed, the whole first list has been.
    pub(crate) synced: bool,
}

/// Producer and consumer meet here: the reflector pushes and never waits, the informer pops batches.
pub(crate) trait Queue<T>: Send + Sync + 'static {
    /// Appends a change; dropped once the queue is closed.
    fn push(&self, delta: Delta<T>);

    /// The next batch; waits for one. `None` once the queue is closed and everything in it was popped.
    ///
    /// Dropping the future loses nothing.
    fn pop_batch(&self) -> impl Future<Output = Option<Batch<T>>> + Send;

    /// How many changes are in the queue.
    fn len(&self) -> usize;

    /// Ends the queue; what is in it can still be popped.
    fn close(&self);
}

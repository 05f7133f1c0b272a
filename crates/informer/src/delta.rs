//! What the reflector tells the informer, one change at a time or in batches.

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
    /// A list has the object; whether it changed is not known. Only queues that take lists apart say so.
    Replaced(ObjectKey, Arc<T>),
    /// A resync is to show the stored object again. Only queues that take resyncs apart say so.
    Sync(ObjectKey, Arc<T>),
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

impl<T> Replacement<T> {
    /// The keys of all objects that exist, whether they could be decoded or not.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.objects.iter().map(|(key, _)| key).chain(&self.keep)
    }
}

impl<T> Delta<T> {
    /// The key, if the change concerns a single object.
    pub(crate) fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Added(key, _)
            | Self::Updated(key, _)
            | Self::Deleted(key, _)
            | Self::Replaced(key, _)
            | Self::Sync(key, _) => Some(key),
            Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }

    /// The last state of a single object that the change tells of, if it tells of any.
    pub(crate) fn object(&self) -> Option<&Arc<T>> {
        match self {
            Self::Added(_, object)
            | Self::Updated(_, object)
            | Self::Replaced(_, object)
            | Self::Sync(_, object) => Some(object),
            Self::Deleted(_, deleted) => deleted.object(),
            Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }

    /// The news, found out by a list, that an object is gone.
    pub(crate) fn tombstone(key: ObjectKey, last: Option<Arc<T>>) -> Self {
        Self::Deleted(key.clone(), Deleted::FinalStateUnknown { key, last })
    }
}

/// Changes to be applied under one lock of the store.
#[derive(Debug)]
pub(crate) struct Batch<T> {
    pub(crate) deltas: Vec<Delta<T>>,
    /// The changes come from the first list.
    pub(crate) in_initial_list: bool,
    /// Once this batch has been processed, the whole first list has been.
    pub(crate) synced: bool,
}

/// Where the reflector leaves what it reads. It never waits there.
pub(crate) trait Queue<T>: Send + Sync + 'static {
    /// Hands a change over; dropped once the queue is closed.
    fn push(&self, delta: Delta<T>) {
        self.append(delta);
        self.announce();
    }

    /// The same for one of many: whoever waits for changes may sleep on until they are announced.
    fn append(&self, delta: Delta<T>);

    /// Wakes whoever waits for changes, if there are any.
    fn announce(&self);

    /// Nothing more will come; what is queued is still there to be processed.
    fn close(&self);
}

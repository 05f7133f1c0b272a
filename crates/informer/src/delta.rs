//! What the reflector reports to the informer, as single changes or in batches.

use std::sync::Arc;

use crate::key::{Deleted, ObjectKey};

/// One change, in the order in which the reflector received it.
#[derive(Debug)]
pub(crate) enum Delta<T> {
    /// The watch reported ADDED. The store decides whether the object is new.
    Added(ObjectKey, Arc<T>),
    /// The watch reported MODIFIED.
    Updated(ObjectKey, Arc<T>),
    /// The object was deleted.
    Deleted(ObjectKey, Deleted<T>),
    /// A list contains the object, whether changed or not. Only queues that split lists emit it.
    Replaced(ObjectKey, Arc<T>),
    /// A resync of one stored object. Only queues that split resyncs emit it.
    Sync(ObjectKey, Arc<T>),
    /// A list replaces the whole content.
    ReplacedAll(Replacement<T>),
    /// A resync of all stored objects.
    SyncAll,
    /// Nothing else changed up to this resource version.
    Bookmark(String),
}

/// The content of one complete list.
#[derive(Debug)]
pub(crate) struct Replacement<T> {
    pub(crate) objects: Vec<(ObjectKey, Arc<T>)>,
    /// Objects that exist but could not be decoded. The store keeps what it has of them.
    pub(crate) keep: Vec<ObjectKey>,
    pub(crate) resource_version: String,
}

impl<T> Replacement<T> {
    /// The keys of all objects that exist, decodable or not.
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

    /// The last state of a single object, if the change has one.
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

    /// The deletion of an object that is missing from a list.
    pub(crate) fn tombstone(key: ObjectKey, last: Option<Arc<T>>) -> Self {
        Self::Deleted(key.clone(), Deleted::FinalStateUnknown { key, last })
    }
}

/// Changes that are applied under one lock of the store.
#[derive(Debug)]
pub(crate) struct Batch<T> {
    pub(crate) deltas: Vec<Delta<T>>,
    /// Whether the changes come from the first list.
    pub(crate) in_initial_list: bool,
    /// Whether this batch completes the first list.
    pub(crate) synced: bool,
}

/// The queue that the reflector writes to. It never blocks.
pub(crate) trait Queue<T>: Send + Sync + 'static {
    /// Adds a change. Dropped once the queue is closed.
    fn push(&self, delta: Delta<T>) {
        self.append(delta);
        self.announce();
    }

    /// Adds a change without waking the consumer, which may sleep until [`Self::announce`].
    fn append(&self, delta: Delta<T>);

    /// Wakes the consumer if there are changes.
    fn announce(&self);

    /// Rejects further changes. The consumer still receives the queued ones.
    fn close(&self);
}

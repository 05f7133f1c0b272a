//! The objects of a store by key, without storing the keys.

use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::key::ObjectKey;
use crate::kind::Kind;

/// The access to keys that the table requires.
trait Keys<T>: Send + Sync {
    fn key(&self, object: &T) -> ObjectKey;
    fn has_key(&self, object: &T, key: &str) -> bool;
}

impl<K: Kind> Keys<K::Object> for K {
    fn key(&self, object: &K::Object) -> ObjectKey {
        Kind::key(self, object)
    }

    fn has_key(&self, object: &K::Object, key: &str) -> bool {
        Kind::has_key(self, object, key)
    }
}

/// An object contains its own key. A second copy would be a significant part of a large store.
///
/// Users choose the names of objects, so hashes must not be predictable: every table has its own
/// seed.
pub(super) struct Objects<T> {
    /// Each object with its hash, so that growing the table does not read objects.
    table: HashTable<(u64, Arc<T>)>,
    seed: RandomState,
    keys: Arc<dyn Keys<T>>,
}

impl<T> Objects<T> {
    pub(super) fn new<K: Kind<Object = T>>(kind: Arc<K>) -> Self {
        Self { table: HashTable::new(), seed: RandomState::new(), keys: kind }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Arc<T>> {
        let hash = self.seed.hash_one(key);
        self.table.find(hash, |stored| self.is(stored, hash, key)).map(|(_, object)| object)
    }

    /// Iterates in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.table.iter().map(|(_, object)| object)
    }

    /// Iterates with keys, which are built on the fly.
    pub(super) fn entries(&self) -> impl Iterator<Item = (ObjectKey, &Arc<T>)> {
        self.iter().map(|object| (self.keys.key(object), object))
    }

    /// Stores an object under its key, and returns the previous one.
    pub(super) fn insert(&mut self, key: &str, object: Arc<T>) -> Option<Arc<T>> {
        let hash = self.seed.hash_one(key);
        let keys = Arc::clone(&self.keys);
        let is = |stored: &(u64, Arc<T>)| stored.0 == hash && keys.has_key(&stored.1, key);
        match self.table.entry(hash, is, |(hash, _)| *hash) {
            Entry::Occupied(mut stored) => Some(mem::replace(&mut stored.get_mut().1, object)),
            Entry::Vacant(place) => {
                place.insert((hash, object));
                None
            }
        }
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Arc<T>> {
        let hash = self.seed.hash_one(key);
        let keys = Arc::clone(&self.keys);
        let is = |stored: &(u64, Arc<T>)| stored.0 == hash && keys.has_key(&stored.1, key);
        let stored = self.table.find_entry(hash, is).ok()?;
        Some(stored.remove().0.1)
    }

    /// Reserves capacity for `count` objects in total.
    pub(super) fn reserve(&mut self, count: usize) {
        self.table.reserve(count.saturating_sub(self.table.len()), |(hash, _)| *hash);
    }

    fn is(&self, (stored, object): &(u64, Arc<T>), hash: u64, key: &str) -> bool {
        *stored == hash && self.keys.has_key(object, key)
    }
}

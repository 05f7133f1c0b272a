//! The store: the known objects of the server, with indices.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;
use thiserror::Error;

use crate::delta::{Delta, Replacement};
use crate::key::{Deleted, KeySet, ObjectKey};
use crate::kind::Kind;

mod objects;

use objects::Objects;

/// Calls its last argument with the values of an object in an index: none, one or several. Runs
/// under the store's lock and must not use the store.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use kube_informers::IndexFn;
/// # use std::sync::Arc;
/// let by_node: IndexFn<Pod> = Arc::new(|_, pod, file| {
///     if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
///         file(node);
///     }
/// });
/// ```
pub type IndexFn<T> = Arc<dyn Fn(&ObjectKey, &T, &mut dyn FnMut(&str)) + Send + Sync>;

/// Index functions by name of the index.
pub type Indexers<T> = BTreeMap<String, IndexFn<T>>;

/// The name of the index of [`namespace_indexer`], which listers use if it exists.
pub const NAMESPACE_INDEX: &str = "namespace";

/// The index of objects by namespace.
pub fn namespace_indexer<T>() -> Indexers<T> {
    let by_namespace: IndexFn<T> = Arc::new(|key, _, file| key.namespace().into_iter().for_each(file));
    Indexers::from([(NAMESPACE_INDEX.to_owned(), by_namespace)])
}

/// Why an index cannot be added or read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The index does not exist.
    #[error("no index named {0:?}")]
    Unknown(String),
    /// The index exists already; nothing was added.
    #[error("an index named {0:?} already exists")]
    Conflict(String),
    /// The informer has stopped, so its store is final.
    #[error("the informer has stopped")]
    Stopped,
}

/// A handle to an informer's store. Clones share the store; only the informer writes to it.
///
/// Every method reads one consistent state; separate calls may read different ones. A handle stays
/// valid and shows the current content, even after the informer has stopped.
///
/// Objects are shared with the handlers and cannot be modified through the store:
///
/// ```compile_fail
/// # fn example(store: &kube_informers::Store<String>) {
/// store.get("ns/a").unwrap().push('x');
/// # }
/// ```
pub struct Store<T>(Arc<RwLock<Content<T>>>);

struct Content<T> {
    objects: Objects<T>,
    indices: BTreeMap<String, Index<T>>,
    resource_version: String,
    versioned: bool,
}

struct Index<T> {
    values_of: IndexFn<T>,
    keys: HashMap<String, KeySet>,
    before: Values,
    after: Values,
}

/// The change of one object by a batch.
#[derive(Debug)]
pub(crate) enum StoreChange<T> {
    Added(Arc<T>),
    Updated(Arc<T>, Arc<T>),
    Deleted(Deleted<T>),
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Store<T> {
    pub(crate) fn new<K: Kind<Object = T>>(kind: Arc<K>, indexers: Indexers<T>) -> Self {
        Self::with(kind, indexers, true)
    }

    /// A store for queues that split lists, whose content has no single resource version.
    pub(crate) fn unversioned<K: Kind<Object = T>>(kind: Arc<K>, indexers: Indexers<T>) -> Self {
        Self::with(kind, indexers, false)
    }

    fn with<K: Kind<Object = T>>(kind: Arc<K>, indexers: Indexers<T>, versioned: bool) -> Self {
        let indices = indexers.into_iter().map(|(name, values_of)| (name, Index::new(values_of))).collect();
        let resource_version = String::new();
        let content = Content { objects: Objects::new(kind), indices, resource_version, versioned };
        Self(Arc::new(RwLock::new(content)))
    }

    /// The object with this key.
    pub fn get(&self, key: impl AsRef<str>) -> Option<Arc<T>> {
        self.0.read().objects.get(key.as_ref()).cloned()
    }

    /// All objects, in no particular order.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.0.read().objects.iter().cloned().collect()
    }

    /// The objects for which `predicate` holds. It runs under the store's read lock, so keep it
    /// short, and do not use the store in it.
    pub fn list_where(&self, mut predicate: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        // Does not read keys, which the store would have to build.
        self.0.read().objects.iter().filter(|object| predicate(object)).cloned().collect()
    }

    /// The objects of the namespace for which `predicate` holds, without an index.
    pub(crate) fn scan_namespace(
        &self,
        namespace: &str,
        mut predicate: impl FnMut(&T) -> bool,
    ) -> Vec<Arc<T>> {
        let content = self.0.read();
        let inside = content.objects.entries().filter(|(key, _)| key.namespace() == Some(namespace));
        inside.map(|(_, object)| object).filter(|object| predicate(object)).cloned().collect()
    }

    /// The objects by key, and their resource version.
    pub(crate) fn snapshot(&self) -> (String, Vec<(ObjectKey, Arc<T>)>) {
        let content = self.0.read();
        let objects = content.objects.entries().map(|(key, object)| (key, Arc::clone(object)));
        (content.resource_version.clone(), objects.collect())
    }

    /// All keys, in no particular order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.0.read().objects.entries().map(|(key, _)| key).collect()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.0.read().objects.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The resource version of the content. Empty before the first list, and always with a
    /// [`QueueKind`](crate::QueueKind) that splits lists.
    ///
    /// Unlike the informer's last sync resource version, it reflects what has reached the store.
    /// Same as client-go's `LastStoreSyncResourceVersion`: it follows lists, events and bookmarks,
    /// but not resyncs, tombstones, and objects whose version a transform removed.
    pub fn resource_version(&self) -> String {
        self.0.read().resource_version.clone()
    }

    /// The objects with this value in the index `name`.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        // Read keys and objects under one guard. Otherwise an object replaced in between would be
        // missing.
        let content = self.0.read();
        let keys = content.index(name)?.keys.get(value).into_iter().flatten();
        Ok(keys.filter_map(|key| content.objects.get(key.as_str()).cloned()).collect())
    }

    /// The objects that share any value of `object` in the index `name`, each once. Same as
    /// client-go's `Index`.
    pub fn index(&self, name: &str, key: &ObjectKey, object: &T) -> Result<Vec<Arc<T>>, IndexError> {
        let content = self.0.read();
        let index = content.index(name)?;
        let mut keys = HashSet::new();
        (index.values_of)(key, object, &mut |value| keys.extend(index.keys.get(value).into_iter().flatten()));
        Ok(keys
            .into_iter()
            .filter_map(|key: &ObjectKey| content.objects.get(key.as_str()).cloned())
            .collect())
    }

    /// The keys of objects with this value in the index `name`.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<ObjectKey>, IndexError> {
        let content = self.0.read();
        Ok(content.index(name)?.keys.get(value).into_iter().flatten().cloned().collect())
    }

    /// The values in the index `name`.
    pub fn index_values(&self, name: &str) -> Result<Vec<String>, IndexError> {
        Ok(self.0.read().index(name)?.keys.keys().cloned().collect())
    }

    /// The entries whose key passes, in the order of keys. The map's own order is arbitrary, and
    /// results should not depend on it.
    pub(crate) fn entries_where(
        &self,
        mut predicate: impl FnMut(&ObjectKey) -> bool,
    ) -> Vec<(ObjectKey, Arc<T>)> {
        let content = self.0.read();
        let passing = content.objects.entries().filter(|(key, _)| predicate(key));
        let mut entries: Vec<_> = passing.map(|(key, object)| (key, Arc::clone(object))).collect();
        entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        entries
    }

    /// Whether the index exists.
    pub fn has_index(&self, name: &str) -> bool {
        self.0.read().indices.contains_key(name)
    }

    /// Adds indices, and indexes the stored objects. Adds none if a name is taken.
    pub(crate) fn add_indexers(&self, indexers: Indexers<T>) -> Result<(), IndexError> {
        let mut content = self.0.write();
        if let Some(taken) = indexers.keys().find(|name| content.indices.contains_key(*name)) {
            return Err(IndexError::Conflict(taken.clone()));
        }
        for (name, values_of) in indexers {
            let mut index = Index::new(values_of);
            for (key, object) in content.objects.entries() {
                index.refile(&key, None, Some(object));
            }
            content.indices.insert(name, index);
        }
        Ok(())
    }

    /// Applies a batch under one lock, and returns the changes in order.
    ///
    /// The store decides whether an object is new. After a gap in the watch, ADDED can concern a
    /// known object and MODIFIED an unknown one.
    pub(crate) fn apply<K: Kind<Object = T>>(&self, kind: &K, deltas: Vec<Delta<T>>) -> Vec<StoreChange<T>> {
        let mut changes = Vec::with_capacity(deltas.len());
        let mut content = self.0.write();
        for delta in deltas {
            match delta {
                Delta::Added(key, object)
                | Delta::Updated(key, object)
                | Delta::Replaced(key, object)
                | Delta::Sync(key, object) => {
                    content.advance(kind.resource_version(&object));
                    changes.push(content.upsert(&key, object));
                }
                Delta::Deleted(key, deleted) => {
                    if let Deleted::Known(object) = &deleted {
                        content.advance(kind.resource_version(object));
                    }
                    changes.extend(content.delete(&key, deleted));
                }
                Delta::ReplacedAll(replacement) => content.replace(replacement, &mut changes),
                Delta::SyncAll => changes.extend(content.objects.iter().map(|object| {
                    // The same `Arc` twice: a resync delivers the object again without a change.
                    StoreChange::Updated(Arc::clone(object), Arc::clone(object))
                })),
                Delta::Bookmark(version) => content.advance(&version),
            }
        }
        changes
    }
}

impl<T> Content<T> {
    fn index(&self, name: &str) -> Result<&Index<T>, IndexError> {
        self.indices.get(name).ok_or_else(|| IndexError::Unknown(name.to_owned()))
    }

    fn advance(&mut self, version: &str) {
        if self.versioned && !version.is_empty() {
            version.clone_into(&mut self.resource_version);
        }
    }

    fn upsert(&mut self, key: &ObjectKey, object: Arc<T>) -> StoreChange<T> {
        let old = self.objects.insert(key.as_str(), Arc::clone(&object));
        for index in self.indices.values_mut() {
            index.refile(key, old.as_deref(), Some(&object));
        }
        match old {
            Some(old) => StoreChange::Updated(old, object),
            None => StoreChange::Added(object),
        }
    }

    /// The deletion of an unknown object is a change, too, unless only its key is known.
    fn delete(&mut self, key: &ObjectKey, deleted: Deleted<T>) -> Option<StoreChange<T>> {
        let stored = self.objects.remove(key.as_str());
        if let Some(stored) = &stored {
            for index in self.indices.values_mut() {
                index.refile(key, Some(stored), None);
            }
        }
        let deleted = match deleted {
            Deleted::FinalStateUnknown { key, last } => {
                Deleted::FinalStateUnknown { key, last: Some(last.or(stored)?) }
            }
            known @ Deleted::Known(_) => known,
        };
        Some(StoreChange::Deleted(deleted))
    }

    /// The stored objects that are missing from the list, in the order of keys. The map's own order
    /// is arbitrary, and handlers should not depend on it.
    fn missing_from(&self, list: &Replacement<T>) -> Vec<ObjectKey> {
        if self.objects.is_empty() {
            return Vec::new();
        }
        let listed: HashSet<&ObjectKey> = list.keys().collect();
        let mut missing: Vec<_> =
            self.objects.entries().map(|(key, _)| key).filter(|key| !listed.contains(key)).collect();
        missing.sort_unstable();
        missing
    }

    fn replace(&mut self, list: Replacement<T>, changes: &mut Vec<StoreChange<T>>) {
        let gone = self.missing_from(&list);
        changes.reserve(gone.len() + list.objects.len());
        for key in gone {
            let tombstone = Deleted::FinalStateUnknown { key: key.clone(), last: None };
            changes.extend(self.delete(&key, tombstone));
        }
        self.objects.reserve(list.objects.len());
        for (key, object) in list.objects {
            changes.push(self.upsert(&key, object));
        }
        if self.versioned {
            self.resource_version = list.resource_version;
        }
    }
}

impl<T> Index<T> {
    fn new(values_of: IndexFn<T>) -> Self {
        Self { values_of, keys: HashMap::new(), before: Values::default(), after: Values::default() }
    }

    fn refile(&mut self, key: &ObjectKey, old: Option<&T>, new: Option<&T>) {
        let Self { values_of, keys, before, after } = self;
        before.read(values_of, key, old);
        after.read(values_of, key, new);
        for value in before.iter().filter(|value| !after.contains(value)) {
            if let Some(filed) = keys.get_mut(value) {
                filed.remove(key);
                // Empty sets would leak memory as values come and go.
                if filed.is_empty() {
                    keys.remove(value);
                }
            }
        }
        for value in after.iter().filter(|value| !before.contains(value)) {
            match keys.get_mut(value) {
                Some(filed) => drop(filed.insert(key.clone())),
                None => drop(keys.insert(value.to_owned(), KeySet::from([key.clone()]))),
            }
        }
    }
}

/// The values of one object. Reused across objects, so that most updates allocate nothing.
#[derive(Default)]
struct Values {
    text: String,
    ends: Vec<usize>,
}

impl Values {
    fn read<T>(&mut self, values_of: &IndexFn<T>, key: &ObjectKey, object: Option<&T>) {
        let Self { text, ends } = self;
        text.clear();
        ends.clear();
        if let Some(object) = object {
            values_of(key, object, &mut |value| {
                text.push_str(value);
                ends.push(text.len());
            });
        }
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.text[*start..*end])
    }

    fn contains(&self, value: &str) -> bool {
        self.iter().any(|known| known == value)
    }
}

#[cfg(test)]
mod tests;

//! All objects under one sequence of resourceVersions, with the history of changes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::sync::watch;

use crate::object::StoredObject;

/// The group and plural of a resource, across its versions.
pub(crate) type ResourceKey = (Box<str>, Box<str>);

/// The type of a change; upstream's `watch.EventType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    /// The name in watch events.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// A change to an object.
#[derive(Clone, Debug)]
pub(crate) struct StoreChange {
    /// The resourceVersion of the change.
    pub(crate) version: u64,
    pub(crate) event: EventType,
    /// The object after the change; for a deletion its last state, as of `version`.
    pub(crate) object: Arc<StoredObject>,
    /// The object before the change.
    pub(crate) old: Option<Arc<StoredObject>>,
}

/// The objects of one resource. Clones notify the same watches.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    objects: BTreeMap<String, Arc<StoredObject>>,
    history: VecDeque<StoreChange>,
    /// The version of the last change that the history dropped.
    forgotten: u64,
    /// Versions before this one are rejected as expired, even if nothing changed since.
    compacted: u64,
    /// Whether the resource is no longer served. Its history can still be read.
    retired: bool,
    /// Notifies watches of changes.
    changed: watch::Sender<()>,
}

/// The history no longer reaches back to a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// The history begins after this version.
    pub(crate) up_to: u64,
}

/// The objects of all resources.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    version: u64,
    /// The maximum number of changes kept per resource.
    history_limit: usize,
    tables: FxHashMap<ResourceKey, Table>,
    /// The objects that name a UID as their owner.
    dependents: FxHashMap<Box<str>, BTreeSet<(ResourceKey, String)>>,
}

impl Table {
    fn new(forgotten: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            forgotten,
            compacted: forgotten,
            retired: false,
            changed: watch::Sender::default(),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Arc<StoredObject>> {
        self.objects.get(key)
    }

    /// The objects of a namespace, or all for `""`, starting at a key.
    pub(crate) fn range<'a>(
        &'a self,
        namespace: &str,
        from: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<StoredObject>> + use<'a> {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let start = match from {
            Some(from) if from > prefix.as_str() => from.to_owned(),
            _ => prefix.clone(),
        };
        self.objects
            .range((Bound::Included(start), Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .map(|(_, object)| object)
    }

    /// The objects as of a version: the current objects with later changes undone. `None` if
    /// nothing has changed since.
    pub(crate) fn at(&self, version: u64) -> Result<Option<Self>, Forgotten> {
        self.check(version)?;
        if self.history.back().is_none_or(|last| last.version <= version) {
            return Ok(None);
        }
        let mut objects = self.objects.clone();
        for change in self.history.iter().rev().take_while(|change| change.version > version) {
            let key = change.object.key();
            match &change.old {
                Some(old) => objects.insert(key, Arc::clone(old)),
                None => objects.remove(&key),
            };
        }
        Ok(Some(Self { objects, ..Self::new(version) }))
    }

    /// The changes after a version, in order.
    pub(crate) fn since(&self, version: u64) -> Result<impl Iterator<Item = &StoreChange>, Forgotten> {
        if version < self.forgotten {
            return Err(Forgotten { up_to: self.forgotten });
        }
        let first = self.history.partition_point(|change| change.version <= version);
        Ok(self.history.range(first..))
    }

    /// Whether the history reaches back to a version.
    pub(crate) fn check(&self, version: u64) -> Result<(), Forgotten> {
        if version < self.compacted { Err(Forgotten { up_to: self.compacted }) } else { Ok(()) }
    }

    /// Whether the resource is no longer served.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired
    }

    /// Subscribes to notifications of changes to this resource.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn record(&mut self, change: StoreChange, limit: usize) {
        self.history.push_back(change);
        while self.history.len() > limit {
            let forgotten = self.history.pop_front();
            self.forgotten = forgotten.map_or(self.forgotten, |change| change.version);
            self.compacted = self.compacted.max(self.forgotten);
        }
        self.changed.send_replace(());
    }
}

impl Store {
    pub(crate) fn new(history_limit: usize) -> Self {
        Self { version: 1, history_limit, tables: FxHashMap::default(), dependents: FxHashMap::default() }
    }

    /// The latest version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The version of the next change.
    pub(crate) fn next_version(&self) -> u64 {
        self.version + 1
    }

    /// Adds a resource.
    pub(crate) fn add_table(&mut self, resource: ResourceKey) {
        let version = self.version;
        self.tables.entry(resource).or_insert_with(|| Table::new(version)).retired = false;
    }

    /// Retires a resource whose objects are removed. Its watches end after they have sent the
    /// deletions.
    pub(crate) fn retire_table(&mut self, resource: &ResourceKey) {
        if let Some(table) = self.tables.get_mut(resource) {
            table.retired = true;
            table.changed.send_replace(());
        }
    }

    pub(crate) fn table(&self, resource: &ResourceKey) -> Option<&Table> {
        self.tables.get(resource)
    }

    /// Every resource, in a fixed order.
    pub(crate) fn resources(&self) -> Vec<ResourceKey> {
        let mut resources: Vec<ResourceKey> = self.tables.keys().cloned().collect();
        resources.sort();
        resources
    }

    /// Stores a new or changed object, which must have [`next_version`](Self::next_version).
    pub(crate) fn put(&mut self, resource: &ResourceKey, object: Arc<StoredObject>) {
        debug_assert_eq!(object.version(), self.version + 1);
        self.version = object.version();
        let key = object.key();
        let Some(table) = self.tables.get_mut(resource) else { return };
        let old = table.objects.insert(key.clone(), Arc::clone(&object));
        let event = if old.is_some() { EventType::Modified } else { EventType::Added };
        if old.as_ref().is_none_or(|old| old.owners != object.owners) {
            for owner in old.iter().flat_map(|old| &old.owners) {
                forget_dependent(&mut self.dependents, owner, resource, &key);
            }
            for owner in &object.owners {
                self.dependents.entry(owner.clone()).or_default().insert((resource.clone(), key.clone()));
            }
        }
        table.record(StoreChange { version: self.version, event, object, old }, self.history_limit);
    }

    /// Removes an object. `last` is its final state, with [`next_version`](Self::next_version).
    pub(crate) fn remove(&mut self, resource: &ResourceKey, last: Arc<StoredObject>) {
        debug_assert_eq!(last.version(), self.version + 1);
        self.version = last.version();
        let key = last.key();
        let Some(table) = self.tables.get_mut(resource) else { return };
        let old = table.objects.remove(&key);
        for owner in old.iter().flat_map(|old| &old.owners) {
            forget_dependent(&mut self.dependents, owner, resource, &key);
        }
        let change = StoreChange { version: self.version, event: EventType::Deleted, object: last, old };
        table.record(change, self.history_limit);
    }

    /// The objects that name a UID as their owner.
    pub(crate) fn dependents(&self, owner: &str) -> impl Iterator<Item = &(ResourceKey, String)> {
        self.dependents.get(owner).into_iter().flatten()
    }

    /// Returns to an earlier state, whose history is lost. Versions go on.
    pub(crate) fn restore(&mut self, earlier: Self) {
        let version = self.version + 1;
        *self = Self { version, ..earlier };
        self.compact();
    }

    /// Drops the history. Watches and lists that need it are rejected.
    pub(crate) fn compact(&mut self) {
        for table in self.tables.values_mut() {
            table.forgotten = table.history.back().map_or(table.forgotten, |last| last.version);
            table.history.clear();
            table.compacted = self.version;
        }
    }

    /// Wakes every watch, so that it checks for restarts and cuts.
    pub(crate) fn wake(&self) {
        for table in self.tables.values() {
            table.changed.send_replace(());
        }
    }
}

fn forget_dependent(
    dependents: &mut FxHashMap<Box<str>, BTreeSet<(ResourceKey, String)>>,
    owner: &str,
    resource: &ResourceKey,
    key: &str,
) {
    if let Some(of_owner) = dependents.get_mut(owner) {
        of_owner.remove(&(resource.clone(), key.to_owned()));
        if of_owner.is_empty() {
            dependents.remove(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::{Kind, built_in};

    fn kind() -> &'static Kind {
        built_in().iter().find(|kind| kind.resource == "configmaps").unwrap()
    }

    fn pods() -> ResourceKey {
        ("".into(), "pods".into())
    }

    fn put(store: &mut Store, name: &str, owner: Option<&str>) {
        let mut value = json!({"metadata": {"name": name, "namespace": "n"}});
        if let Some(owner) = owner {
            value["metadata"]["ownerReferences"] = json!([{"uid": owner}]);
        }
        let object = StoredObject::new(kind(), value, store.next_version());
        store.put(&pods(), Arc::new(object));
    }

    fn remove(store: &mut Store, name: &str) {
        let value = json!({"metadata": {"name": name, "namespace": "n"}});
        let object = StoredObject::new(kind(), value, store.next_version());
        store.remove(&pods(), Arc::new(object));
    }

    fn store(history_limit: usize) -> Store {
        let mut store = Store::new(history_limit);
        store.add_table(pods());
        store
    }

    fn names(table: &Table) -> Vec<(&str, u64)> {
        table.range("", None).map(|object| (&*object.name, object.version())).collect()
    }

    #[test]
    fn past_versions_list_as_they_were() {
        let mut store = store(100);
        put(&mut store, "a", None);
        put(&mut store, "b", None);
        put(&mut store, "a", None);
        remove(&mut store, "b");
        put(&mut store, "b", None);
        let table = store.table(&pods()).unwrap();
        let at = |version| table.at(version).unwrap().unwrap();
        assert!(at(1).range("", None).next().is_none());
        assert_eq!(names(&at(2)), [("a", 2)]);
        assert_eq!(names(&at(3)), [("a", 2), ("b", 3)]);
        assert_eq!(names(&at(4)), [("a", 4), ("b", 3)]);
        assert_eq!(names(&at(5)), [("a", 4)]);
        assert!(table.at(6).unwrap().is_none());
        assert_eq!(names(table), [("a", 4), ("b", 6)]);
        let types: Vec<EventType> = table.since(3).unwrap().map(|change| change.event).collect();
        assert_eq!(types, [EventType::Modified, EventType::Deleted, EventType::Added]);
    }

    #[test]
    fn dropped_history_is_rejected() {
        let mut store = store(2);
        for name in ["a", "b", "c", "d"] {
            put(&mut store, name, None);
        }
        let table = store.table(&pods()).unwrap();
        assert_eq!(table.check(2), Err(Forgotten { up_to: 3 }));
        assert_eq!(table.since(3).unwrap().count(), 2);
        store.compact();
        let table = store.table(&pods()).unwrap();
        assert_eq!(table.check(4), Err(Forgotten { up_to: 5 }));
        assert_eq!(table.since(5).unwrap().count(), 0);
    }

    #[test]
    fn compaction_does_not_affect_up_to_date_readers() {
        let mut store = store(10);
        put(&mut store, "a", None);
        store.add_table(("".into(), "nodes".into()));
        store.version = 9;
        store.compact();
        let table = store.table(&pods()).unwrap();
        assert_eq!(table.since(2).map(Iterator::count), Ok(0));
        assert_eq!(table.check(2), Err(Forgotten { up_to: 9 }));
    }

    #[test]
    fn dependents_index_follows_the_objects() {
        let mut store = store(10);
        put(&mut store, "a", Some("u"));
        put(&mut store, "b", Some("u"));
        assert_eq!(store.dependents("u").count(), 2);
        put(&mut store, "a", None);
        remove(&mut store, "b");
        assert_eq!(store.dependents("u").count(), 0);
    }

    #[test]
    fn namespace_is_a_key_range() {
        let mut store = store(10);
        for name in ["a", "b"] {
            put(&mut store, name, None);
        }
        let table = store.table(&pods()).unwrap();
        assert_eq!(table.range("n", None).count(), 2);
        assert_eq!(table.range("", Some("n/a\0")).count(), 1);
        assert_eq!(table.range("n", Some("n/b")).count(), 1);
        assert_eq!(table.range("m", None).count(), 0);
    }
}

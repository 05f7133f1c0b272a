//! Objects of kinds other than pods and nodes.

mod class_index;
mod devices;
mod kinds;

use std::collections::BTreeSet;
use std::ops::{Bound, Deref};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use self::class_index::ClassIndex;
pub use self::devices::*;
pub use self::kinds::*;
use crate::hash_seed::{HashSeed, SeededMap};
use crate::labels::Labels;
use crate::pod::OwnerRef;
use crate::text::Text;

/// An object of a kind other than pods and nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// The kind: one of [`resources`], or as in
    /// [`EventResource::Other`](crate::EventResource::Other).
    pub resource: Text,
    /// `namespace/name`, or `name` for cluster-scoped kinds.
    pub key: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// `metadata.labels`.
    pub labels: Labels,
    /// The `metadata.annotations` that a plugin reads, for kinds with their own type.
    pub annotations: Labels,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// The controlling owner.
    pub controller: Option<Arc<OwnerRef>>,
    /// The node it belongs to, for kinds that belong to one.
    pub node_name: Option<Arc<str>>,
    /// The body.
    pub body: Body,
}

impl Object {
    /// `metadata.name`.
    pub fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or(&self.key)
    }

    /// `metadata.namespace`; empty for cluster-scoped kinds.
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }
}

/// An object with its typed body; dereferences to the body.
#[derive(Debug)]
pub struct Typed<'a, T> {
    /// The object.
    pub object: &'a Arc<Object>,
    /// The body.
    pub body: &'a T,
}

impl<T> Clone for Typed<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Typed<'_, T> {}

impl<T> Deref for Typed<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.body
    }
}

impl<'a, T: ObjectBody> Typed<'a, T> {
    /// The object as one of this kind; `None` if it is of another kind.
    pub fn of(object: &'a Arc<Object>) -> Option<Self> {
        Some(Self { object, body: T::of(&object.body)? })
    }
}

/// An object: the API's state and the assumed state.
#[derive(Clone, Debug)]
struct Entry {
    from_api: Arc<Object>,
    /// A change by a binding in flight that the API does not show yet. Always based on the version
    /// in `from_api`.
    assumed: Option<Arc<Object>>,
}

impl Entry {
    fn latest(&self) -> &Arc<Object> {
        self.assumed.as_ref().unwrap_or(&self.from_api)
    }
}

/// The objects of a kind.
#[derive(Clone, Debug)]
struct Kind {
    entries: SeededMap<Arc<str>, Entry>,
    /// Their keys, in order.
    keys: BTreeSet<Arc<str>>,
}

impl Kind {
    /// The entries with these keys.
    fn of<'a>(&'a self, keys: impl Iterator<Item = &'a Arc<str>>) -> impl Iterator<Item = &'a Arc<Object>> {
        keys.filter_map(|key| self.entries.get(key)).map(Entry::latest)
    }
}

/// Objects by kind and key, with assumed changes.
///
/// Same as upstream's assume cache of the VolumeBinding plugin: an assumed change is based on one
/// version of an object, and is valid as long as the API shows that version.
#[derive(Clone, Debug)]
pub struct Objects {
    seed: HashSeed,
    kinds: FxHashMap<Text, Kind>,
    volumes: ClassIndex,
    /// Keys of objects that belong to a node, by kind and node.
    on_nodes: FxHashMap<Text, FxHashMap<Arc<str>, BTreeSet<Arc<str>>>>,
}

#[cfg(any(test, feature = "testing"))]
impl Default for Objects {
    fn default() -> Self {
        Self::new(HashSeed::new(0))
    }
}

impl Objects {
    /// No objects. Strangers choose their keys: see [`HashSeed`].
    pub fn new(seed: HashSeed) -> Self {
        Self {
            seed,
            kinds: FxHashMap::default(),
            volumes: ClassIndex::default(),
            on_nodes: FxHashMap::default(),
        }
    }

    /// Stores an object from an informer and returns the previous one. Drops an assumed change
    /// unless it is based on this version, as after a resync.
    pub fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let old = self.put(Arc::clone(&object));
        self.volumes.change(old.as_deref(), Some(&object));
        if old.as_ref().and_then(|old| old.node_name.as_ref()) != object.node_name.as_ref() {
            self.leave_node(old.as_ref());
            self.join_node(&object);
        }
        old
    }

    fn put(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let empty = || Kind { entries: self.seed.map(), keys: BTreeSet::new() };
        let kind = self.kinds.entry(object.resource.clone()).or_insert_with(empty);
        let Some(entry) = kind.entries.get_mut(&object.key) else {
            kind.keys.insert(Arc::clone(&object.key));
            kind.entries.insert(Arc::clone(&object.key), Entry { from_api: object, assumed: None });
            return None;
        };
        if entry.from_api.resource_version != object.resource_version {
            entry.assumed = None;
        }
        Some(std::mem::replace(&mut entry.from_api, object))
    }

    /// Removes an object and its assumed change.
    pub fn remove(&mut self, resource: &str, key: &str) -> Option<Arc<Object>> {
        let kind = self.kinds.get_mut(resource)?;
        kind.keys.remove(key);
        let gone = kind.entries.remove(key)?.from_api;
        self.volumes.change(Some(&gone), None);
        self.leave_node(Some(&gone));
        Some(gone)
    }

    fn join_node(&mut self, object: &Object) {
        if let Some(node) = &object.node_name {
            let nodes = self.on_nodes.entry(object.resource.clone()).or_default();
            nodes.entry(Arc::clone(node)).or_default().insert(Arc::clone(&object.key));
        }
    }

    fn leave_node(&mut self, object: Option<&Arc<Object>>) {
        let Some((object, node)) = object.and_then(|object| Some((object, object.node_name.as_ref()?)))
        else {
            return;
        };
        if let Some(nodes) = self.on_nodes.get_mut(&object.resource)
            && let Some(keys) = nodes.get_mut(node)
        {
            keys.remove(&object.key);
            if keys.is_empty() {
                nodes.remove(node);
            }
        }
    }

    /// Assumes this state of an object until the API shows another version. Returns `false` if the
    /// object does not exist or its version differs from that of `object`.
    pub fn assume(&mut self, object: Arc<Object>) -> bool {
        let Some(entry) = self.entry_of(&object) else {
            return false;
        };
        entry.assumed = Some(object);
        true
    }

    /// Drops the assumed change of an object. Does nothing if the version differs from that of
    /// `assumed`: a current change is another binding's.
    pub fn restore(&mut self, assumed: &Object) {
        if let Some(entry) = self.entry_of(assumed) {
            entry.assumed = None;
        }
    }

    /// The entry of an object, if the API shows this version.
    fn entry_of(&mut self, object: &Object) -> Option<&mut Entry> {
        let entry = self.kinds.get_mut(&object.resource)?.entries.get_mut(&object.key)?;
        Some(entry).filter(|entry| entry.from_api.resource_version == object.resource_version)
    }

    /// The PersistentVolumes of a storage class, ordered by name; the empty class has volumes
    /// without a class.
    pub fn volumes_of_class(&self, class: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.volumes.names(class).filter_map(|name| self.get(&resources::PERSISTENT_VOLUME, name))
    }

    /// One object, assumed changes included.
    pub fn get(&self, resource: &str, key: &str) -> Option<&Arc<Object>> {
        self.kinds.get(resource)?.entries.get(key).map(Entry::latest)
    }

    /// One object, without assumed changes.
    pub fn from_api(&self, resource: &str, key: &str) -> Option<&Arc<Object>> {
        self.kinds.get(resource)?.entries.get(key).map(|entry| &entry.from_api)
    }

    /// Every object of a kind, ordered by key.
    pub fn list(&self, resource: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.kinds.get(resource).into_iter().flat_map(|kind| kind.of(kind.keys.iter()))
    }

    /// Every object of a kind that belongs to a node, ordered by key.
    pub fn list_on(&self, resource: &str, node: &str) -> impl Iterator<Item = &Arc<Object>> {
        let keys = self.on_nodes.get(resource).and_then(|nodes| nodes.get(node));
        let kind = self.kinds.get(resource).into_iter();
        kind.flat_map(move |kind| kind.of(keys.into_iter().flatten()))
    }

    /// Every object of a kind in a namespace, ordered by key.
    pub fn list_in(&self, resource: &str, namespace: &str) -> impl Iterator<Item = &Arc<Object>> {
        let prefix = format!("{namespace}/");
        let from = Bound::Included(Arc::<str>::from(&*prefix));
        self.kinds.get(resource).into_iter().flat_map(move |kind| {
            let prefix = prefix.clone();
            let keys = kind.keys.range((from.clone(), Bound::Unbounded));
            kind.of(keys.take_while(move |key| key.starts_with(&prefix)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    fn volume(name: &str, version: &str) -> Arc<Object> {
        let body = Body::PersistentVolume(PersistentVolume::default());
        Arc::new(Object {
            resource_version: version.into(),
            ..object(&resources::PERSISTENT_VOLUME, name, body)
        })
    }

    fn changed(name: &str, version: &str) -> Arc<Object> {
        Arc::new(Object { terminating: true, ..(*volume(name, version)).clone() })
    }

    fn is_assumed(objects: &Objects, name: &str) -> bool {
        let latest = objects.get("PersistentVolume", name).unwrap();
        assert!(!objects.from_api("PersistentVolume", name).unwrap().terminating);
        assert_eq!(objects.list("PersistentVolume").find(|object| &*object.key == name), Some(latest));
        latest.terminating
    }

    #[test]
    fn assumed_changes_last_until_the_api_version_changes() {
        for (next, holds) in [("5", true), ("6", false), ("4", false)] {
            let mut objects = Objects::default();
            objects.insert(volume("a", "5"));
            assert!(objects.assume(changed("a", "5")));
            assert!(is_assumed(&objects, "a"));
            objects.insert(volume("a", next));
            assert_eq!(is_assumed(&objects, "a"), holds, "{next}");
        }
    }

    #[test]
    fn only_the_current_version_can_be_assumed() {
        let mut objects = Objects::default();
        objects.insert(volume("a", "5"));
        for (name, version) in [("a", "4"), ("a", "6"), ("b", "5")] {
            assert!(!objects.assume(changed(name, version)), "{name} {version}");
        }
        assert!(!is_assumed(&objects, "a"));
        assert!(objects.assume(changed("a", "5")));
        objects.remove("PersistentVolume", "a");
        objects.insert(volume("a", "5"));
        assert!(!is_assumed(&objects, "a"), "another object of the same name");
    }

    #[test]
    fn assumed_changes_are_restored_only_by_their_owner() {
        let mut objects = Objects::default();
        objects.insert(volume("a", "5"));
        objects.assume(changed("a", "5"));
        objects.restore(&changed("a", "5"));
        assert!(!is_assumed(&objects, "a"));
        objects.insert(volume("a", "6"));
        objects.assume(changed("a", "6"));
        objects.restore(&changed("a", "5"));
        assert!(is_assumed(&objects, "a"), "a later change by another binding stays");
        objects.restore(&changed("b", "5"));
    }

    #[test]
    fn volumes_of_a_class_include_assumed_changes() {
        let of_class = |name: &str, class: &str| {
            let body = PersistentVolume { storage_class: class.into(), ..Default::default() };
            Arc::new(object(&resources::PERSISTENT_VOLUME, name, Body::PersistentVolume(body)))
        };
        let names = |objects: &Objects, class: &str| {
            objects.volumes_of_class(class).map(|volume| volume.key.to_string()).collect::<Vec<_>>()
        };
        let mut objects = Objects::default();
        for (name, class) in [("c", "fast"), ("a", "fast"), ("b", ""), ("d", "slow")] {
            objects.insert(of_class(name, class));
        }
        assert_eq!(names(&objects, "fast"), ["a", "c"]);
        assert_eq!(names(&objects, ""), ["b"]);
        objects.insert(of_class("a", "slow"));
        objects.remove("PersistentVolume", "c");
        assert_eq!((names(&objects, "fast"), names(&objects, "slow").len()), (vec![], 2));
        objects.assume(Arc::new(Object { terminating: true, ..(*of_class("a", "slow")).clone() }));
        assert!(objects.volumes_of_class("slow").any(|volume| volume.terminating));
    }

    #[test]
    fn objects_of_a_node_follow_node_changes() {
        let attachment = |name: &str, node: Option<&str>| {
            let body = Body::VolumeAttachment(VolumeAttachment::default());
            let object = object(&resources::VOLUME_ATTACHMENT, name, body);
            Arc::new(Object { node_name: node.map(Into::into), ..object })
        };
        let mut objects = Objects::default();
        for (name, node) in [("b", Some("n1")), ("a", Some("n1")), ("c", Some("n2")), ("d", None)] {
            objects.insert(attachment(name, node));
        }
        let on = |objects: &Objects, node: &str| {
            let names = objects.list_on("storage.k8s.io/VolumeAttachment", node);
            names.map(|object| object.name().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(on(&objects, "n1"), ["a", "b"]);
        objects.insert(attachment("a", Some("n2")));
        objects.insert(attachment("d", Some("n1")));
        assert_eq!(
            (on(&objects, "n1"), on(&objects, "n2")),
            (vec!["b".into(), "d".into()], vec!["a".into(), "c".into()])
        );
        objects.remove("storage.k8s.io/VolumeAttachment", "b");
        objects.insert(attachment("d", None));
        assert_eq!(on(&objects, "n1"), [""; 0]);
    }

    #[test]
    fn list_in_returns_one_namespace() {
        let mut objects = Objects::default();
        for key in ["a/x", "a-b/x", "a/y", "b/x"] {
            objects.insert(Arc::new(object(&resources::SERVICE, key, Body::Service(Service::default()))));
        }
        let names: Vec<_> = objects.list_in("Service", "a").map(|object| &*object.key).collect();
        assert_eq!(names, ["a/x", "a/y"]);
        assert_eq!(objects.list("Service").count(), 4);
    }
}

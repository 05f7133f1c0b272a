//! Objects of kinds other than pods and nodes.

mod change_log;
mod devices;
mod forest;
mod groups;
mod key_index;
mod kinds;
mod members;
mod pending;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::{Bound, Deref};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use self::change_log::ChangedKeys;
pub use self::change_log::Revision;
pub use self::devices::*;
pub use self::forest::*;
pub use self::groups::*;
use self::key_index::KeyIndex;
pub use self::kinds::*;
pub use self::members::*;
use self::pending::PendingAllocations;
use crate::hash_seed::{HashSeed, SeededMap};
use crate::labels::Labels;
use crate::pod::{OwnerRef, PodInfo};
use crate::resource::names::DEVICE_CLASS_PREFIX;
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

    /// Whether this version is newer than that of another state of the object.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        is_newer(&self.resource_version, &other.resource_version)
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

impl Typed<'_, PodDisruptionBudget> {
    /// Whether the budget protects the pod. As upstream, pods without labels match no budget, not
    /// even one whose selector matches absent labels.
    pub fn selects(&self, pod: &PodInfo) -> bool {
        pod.labels.iter().next().is_some()
            && self.object.namespace() == &*pod.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
    }
}

/// An object: the API's state and the assumed state.
#[derive(Clone, Debug)]
struct Entry {
    from_api: Arc<Object>,
    /// A change by a binding in flight that the informer does not show yet: one that is not
    /// written, based on the version in `from_api`, or the answer to a write, with a newer version.
    assumed: Option<Arc<Object>>,
}

impl Entry {
    fn latest(&self) -> &Arc<Object> {
        self.assumed.as_ref().unwrap_or(&self.from_api)
    }
}

/// Whether the first version is newer. Versions are numbers; if one is not, any other one counts as
/// newer.
fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}

/// The objects of a kind.
#[derive(Clone, Debug)]
struct ResourceKind {
    entries: SeededMap<Arc<str>, Entry>,
    /// Their keys, in order.
    keys: BTreeSet<Arc<str>>,
    changes: ChangedKeys,
}

impl ResourceKind {
    /// The entries with these keys.
    fn of<'a>(&'a self, keys: impl Iterator<Item = &'a Arc<str>>) -> impl Iterator<Item = &'a Arc<Object>> {
        keys.filter_map(|key| self.entries.get(key)).map(Entry::latest)
    }
}

/// Objects by kind and key, with assumed changes.
///
/// Same as upstream's assume caches: an assumed change is valid until the informer shows a newer
/// version. Unlike there, it ends, too, when the informer goes back to an older version.
#[derive(Clone, Debug)]
pub struct Objects {
    seed: HashSeed,
    kinds: FxHashMap<Text, ResourceKind>,
    volumes: KeyIndex,
    claims: KeyIndex,
    classes: KeyIndex,
    pending: PendingAllocations,
    /// Keys of objects that belong to a node, by kind and node.
    on_nodes: FxHashMap<Text, SeededMap<Arc<str>, BTreeSet<Arc<str>>>>,
    forest: GroupForest,
    members: MembersByGroup,
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
            volumes: KeyIndex::new(storage_class),
            claims: KeyIndex::new(owner_of_claim),
            classes: KeyIndex::new(extended_resource),
            pending: PendingAllocations::default(),
            on_nodes: FxHashMap::default(),
            forest: GroupForest::default(),
            members: MembersByGroup::default(),
        }
    }

    /// Sets whether groups can be parts of composite groups (`CompositePodGroup`). To be called
    /// before the first group is stored.
    pub fn set_composite_groups(&mut self, enabled: bool) {
        self.forest.set_parents(enabled);
    }

    /// The pods of groups.
    pub fn members(&self) -> &MembersByGroup {
        &self.members
    }

    /// Sets how far a pod of a group is; `None` removes it. A pod without a group is ignored.
    pub fn set_member(&mut self, pod: &PodInfo, stage: Option<MemberStage>) {
        let Some(group) = pod.group_key() else { return };
        self.members.set(Arc::clone(&group), pod, stage);
        let counts = self.members.get(&group).map(|members| (members.all(), members.scheduled()));
        let (known, scheduled) = counts.unwrap_or_default();
        self.forest.set_pods(group, known, scheduled);
    }

    /// The groups, as trees.
    pub fn forest(&self) -> &GroupForest {
        &self.forest
    }

    /// Stores an object from an informer and returns the previous one. Drops an assumed change
    /// if this version is newer, or, unlike upstream, older than the previous one.
    pub fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let old = self.put(Arc::clone(&object));
        self.index(old.as_deref(), Some(&object));
        self.forest.change(old.as_deref(), Some(&object));
        self.pending.settle(&object);
        if old.as_ref().and_then(|old| old.node_name.as_ref()) != object.node_name.as_ref() {
            self.leave_node(old.as_ref());
            self.join_node(&object);
        }
        old
    }

    fn put(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let empty = || ResourceKind {
            entries: self.seed.map(),
            keys: BTreeSet::new(),
            changes: ChangedKeys::default(),
        };
        let kind = self.kinds.entry(object.resource.clone()).or_insert_with(empty);
        kind.changes.add(&object.key);
        let Some(entry) = kind.entries.get_mut(&object.key) else {
            kind.keys.insert(Arc::clone(&object.key));
            kind.entries.insert(Arc::clone(&object.key), Entry { from_api: object, assumed: None });
            return None;
        };
        let version = &object.resource_version;
        // An older version than before: etcd was restored, and what was written later is lost.
        let goes_back = is_newer(&entry.from_api.resource_version, version);
        entry.assumed.take_if(|assumed| goes_back || is_newer(version, &assumed.resource_version));
        Some(std::mem::replace(&mut entry.from_api, object))
    }

    fn index(&mut self, old: Option<&Object>, new: Option<&Object>) {
        for index in [&mut self.volumes, &mut self.claims, &mut self.classes] {
            index.change(old, new);
        }
    }

    /// Removes an object and its assumed change.
    pub fn remove(&mut self, resource: &str, key: &str) -> Option<Arc<Object>> {
        let kind = self.kinds.get_mut(resource)?;
        kind.keys.remove(key);
        let gone = kind.entries.remove(key)?.from_api;
        kind.changes.add(&gone.key);
        self.index(Some(&gone), None);
        self.forest.change(Some(&gone), None);
        self.leave_node(Some(&gone));
        Some(gone)
    }

    fn join_node(&mut self, object: &Object) {
        if let Some(node) = &object.node_name {
            let nodes = self.on_nodes.entry(object.resource.clone()).or_insert_with(|| self.seed.map());
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

    /// Assumes this state of an object until the informer shows a newer version. It is a change of
    /// the latest state, with its version, or the answer to a write, with a newer one. Returns
    /// `false` if the object does not exist or the latest version is newer.
    pub fn assume(&mut self, object: Arc<Object>) -> bool {
        self.pending.settle(&object);
        let Some((entry, changes)) = self.entry_of(&object) else {
            return false;
        };
        let (version, latest) = (&object.resource_version, &entry.latest().resource_version);
        if version != latest && !is_newer(version, latest) {
            return false;
        }
        changes.add(&object.key);
        entry.assumed = Some(object);
        true
    }

    /// Drops the assumed change of an object. Does nothing if its version differs from that of
    /// `assumed`: a current change is another binding's.
    pub fn restore(&mut self, assumed: &Object) {
        if let Some((entry, changes)) = self.entry_of(assumed)
            && entry.assumed.take_if(|current| current.resource_version == assumed.resource_version).is_some()
        {
            changes.add(&assumed.key);
        }
    }

    /// The answer to a write of an object, until the informer shows that version or a newer one.
    pub fn written(&self, resource: &str, key: &str) -> Option<&Arc<Object>> {
        let entry = self.kinds.get(resource)?.entries.get(key)?;
        let is_newer = |one: &&Arc<Object>| is_newer(&one.resource_version, &entry.from_api.resource_version);
        entry.assumed.as_ref().filter(is_newer)
    }

    fn entry_of(&mut self, object: &Object) -> Option<(&mut Entry, &mut ChangedKeys)> {
        let kind = self.kinds.get_mut(&object.resource)?;
        Some((kind.entries.get_mut(&object.key)?, &mut kind.changes))
    }

    /// The position in the changes of a kind; `None` before its first object.
    pub fn revision(&self, resource: &str) -> Option<Revision> {
        Some(self.kinds.get(resource)?.changes.revision())
    }

    /// The keys of the objects of a kind that were added, changed, assumed, restored or removed
    /// since a revision, the latest last, some several times. Without a revision, those of all
    /// objects. `None` if too much has changed since, or the revision is of other `Objects`.
    pub fn changes_since(&self, resource: &str, revision: Option<&Revision>) -> Option<Vec<&Arc<str>>> {
        match (self.kinds.get(resource), revision) {
            (None, None) => Some(Vec::new()),
            (None, Some(_)) => None,
            (Some(kind), None) => Some(kind.keys.iter().collect()),
            (Some(kind), Some(revision)) => Some(kind.changes.since(revision)?.collect()),
        }
    }

    /// The seed of maps whose keys strangers choose.
    pub fn hash_seed(&self) -> &HashSeed {
        &self.seed
    }

    /// The PersistentVolumes of a storage class, ordered by name; the empty class has volumes
    /// without a class.
    pub fn volumes_of_class(&self, class: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.volumes.of(class).filter_map(|name| self.get(&resources::PERSISTENT_VOLUME, name))
    }

    /// The ResourceClaims that an owner controls, by its UID, ordered by key.
    pub fn claims_of_owner(&self, uid: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.claims.of(uid).filter_map(|key| self.get(&resources::RESOURCE_CLAIM, key))
    }

    /// The DeviceClass whose devices provide an extended resource. Of several that name it, the
    /// newest counts, then the first by name.
    pub fn class_of_resource(&self, name: &str) -> Option<Typed<'_, DeviceClass>> {
        let class = |key: &str| self.get(&resources::DEVICE_CLASS, key).and_then(Typed::<DeviceClass>::of);
        if let Some(class_name) = name.strip_prefix(DEVICE_CLASS_PREFIX) {
            return class(class_name);
        }
        let named = self.classes.of(name).filter_map(|key| class(key));
        named.min_by_key(|class| Reverse(class.created))
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

fn storage_class(object: &Object) -> Option<&Arc<str>> {
    Some(&PersistentVolume::of(&object.body)?.storage_class)
}

fn extended_resource(object: &Object) -> Option<&Arc<str>> {
    DeviceClass::of(&object.body)?.extended_resource_name.as_ref()
}

fn owner_of_claim(object: &Object) -> Option<&Arc<str>> {
    ResourceClaim::of(&object.body)?;
    Some(&object.controller.as_ref()?.uid)
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
    fn assumed_changes_last_until_a_newer_version() {
        for (next, holds) in [("5", true), ("6", false), ("4", false), ("10", false), ("x", false)] {
            let mut objects = Objects::default();
            objects.insert(volume("a", "5"));
            assert!(objects.assume(changed("a", "5")));
            assert!(is_assumed(&objects, "a"));
            objects.insert(volume("a", next));
            assert_eq!(is_assumed(&objects, "a"), holds, "{next}");
        }
    }

    #[test]
    fn only_the_latest_state_or_a_newer_one_can_be_assumed() {
        let mut objects = Objects::default();
        objects.insert(volume("a", "5"));
        for (name, version) in [("a", "4"), ("b", "5")] {
            assert!(!objects.assume(changed(name, version)), "{name} {version}");
        }
        assert!(!is_assumed(&objects, "a"));
        assert!(objects.assume(changed("a", "5")));
        objects.remove("PersistentVolume", "a");
        objects.insert(volume("a", "5"));
        assert!(!is_assumed(&objects, "a"), "another object of the same name");
    }

    #[test]
    fn answers_to_writes_last_until_the_informer_catches_up() {
        let mut objects = Objects::default();
        objects.insert(volume("a", "9"));
        assert!(objects.written("PersistentVolume", "a").is_none());
        assert!(objects.assume(changed("a", "12")));
        assert!(!objects.assume(changed("a", "11")), "an answer that came late");
        assert!(!objects.assume(changed("a", "9")), "a change of an earlier state");
        for (next, still) in [("10", true), ("12", false)] {
            objects.insert(volume("a", next));
            let written = objects.written("PersistentVolume", "a");
            assert_eq!(written.is_some(), still, "{next}");
            assert!(is_assumed(&objects, "a"));
        }
        objects.insert(volume("a", "13"));
        assert!(!is_assumed(&objects, "a"));
    }

    #[test]
    fn answers_to_writes_end_when_etcd_is_restored() {
        let mut objects = Objects::default();
        objects.insert(volume("a", "9"));
        assert!(objects.assume(changed("a", "12")));
        objects.insert(volume("a", "12"));
        objects.insert(volume("a", "9"));
        assert!(!is_assumed(&objects, "a"));
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
    fn claims_are_found_by_their_controller() {
        let claim = |key: &str, owner: Option<&str>| {
            let object =
                object(&resources::RESOURCE_CLAIM, key, Body::ResourceClaim(ResourceClaim::default()));
            let controller = owner.map(|uid| Arc::new(OwnerRef { uid: uid.into(), ..OwnerRef::default() }));
            Arc::new(Object { controller, ..object })
        };
        let mut objects = Objects::default();
        for (key, owner) in [("b/x", Some("u")), ("a/x", Some("u")), ("a/y", None), ("a/z", Some("v"))] {
            objects.insert(claim(key, owner));
        }
        let of = |objects: &Objects, uid: &str| {
            objects.claims_of_owner(uid).map(|claim| claim.key.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(&objects, "u"), ["a/x", "b/x"]);
        objects.insert(claim("a/x", Some("v")));
        objects.remove(&resources::RESOURCE_CLAIM, "b/x");
        assert_eq!((of(&objects, "u"), of(&objects, "v")), (vec![], vec!["a/x".into(), "a/z".into()]));
    }

    #[test]
    fn changes_of_a_kind_are_those_of_its_latest_states() {
        let kind = resources::PERSISTENT_VOLUME;
        let mut objects = Objects::default();
        let since = |objects: &Objects, revision: &Option<Revision>| {
            let keys = objects.changes_since(&kind, revision.as_ref())?;
            Some(keys.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(since(&objects, &None), Some(String::new()), "no object yet");
        objects.insert(volume("a", "5"));
        objects.insert(volume("b", "5"));
        assert_eq!(since(&objects, &None), Some("a b".to_owned()), "all");
        let revision = objects.revision(&kind);
        objects.restore(&changed("a", "5"));
        assert_eq!(since(&objects, &revision), Some(String::new()), "nothing was assumed");
        objects.assume(changed("b", "5"));
        objects.assume(changed("c", "5"));
        objects.restore(&changed("b", "5"));
        objects.remove(&kind, "a");
        assert_eq!(since(&objects, &revision), Some("b b a".to_owned()));
        assert_eq!(since(&objects.clone(), &revision), None, "other objects");
        assert_eq!(since(&Objects::default(), &revision), None, "other objects");
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

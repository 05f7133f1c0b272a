//! Tracks whether informers have seen the writes of their own program.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parking_lot::Mutex;
use thiserror::Error;

use crate::key::{KeyMap, ObjectKey};
use crate::kind::GroupVersionResource;
use crate::resource_version::compare_rv;
use crate::store::Store;

/// Why an owner must not be processed yet.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConsistencyError {
    /// A store has not caught up with a write. Try again later.
    #[error("the store of {resource} is at version {read:?}, behind the write at {wrote}")]
    Behind {
        /// The resource that was written.
        resource: GroupVersionResource,
        /// The resource version of the store; empty if it has none yet.
        read: Box<str>,
        /// The resource version of the last write.
        wrote: Box<str>,
    },
    /// A write was recorded for a resource whose store was not
    /// [added](ConsistencyStore::with_store). This is a bug in the program; waiting does not help.
    #[error("no store for {0}, which was written")]
    NoStore(GroupVersionResource),
}

/// Records the resource versions of a program's own writes, and reports whether its stores have
/// caught up.
///
/// A controller that creates pods for a replica set would create them twice if it processed the
/// replica set again before its informer sees those pods. It therefore records its writes, and
/// checks before it processes the same owner again:
///
/// ```
/// use kube_informers::{ConsistencyStore, GroupVersionResource, ObjectKey};
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::Pod;
/// # use kube_informers::{InformerOptions, SharedInformer, Typed, testing::FakeSource};
/// # let kind = Arc::new(Typed::<Pod>::new());
/// # let source = FakeSource::new(Arc::clone(&kind), |_, _| {});
/// # let informer = SharedInformer::new(kind, source, InformerOptions::default());
///
/// let pods = GroupVersionResource::namespaced("", "v1", "pods");
/// let consistency = ConsistencyStore::new().with_store(pods.clone(), informer.store());
///
/// let owner = ObjectKey::new(Some("default"), "web");
/// consistency.wrote_at(&owner, "the owner's UID", &pods, "1234");
/// // Some time later:
/// if let Err(error) = consistency.ensure_ready(&owner) {
///     println!("not yet: {error}");
/// }
/// # assert!(consistency.ensure_ready(&owner).is_err());
/// ```
///
/// Same as client-go's `util/consistency` (KEP-5647). Compares resource versions, whose order
/// servers before 1.35 do not guarantee; see [`compare_rv`].
#[derive(Default)]
pub struct ConsistencyStore {
    stores: HashMap<GroupVersionResource, Version>,
    writes: Mutex<KeyMap<Writes>>,
}

/// Reads the resource version of a store.
type Version = Box<dyn Fn() -> String + Send + Sync>;

/// The writes for one owner.
struct Writes {
    uid: String,
    /// The newest written version of each resource.
    versions: HashMap<GroupVersionResource, String>,
}

impl ConsistencyStore {
    /// A tracker without stores.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the store that shows writes of this resource.
    pub fn with_store<T: Send + Sync + 'static>(
        mut self,
        resource: GroupVersionResource,
        store: Store<T>,
    ) -> Self {
        self.stores.insert(resource, Box::new(move || store.resource_version()));
        self
    }

    /// Records a write of this resource for this owner, with the resulting resource version.
    ///
    /// Discards what was recorded for an owner of the same name with another UID. Otherwise ignores
    /// a version that is older than the recorded one, or malformed.
    pub fn wrote_at(&self, owner: &ObjectKey, uid: &str, resource: &GroupVersionResource, version: &str) {
        let mut writes = self.writes.lock();
        let writes = match writes.entry(owner.clone()) {
            Entry::Occupied(known) if known.get().uid == uid => known.into_mut(),
            other => {
                other.insert_entry(Writes { uid: uid.to_owned(), versions: HashMap::default() }).into_mut()
            }
        };
        let known = writes.versions.get(resource);
        // Without a recorded version, comparing the version with itself validates it.
        let newer = match compare_rv(version, known.map_or(version, String::as_str)) {
            Ok(order) => known.is_none() || order == Ordering::Greater,
            Err(error) => {
                tracing::warn!(%owner, %resource, %error, "ignoring a write with a malformed resource version");
                false
            }
        };
        if newer {
            writes.versions.insert(resource.clone(), version.to_owned());
        }
    }

    /// Discards the writes for a deleted owner. With a UID, only if it matches.
    pub fn clear(&self, owner: &ObjectKey, uid: Option<&str>) {
        let mut writes = self.writes.lock();
        if writes.get(owner).is_some_and(|writes| uid.is_none_or(|uid| uid == writes.uid)) {
            writes.remove(owner);
        }
    }

    /// Succeeds if the stores contain all writes for the owner, and then discards them.
    ///
    /// A store whose version cannot be compared counts as caught up. Otherwise the owner would be
    /// stuck.
    pub fn ensure_ready(&self, owner: &ObjectKey) -> Result<(), ConsistencyError> {
        // The lock spans check and removal. Otherwise a concurrent write could be lost.
        let mut writes = self.writes.lock();
        let Some(written) = writes.get(owner) else { return Ok(()) };
        for (resource, wrote) in &written.versions {
            let Some(version) = self.stores.get(resource) else {
                return Err(ConsistencyError::NoStore(resource.clone()));
            };
            let read = version();
            if read.is_empty() || compare_rv(&read, wrote) == Ok(Ordering::Less) {
                let (resource, read, wrote) = (resource.clone(), read.into(), wrote.as_str().into());
                return Err(ConsistencyError::Behind { resource, read, wrote });
            }
        }
        writes.remove(owner);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::delta::Delta;
    use crate::kind::Typed;

    /// A store whose version the test sets.
    #[derive(Clone)]
    struct Told(Store<Pod>);

    impl Told {
        fn new() -> Self {
            Self(Store::new(std::sync::Arc::new(Typed::<Pod>::new()), crate::Indexers::new()))
        }

        fn is_at(&self, version: &str) {
            self.0.apply(&Typed::<Pod>::new(), vec![Delta::Bookmark(version.to_owned())]);
        }
    }

    fn resource(name: &'static str) -> GroupVersionResource {
        GroupVersionResource::namespaced("", "v1", name)
    }

    fn owner() -> ObjectKey {
        ObjectKey::new(Some("ns"), "owner")
    }

    /// A tracker with stores of pods and claims.
    fn consistency() -> (ConsistencyStore, Told, Told) {
        let (pods, claims) = (Told::new(), Told::new());
        let store = ConsistencyStore::new()
            .with_store(resource("pods"), pods.0.clone())
            .with_store(resource("claims"), claims.0.clone());
        (store, pods, claims)
    }

    fn behind(resource_name: &'static str, read: &str, wrote: &str) -> Result<(), ConsistencyError> {
        let (read, wrote) = (read.into(), wrote.into());
        Err(ConsistencyError::Behind { resource: resource(resource_name), read, wrote })
    }

    #[test]
    fn an_owner_is_ready_once_the_store_reaches_its_write() {
        for caught_up in ["10", "15", "100"] {
            let (store, pods, _) = consistency();
            assert_eq!(store.ensure_ready(&owner()), Ok(()), "nothing was written");
            store.wrote_at(&owner(), "1", &resource("pods"), "10");
            assert_eq!(store.ensure_ready(&owner()), behind("pods", "", "10"), "the store is empty");
            pods.is_at("9");
            assert_eq!(store.ensure_ready(&owner()), behind("pods", "9", "10"));
            assert_eq!(store.ensure_ready(&owner()), behind("pods", "9", "10"), "the record is kept");
            pods.is_at(caught_up);
            assert_eq!(store.ensure_ready(&owner()), Ok(()));
            // If the write were still recorded, this older store would be behind it.
            pods.is_at("5");
            assert_eq!(store.ensure_ready(&owner()), Ok(()), "the record is discarded");
        }
    }

    #[test]
    fn readiness_requires_every_written_resource() {
        let (store, pods, claims) = consistency();
        store.wrote_at(&owner(), "1", &resource("pods"), "10");
        store.wrote_at(&owner(), "1", &resource("claims"), "12");
        pods.is_at("20");
        claims.is_at("11");
        assert_eq!(store.ensure_ready(&owner()), behind("claims", "11", "12"));
        pods.is_at("8");
        claims.is_at("12");
        assert_eq!(store.ensure_ready(&owner()), behind("pods", "8", "10"));
        pods.is_at("10");
        assert_eq!(store.ensure_ready(&owner()), Ok(()));
    }

    #[test]
    fn older_writes_and_malformed_versions_are_ignored() {
        let (store, pods, _) = consistency();
        pods.is_at("1");
        for odd in ["", "0", "07", "x", "-3"] {
            store.wrote_at(&owner(), "1", &resource("pods"), odd);
            assert_eq!(store.ensure_ready(&owner()), Ok(()), "{odd:?}");
        }
        for version in ["9", "10", "8", "", "x", "011"] {
            store.wrote_at(&owner(), "1", &resource("pods"), version);
        }
        assert_eq!(store.ensure_ready(&owner()), behind("pods", "1", "10"));
    }

    #[test]
    fn a_store_with_an_incomparable_version_counts_as_ready() {
        let (store, pods, _) = consistency();
        store.wrote_at(&owner(), "1", &resource("pods"), "10");
        pods.is_at("not a number");
        assert_eq!(store.ensure_ready(&owner()), Ok(()));
    }

    #[test]
    fn a_write_without_a_store_is_an_error_until_it_is_cleared() {
        let (store, pods, _) = consistency();
        pods.is_at("99");
        store.wrote_at(&owner(), "1", &resource("nodes"), "10");
        for _ in 0..2 {
            assert_eq!(store.ensure_ready(&owner()), Err(ConsistencyError::NoStore(resource("nodes"))));
        }
        store.clear(&owner(), Some("1"));
        assert_eq!(store.ensure_ready(&owner()), Ok(()));
    }

    #[test]
    fn clear_discards_the_owner_by_uid_or_name() {
        let (store, pods, _) = consistency();
        pods.is_at("1");
        let other = ObjectKey::new(Some("ns"), "other");
        for (uid, cleared) in [(Some("2"), false), (Some(""), false), (Some("1"), true), (None, true)] {
            store.wrote_at(&owner(), "1", &resource("pods"), "10");
            store.wrote_at(&other, "1", &resource("pods"), "10");
            store.clear(&owner(), uid);
            assert_eq!(store.ensure_ready(&owner()).is_ok(), cleared, "{uid:?}");
            assert!(store.ensure_ready(&other).is_err(), "the UID belongs to another owner");
        }
        store.clear(&ObjectKey::new(None, "nobody"), None);
    }

    #[test]
    fn writes_of_a_new_owner_replace_the_old_ones() {
        let (store, pods, claims) = consistency();
        pods.is_at("1");
        claims.is_at("1");
        let store = Arc::new(store);
        let write_from_many = |uid: &'static str, name: &'static str| {
            std::thread::scope(|scope| {
                for version in 1..=50_u32 {
                    let store = &store;
                    scope.spawn(move || store.wrote_at(&owner(), uid, &resource(name), &version.to_string()));
                }
            });
        };
        write_from_many("1", "pods");
        assert_eq!(store.ensure_ready(&owner()), behind("pods", "1", "50"), "the newest of all");
        write_from_many("2", "claims");
        assert_eq!(store.ensure_ready(&owner()), behind("claims", "1", "50"));
        claims.is_at("50");
        assert_eq!(store.ensure_ready(&owner()), Ok(()), "the old owner's writes do not count");
        store.wrote_at(&owner(), "2", &resource("pods"), "2");
        store.wrote_at(&owner(), "3", &resource("pods"), "no version");
        assert_eq!(store.ensure_ready(&owner()), Ok(()), "the old owner's writes are discarded");
    }
}

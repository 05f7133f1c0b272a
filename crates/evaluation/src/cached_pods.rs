//! The pods in the cache.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashSet};
use supercargo_framework::{PodInfo, Uid};

/// A pod in the cache. There is one for every pod of the cluster, so nothing that the pod itself
/// has is repeated.
#[derive(Clone, Debug)]
pub(crate) struct CachedPod {
    pub(crate) pod: Arc<PodInfo>,
    /// The node of an assumed pod.
    assumed_on: Option<Box<Arc<str>>>,
}

impl CachedPod {
    /// A pod that an informer reported with a node.
    pub(crate) fn confirmed(pod: Arc<PodInfo>) -> Self {
        Self { pod, assumed_on: None }
    }

    /// A pod that is assumed on a node.
    pub(crate) fn assumed(pod: Arc<PodInfo>, node: Arc<str>) -> Self {
        Self { pod, assumed_on: Some(Box::new(node)) }
    }

    /// The node that the pod is on.
    pub(crate) fn node(&self) -> &Arc<str> {
        let named = self.assumed_on.as_deref().or(self.pod.node_name.as_ref());
        named.expect("a pod in the cache has a node or is assumed on one")
    }

    pub(crate) fn is_assumed(&self) -> bool {
        self.assumed_on.is_some()
    }
}

impl PartialEq for CachedPod {
    fn eq(&self, other: &Self) -> bool {
        self.pod.uid == other.pod.uid
    }
}

impl Eq for CachedPod {}

impl Hash for CachedPod {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pod.uid.hash(state);
    }
}

impl Borrow<Uid> for CachedPod {
    fn borrow(&self) -> &Uid {
        &self.pod.uid
    }
}

/// With more, a copy costs more. With fewer, the first changes after a copy do.
const SHARDS: usize = 256;

/// The pods in the cache, by UID. A copy shares each shard until it changes.
#[derive(Clone, Debug)]
pub(crate) struct CachedPods {
    shards: Box<[Arc<FxHashSet<CachedPod>>]>,
    len: usize,
    copied: u64,
}

impl Default for CachedPods {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Arc::default()).collect(), len: 0, copied: 0 }
    }
}

impl CachedPods {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, uid: &Uid) -> Option<&CachedPod> {
        self.shards[shard_of(uid)].get(uid)
    }

    /// Adds a pod that is not among them.
    pub(crate) fn insert(&mut self, pod: CachedPod) {
        let shard = shard_of(&pod.pod.uid);
        self.count_copies(shard);
        self.len += usize::from(Arc::make_mut(&mut self.shards[shard]).insert(pod));
    }

    pub(crate) fn take(&mut self, uid: &Uid) -> Option<CachedPod> {
        let shard = shard_of(uid);
        // A shared shard is copied only if it changes.
        if !self.shards[shard].contains(uid) {
            return None;
        }
        self.len -= 1;
        self.count_copies(shard);
        Arc::make_mut(&mut self.shards[shard]).take(uid)
    }

    fn count_copies(&mut self, shard: usize) {
        let shard = &self.shards[shard];
        if Arc::strong_count(shard) > 1 {
            self.copied += shard.len() as u64;
        }
    }

    /// How many pods have been copied because shards that a copy shares have changed.
    pub(crate) fn copied(&self) -> u64 {
        self.copied
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &CachedPod> {
        self.shards.iter().flat_map(|shard| shard.iter())
    }
}

/// By bits of the hash that the shard's own table uses little: it takes the low and the highest.
fn shard_of(uid: &Uid) -> usize {
    (FxBuildHasher.hash_one(uid) >> 40) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::pod;

    use super::*;

    #[test]
    fn a_copy_keeps_its_pods_and_shares_all_other_shards() {
        let mut pods = CachedPods::default();
        for i in 0..10_000 {
            pods.insert(CachedPod::confirmed(Arc::new(pod(&format!("p{i}")).node("n1").build())));
        }
        let copy = pods.clone();
        let gone = Uid::from("p7");
        assert!(pods.take(&gone).is_some());
        assert!(pods.take(&"unknown".into()).is_none());
        assert_eq!((pods.len(), pods.iter().count(), pods.get(&gone).is_none()), (9_999, 9_999, true));
        assert_eq!((copy.len(), copy.iter().count(), copy.get(&gone).is_some()), (10_000, 10_000, true));
        let shared = pods.shards.iter().zip(&copy.shards).filter(|(a, b)| Arc::ptr_eq(a, b));
        assert_eq!(shared.count(), SHARDS - 1);
        let fullest = copy.shards.iter().map(|shard| shard.len()).max();
        assert!(fullest < Some(100), "the fullest shard has {fullest:?} pods of about 40");
    }
}

//! The scheduler cache: nodes, and the bound and assumed pods on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use supercargo_framework::objects::Object;
use supercargo_framework::{NodeIndex, NodeInfo, NodeRecord, Nodes, PodInfo, Uid};
use thiserror::Error;

use crate::cached_pods::{CachedPod, CachedPods};
use crate::changes::{CacheChange, ChangeLog};
use crate::node_tree::NodeTree;

/// Why the cache rejected a change. A rejected change has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CacheError {
    /// A pod in the cache cannot be assumed.
    #[error("pod {0} is in the cache, so can't be assumed")]
    AlreadyKnown(Uid),
    /// Only an assumed pod can be forgotten.
    #[error("pod {0} is bound and can't be forgotten")]
    NotAssumed(Uid),
    /// The pod has no node.
    #[error("pod {0} has no node")]
    Unassigned(Uid),
    /// The node does not exist.
    #[error("node {0:?} is not in the cache")]
    UnknownNode(Arc<str>),
}

/// A copy of the pod that has this node.
pub fn on_node(pod: &PodInfo, node: &Arc<str>) -> Arc<PodInfo> {
    Arc::new(PodInfo { node_name: Some(Arc::clone(node)), ..pod.clone() })
}

/// Nodes and the pods on them.
///
/// A pod enters when it is assumed or when an informer reports it with a node. It leaves when it is
/// forgotten (assumed pods only) or when an informer reports its deletion. As upstream since 1.36,
/// assumed pods do not expire.
#[derive(Debug, Default)]
pub struct Cache {
    nodes: Nodes,
    tree: Arc<NodeTree>,
    order_is_stale: bool,
    /// Rises when the order of visiting nodes changes.
    order_version: u64,
    /// Rises when a node is added or removed, or its labels change.
    labels_version: u64,
    /// The names of the nodes in visiting order.
    visited: Arc<Vec<Arc<str>>>,
    pods: CachedPods,
    /// Pods on nodes that are not in the cache, by node name.
    /// Ordered, because anyone who creates pods chooses the names.
    absent_nodes: BTreeMap<Arc<str>, NodeInfo>,
    /// The changes of known nodes. The scheduler adds those of objects.
    pub(crate) changes: ChangeLog,
}

impl Cache {
    /// How many nodes and pods have been copied because a [fork](Self::fork) shares them.
    pub fn copied(&self) -> u64 {
        self.nodes.copied() + self.pods.copied()
    }

    /// A copy for a scheduler with new tables: they need no earlier changes.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {
            nodes: self.nodes.clone(),
            tree: Arc::clone(&self.tree),
            order_is_stale: self.order_is_stale,
            order_version: self.order_version,
            labels_version: self.labels_version,
            visited: Arc::clone(&self.visited),
            pods: self.pods.clone(),
            absent_nodes: self.absent_nodes.clone(),
            changes: self.changes.forgetful(),
        }
    }

    /// Updates the visiting order and returns the nodes. Same as upstream's snapshot, with its
    /// quirk: the order is rebuilt when a node is added or removed. A node that only changes its
    /// zone keeps its place until then.
    pub fn refreshed(&mut self) -> &Nodes {
        if std::mem::take(&mut self.order_is_stale) {
            let listed = self.tree.list();
            if !is_same_set(&listed, &self.visited) {
                self.visited = Arc::new(listed);
            }
            let order = self.visited.iter().filter_map(|name| self.nodes.index_of(name)).collect();
            self.nodes.set_order(order);
            self.order_version += 1;
        }
        &self.nodes
    }

    /// The nodes, in the order of the last [`refreshed`](Self::refreshed).
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Sets the maximum number of changes that are kept for tables.
    #[cfg(any(test, feature = "testing"))]
    pub fn keep_changes(&mut self, count: usize) {
        self.changes.kept = count;
    }

    /// The nodes, to be damaged by tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn nodes_mut(&mut self) -> &mut Nodes {
        &mut self.nodes
    }

    /// The version of the visiting order.
    pub(crate) fn order_version(&self) -> u64 {
        self.order_version
    }

    /// The version of the nodes' labels.
    pub(crate) fn labels_version(&self) -> u64 {
        self.labels_version
    }

    /// The pods that have a node, assumed ones included.
    pub fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.pods().map(|pod| &pod.uid)
    }

    /// The pods that have a node, assumed ones included.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.pods.iter().map(|cached| &cached.pod)
    }

    /// A pod with a node, in the version that was assumed or that the informer last reported.
    pub fn pod(&self, uid: &Uid) -> Option<&Arc<PodInfo>> {
        self.pods.get(uid).map(|cached| &cached.pod)
    }

    /// The node that a pod is on, bound or assumed.
    pub fn node_of(&self, uid: &Uid) -> Option<&Arc<str>> {
        self.pods.get(uid).map(CachedPod::node)
    }

    /// Whether the pod is assumed.
    #[inline]
    pub fn is_assumed(&self, uid: &Uid) -> bool {
        self.pods.get(uid).is_some_and(CachedPod::is_assumed)
    }

    /// Whether an informer has reported the pod with a node.
    #[inline]
    pub fn is_confirmed(&self, uid: &Uid) -> bool {
        self.pods.get(uid).is_some_and(|cached| !cached.is_assumed())
    }

    /// The assumed pods.
    pub fn assumed(&self) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.pods.iter().filter(|cached| cached.is_assumed()).map(|cached| &cached.pod)
    }

    /// The number of pods, and of assumed pods among them.
    pub fn pod_counts(&self) -> (usize, usize) {
        (self.pods.len(), self.pods.iter().filter(|cached| cached.is_assumed()).count())
    }

    /// Puts a pod on a node before the API server knows of it.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: Arc<str>) -> Result<(), CacheError> {
        if self.pods.get(&pod.uid).is_some() {
            return Err(CacheError::AlreadyKnown(pod.uid.clone()));
        }
        self.place(pod, node, true, Notice::Taken);
        Ok(())
    }

    /// Takes an assumed pod off its node. An unknown pod is ignored.
    pub fn forget(&mut self, uid: &Uid) -> Result<(), CacheError> {
        if self.is_confirmed(uid) {
            return Err(CacheError::NotAssumed(uid.clone()));
        }
        self.displace(uid, Notice::Taken);
        Ok(())
    }

    /// Adds a pod that an informer reports with a node. Confirms an assumed pod, on whichever node
    /// it was assumed, and replaces a known one.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) -> Result<(), CacheError> {
        let Some(node) = pod.node_name.clone() else {
            return Err(CacheError::Unassigned(pod.uid.clone()));
        };
        let known = self.pods.get(&pod.uid);
        let notice = match known {
            Some(known) if *known.node() == node && evaluates_alike(&known.pod, &pod) => Notice::None,
            _ => Notice::Taken,
        };
        self.displace(&pod.uid, notice);
        self.place(pod, node, false, notice);
        Ok(())
    }

    /// Takes a pod off its node for a trial; the cache still knows it. `false` if it is on no known
    /// node.
    pub fn set_aside(&mut self, uid: &Uid) -> bool {
        let Some(index) = self.node_of(uid).and_then(|node| self.nodes.index_of(node)) else { return false };
        let Some(pod) = self.nodes.update(index, |info| info.remove_pod(uid)).flatten() else { return false };
        let node = Arc::clone(self.nodes.at(index).node());
        self.note(CacheChange::PodRemoved { index, node, pod });
        true
    }

    /// Undoes [`set_aside`](Self::set_aside).
    pub fn put_back(&mut self, uid: &Uid) {
        let Some(pod) = self.pod(uid).cloned() else { return };
        let Some(index) = self.node_of(uid).and_then(|node| self.nodes.index_of(node)) else { return };
        self.nodes.update(index, |info| info.add_pod(Arc::clone(&pod)));
        let node = Arc::clone(self.nodes.at(index).node());
        self.note(CacheChange::PodAdded { index, node, pod });
    }

    /// Adds a pod to a node, or removes it there, in a trial that tables do not see.
    pub fn try_on(&mut self, index: NodeIndex, change: impl FnOnce(&mut NodeInfo)) {
        self.nodes.update(index, change);
    }

    /// Ends a trial on a node: its pods are those of before, in the same order.
    pub fn restore(&mut self, index: NodeIndex, earlier: NodeInfo) {
        let now: FxHashSet<&Uid> = self.nodes.at(index).pods().iter().map(|pod| &pod.uid).collect();
        let gone = earlier.pods().iter().filter(|pod| !now.contains(&pod.uid));
        let gone: Vec<_> = gone.map(Arc::clone).collect();
        for pod in gone {
            let node = Arc::clone(earlier.node());
            self.note(CacheChange::PodAdded { index, node, pod });
        }
        self.nodes.update(index, |info| info.restore(earlier));
    }

    /// Removes a pod whose deletion an informer reports.
    pub fn remove_pod(&mut self, uid: &Uid) -> Option<Arc<PodInfo>> {
        self.displace(uid, Notice::Taken)
    }

    /// Adds or replaces a node.
    pub fn set_node(&mut self, node: Arc<NodeRecord>) {
        let zone = node.zone();
        let name = Arc::clone(&node.name);
        match self.nodes.index_of(&name) {
            Some(index) => {
                self.labels_version += u64::from(self.nodes.at(index).node().labels != node.labels);
                let old = Arc::clone(self.nodes.at(index).node());
                let old_zone = old.zone();
                if old_zone != zone {
                    let tree = Arc::make_mut(&mut self.tree);
                    tree.remove(&old_zone, &name);
                    tree.add(zone, name);
                    self.order_is_stale = true;
                }
                self.note(CacheChange::NodeChanged { index, old, new: Arc::clone(&node) });
                self.nodes.set_node(index, node);
            }
            None => {
                self.labels_version += 1;
                let mut info = self.absent_nodes.remove(&name).unwrap_or_default();
                info.set_node(Arc::clone(&node));
                let pods = info.pods().to_vec();
                let index = self.nodes.insert(info);
                self.note(CacheChange::NodeAdded { index, node: Arc::clone(&node) });
                for pod in pods {
                    self.note(CacheChange::PodAdded { index, node: Arc::clone(&node), pod });
                }
                Arc::make_mut(&mut self.tree).add(zone, name);
                self.order_is_stale = true;
            }
        }
    }

    /// Removes a node. Its pods stay known, and count again if the node returns.
    pub fn remove_node(&mut self, name: &str) -> Result<(), CacheError> {
        let unknown = || CacheError::UnknownNode(name.into());
        let index = self.nodes.index_of(name).ok_or_else(unknown)?;
        let info = self.nodes.remove(index).ok_or_else(unknown)?;
        self.labels_version += 1;
        Arc::make_mut(&mut self.tree).remove(&info.node().zone(), name);
        self.order_is_stale = true;
        for pod in info.pods() {
            let (node, pod) = (Arc::clone(info.node()), Arc::clone(pod));
            self.note(CacheChange::PodRemoved { index, node, pod });
        }
        self.note(CacheChange::NodeRemoved { index, node: Arc::clone(info.node()) });
        if !info.pods().is_empty() {
            self.absent_nodes.insert(Arc::clone(info.name()), info);
        }
        Ok(())
    }

    /// The number of changes that tables may still catch up with.
    pub fn change_count(&self) -> usize {
        self.changes.len()
    }

    /// Notes that an object of another kind changed, for tables to catch up with.
    pub fn note_object(&mut self, object: &Object) {
        let (resource, key) = (object.resource.clone(), Arc::clone(&object.key));
        self.note(CacheChange::Object { resource, key });
    }

    /// Adds a change for tables to catch up with.
    fn note(&mut self, change: CacheChange) {
        self.changes.push(change, self.nodes.len() + self.pods.len());
    }

    fn place(&mut self, pod: Arc<PodInfo>, node: Arc<str>, assumed: bool, notice: Notice) {
        match self.nodes.index_of(&node) {
            Some(index) => {
                self.nodes.update(index, |info| info.add_pod(Arc::clone(&pod)));
                if notice == Notice::Taken {
                    let node = Arc::clone(self.nodes.at(index).node());
                    self.note(CacheChange::PodAdded { index, node, pod: Arc::clone(&pod) });
                }
            }
            None => self.absent_nodes.entry(Arc::clone(&node)).or_default().add_pod(Arc::clone(&pod)),
        }
        self.pods.insert(if assumed { CachedPod::assumed(pod, node) } else { CachedPod::confirmed(pod) });
    }

    fn displace(&mut self, uid: &Uid, notice: Notice) -> Option<Arc<PodInfo>> {
        let cached = self.pods.take(uid)?;
        let node = cached.node();
        if let Some(index) = self.nodes.index_of(node) {
            self.nodes.update(index, |info| info.remove_pod(uid));
            if notice == Notice::Taken {
                let (node, pod) = (Arc::clone(self.nodes.at(index).node()), Arc::clone(&cached.pod));
                self.note(CacheChange::PodRemoved { index, node, pod });
            }
        } else if let Some(absent) = self.absent_nodes.get_mut(node) {
            absent.remove_pod(uid);
            if absent.pods().is_empty() {
                self.absent_nodes.remove(node);
            }
        }
        Some(cached.pod)
    }

    /// A cache rebuilt from the objects alone, for [`differences`](Self::differences) to compare
    /// with.
    fn rebuilt(&self) -> Self {
        let mut fresh = Self::default();
        for (_, info) in self.nodes.iter() {
            fresh.set_node(Arc::clone(info.node()));
        }
        for cached in self.pods.iter() {
            fresh.place(
                Arc::clone(&cached.pod),
                Arc::clone(cached.node()),
                cached.is_assumed(),
                Notice::None,
            );
        }
        fresh
    }

    /// Where the sums per node differ from what its pods add up to; empty unless there is a bug.
    /// Costs as much as building the cache: for tests and for the debugger.
    pub fn differences(&self) -> Vec<String> {
        let mut current = self.fork();
        current.refreshed();
        let mut fresh = current.rebuilt();
        let order = |cache: &mut Self| {
            let mut names: Vec<_> =
                cache.refreshed().iter().map(|(_, info)| Arc::clone(info.name())).collect();
            names.sort();
            names
        };
        let mut differences = Vec::new();
        let (names, fresh_names) = (order(&mut current), order(&mut fresh));
        if names != fresh_names || self.absent_nodes.len() != fresh.absent_nodes.len() {
            differences.push(format!("nodes {names:?}, {fresh_names:?} expected"));
        }
        for (_, info) in current.nodes.iter() {
            compare(info, fresh.nodes.get(info.name()), &mut differences);
        }
        for (name, info) in &self.absent_nodes {
            compare(info, fresh.absent_nodes.get(name), &mut differences);
        }
        differences.sort();
        differences
    }

    /// The node at an index.
    pub fn node_at(&self, index: NodeIndex) -> &NodeInfo {
        self.nodes.at(index)
    }
}

/// Whether a change of a node's pods matters to evaluations of the node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notice {
    Taken,
    /// A pod is replaced by itself, as in most confirmations of bindings.
    None,
}

/// Whether two versions of a pod have the same effect on evaluations of their node.
fn evaluates_alike(old: &PodInfo, new: &PodInfo) -> bool {
    fn same<T: PartialEq>(old: &Arc<T>, new: &Arc<T>) -> bool {
        Arc::ptr_eq(old, new) || old == new
    }
    old.terminating == new.terminating
        && old.priority == new.priority
        && old.requests() == new.requests()
        && old.labels == new.labels
        && old.annotations == new.annotations
        && same(&old.spec, &new.spec)
        && old.namespace == new.namespace
}

fn is_same_set(a: &[Arc<str>], b: &[Arc<str>]) -> bool {
    a.len() == b.len() && {
        let names: FxHashSet<&str> = a.iter().map(|name| &**name).collect();
        b.iter().all(|name| names.contains(&**name))
    }
}

fn compare(info: &NodeInfo, fresh: Option<&NodeInfo>, differences: &mut Vec<String>) {
    let sorted = |info: &NodeInfo| {
        let mut uids: Vec<_> = info.pods().iter().map(|pod| pod.uid.clone()).collect();
        uids.sort();
        (
            uids,
            info.used_ports().clone(),
            info.requested().clone(),
            info.non_zero_milli_cpu(),
            info.non_zero_memory(),
        )
    };
    let (have, want) = (sorted(info), fresh.map(sorted));
    if want.as_ref() != Some(&have) || !info.has_exact_sums() {
        differences.push(format!("node {:?}: {have:?}, {want:?} expected", info.name()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supercargo_framework::testing::{node, pod};

    fn cache_with(names: &[&str]) -> Cache {
        let mut cache = Cache::default();
        for name in names {
            cache.set_node(Arc::new(node(name).build()));
        }
        cache.refreshed();
        cache
    }

    fn requested(cache: &Cache, name: &str) -> i64 {
        cache.nodes().get(name).map_or(-1, |info| info.requested().milli_cpu)
    }

    #[test]
    fn an_assumed_pod_counts_until_it_is_forgotten_or_confirmed() {
        let mut cache = cache_with(&["n1", "n2"]);
        let waiting = Arc::new(pod("a").request("cpu", "1").build());
        cache.assume(Arc::clone(&waiting), "n1".into()).unwrap();
        assert_eq!((requested(&cache, "n1"), cache.is_assumed(&waiting.uid)), (1000, true));
        assert!(cache.assume(Arc::clone(&waiting), "n2".into()).is_err());
        cache.forget(&waiting.uid).unwrap();
        assert_eq!(requested(&cache, "n1"), 0);

        cache.assume(waiting, "n1".into()).unwrap();
        let bound = Arc::new(pod("a").request("cpu", "1").node("n2").build());
        cache.add_pod(Arc::clone(&bound)).unwrap();
        assert_eq!(
            (requested(&cache, "n1"), requested(&cache, "n2")),
            (0, 1000),
            "the informer takes precedence"
        );
        assert!(cache.forget(&bound.uid).is_err());
        assert!(cache.differences().is_empty());
    }

    #[test]
    fn order_is_rebuilt_only_when_a_node_is_added_or_removed() {
        let order = |cache: &mut Cache| {
            cache.refreshed().iter().map(|(_, info)| info.name().to_string()).collect::<Vec<_>>()
        };
        let zoned = |name, zone| Arc::new(node(name).label("topology.kubernetes.io/zone", zone).build());
        let mut cache = Cache::default();
        for (name, zone) in [("n1", "a"), ("n2", "a"), ("n3", "b")] {
            cache.set_node(zoned(name, zone));
        }
        assert_eq!(order(&mut cache), ["n1", "n3", "n2"]);
        cache.set_node(zoned("n1", "b"));
        assert_eq!(order(&mut cache), ["n1", "n3", "n2"]);
        cache.set_node(zoned("n4", "c"));
        assert_eq!(order(&mut cache), ["n2", "n3", "n4", "n1"]);
    }

    #[test]
    fn pods_of_a_missing_node_count_once_it_is_added() {
        let mut cache = cache_with(&[]);
        cache.add_pod(Arc::new(pod("a").request("cpu", "1").node("n1").build())).unwrap();
        assert!(cache.refreshed().is_empty());
        cache.set_node(Arc::new(node("n1").build()));
        assert_eq!(cache.refreshed().len(), 1);
        assert_eq!(requested(&cache, "n1"), 1000);
        cache.remove_node("n1").unwrap();
        assert!(cache.refreshed().is_empty());
        cache.remove_pod(&"a".into());
        cache.set_node(Arc::new(node("n1").build()));
        cache.refreshed();
        assert_eq!(requested(&cache, "n1"), 0);
        assert!(cache.remove_node("n9").is_err());
    }
}

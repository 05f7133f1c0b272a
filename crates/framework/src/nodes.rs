//! All nodes, in the order in which scheduling visits them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::affinity_keys::AffinityKeys;
use crate::labels::Labels;
use crate::node::NodeImage;
use crate::node_columns::NodeColumns;
use crate::node_index::NodeIndex;
use crate::node_info::NodeInfo;
use crate::steps;

/// An image on nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageState {
    /// The size that the first node reported, in bytes.
    pub size: i64,
    /// The number of nodes that have it.
    pub nodes: usize,
}

/// An image, with the nodes that have it.
#[derive(Clone, Debug)]
struct Image {
    /// The size that the first of the nodes reported, in bytes.
    size: i64,
    /// The nodes that have it, ascending.
    nodes: Vec<NodeIndex>,
}

/// All nodes with their pods: upstream's snapshot. Here the cache has one owner, so a cycle reads
/// it in place.
///
/// The scheduler's cache changes it; plugins only read. A copy shares each node until it changes,
/// and the names until a node comes or goes.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    slots: Vec<Option<Arc<NodeInfo>>>,
    free: Vec<NodeIndex>,
    by_name: Arc<FxHashMap<Arc<str>, NodeIndex>>,
    order: Vec<NodeIndex>,
    /// By name. Ordered, because anyone who creates pods chooses the names.
    images: BTreeMap<Arc<str>, Image>,
    /// The keys of the nodes' labels, with the number of nodes that have them.
    label_keys: BTreeMap<Arc<str>, usize>,
    columns: NodeColumns,
    with_affinity: BTreeSet<NodeIndex>,
    with_required_anti_affinity: BTreeSet<NodeIndex>,
    affinity_keys: AffinityKeys,
    copied: u64,
}

impl Nodes {
    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The nodes in visiting order: round-robin over zones; zones and nodes in the order in which
    /// they were added.
    pub fn order(&self) -> &[NodeIndex] {
        &self.order
    }

    /// The node at an index of [`order`](Self::order).
    ///
    /// # Panics
    /// If the node has been removed since the index was taken.
    pub fn at(&self, index: NodeIndex) -> &NodeInfo {
        self.slots[index.0 as usize].as_deref().expect("an index taken from this table's order names a node")
    }

    /// Whether the index has a node.
    pub fn has(&self, index: NodeIndex) -> bool {
        self.slots.get(index.0 as usize).is_some_and(Option::is_some)
    }

    /// All nodes in visiting order.
    pub fn iter(&self) -> impl Iterator<Item = (NodeIndex, &NodeInfo)> {
        self.order.iter().map(|index| (*index, self.at(*index)))
    }

    /// All nodes, unordered, including those that are not in the visiting order yet.
    pub fn all(&self) -> impl Iterator<Item = &NodeInfo> {
        self.slots.iter().flatten().map(|info| &**info)
    }

    /// The names of all nodes, unordered, including nodes that are not in the visiting order yet.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.by_name.keys()
    }

    /// The index of a node by name.
    pub fn index_of(&self, name: &str) -> Option<NodeIndex> {
        self.by_name.get(name).copied()
    }

    /// A node by name.
    pub fn get(&self, name: &str) -> Option<&NodeInfo> {
        self.index_of(name).map(|index| self.at(index))
    }

    /// The nodes with a pod that has any inter-pod affinity or anti-affinity, unordered.
    pub fn with_affinity(&self) -> impl Iterator<Item = &NodeInfo> {
        self.with_affinity.iter().map(|index| self.at(*index))
    }

    /// The nodes with a pod that has required anti-affinity, unordered.
    pub fn with_required_anti_affinity(&self) -> impl Iterator<Item = &NodeInfo> {
        self.with_required_anti_affinity.iter().map(|index| self.at(*index))
    }

    /// The label keys in affinity terms of pods on nodes.
    pub fn affinity_keys(&self) -> &AffinityKeys {
        &self.affinity_keys
    }

    /// Allocatable and requested resources in columns, by slot.
    pub fn columns(&self) -> &NodeColumns {
        &self.columns
    }

    /// An image by normalised name.
    pub fn image(&self, name: &str) -> Option<ImageState> {
        self.images.get(name).map(|image| ImageState { size: image.size, nodes: image.nodes.len() })
    }

    /// The nodes that have an image, by normalised name, ascending.
    pub fn with_image(&self, name: &str) -> &[NodeIndex] {
        self.images.get(name).map_or(&[], |image| &image.nodes)
    }

    /// Whether any node has a label with this key. Most keys that a pod can make up are on none.
    pub fn any_has_label(&self, key: &str) -> bool {
        steps::add(1);
        self.label_keys.contains_key(key)
    }

    /// Adds a node. The visiting order does not change until [`set_order`](Self::set_order).
    pub fn insert(&mut self, info: NodeInfo) -> NodeIndex {
        let name = Arc::clone(info.name());
        self.affinity_keys.learn(info.pods_with_affinity());
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            NodeIndex(self.slots.len() as u32 - 1)
        });
        self.add_images(index, &info.node().images);
        self.add_label_keys(&info.node().labels);
        self.slots[index.0 as usize] = Some(Arc::new(info));
        Arc::make_mut(&mut self.by_name).insert(name, index);
        self.follow(index);
        index
    }

    /// Changes a node in place.
    pub fn update<R>(&mut self, index: NodeIndex, change: impl FnOnce(&mut NodeInfo) -> R) -> Option<R> {
        let slot = self.slots.get_mut(index.0 as usize)?.as_mut()?;
        if Arc::strong_count(slot) > 1 {
            self.copied += 1 + slot.pods().len() as u64;
        }
        let info = Arc::make_mut(slot);
        let (came, were) = (info.affinity_arrivals(), info.pods_with_affinity().len());
        let result = change(info);
        if info.affinity_arrivals() != came {
            self.affinity_keys.learn(info.pods_with_affinity());
        }
        let came = info.affinity_arrivals().saturating_sub(came);
        let gone = (were + came).saturating_sub(info.pods_with_affinity().len());
        self.follow(index);
        self.forget_affinity(gone);
        Some(result)
    }

    /// How many nodes and pods have been copied because nodes that a copy shares have changed.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Replaces the node object of a node.
    pub fn set_node(&mut self, index: NodeIndex, node: Arc<crate::NodeRecord>) {
        let Some(mut info) = self.slots.get_mut(index.0 as usize).and_then(Option::take) else {
            return;
        };
        self.replace_images(index, &info.node().images, &node.images);
        if info.node().labels != node.labels {
            self.add_label_keys(&node.labels);
            self.remove_label_keys(&info.node().labels);
        }
        Arc::make_mut(&mut info).set_node(node);
        self.slots[index.0 as usize] = Some(info);
        self.follow(index);
    }

    /// Removes a node and returns it with its pods. Set the order before reading it again.
    pub fn remove(&mut self, index: NodeIndex) -> Option<NodeInfo> {
        let info = self.slots.get_mut(index.0 as usize)?.take()?;
        Arc::make_mut(&mut self.by_name).remove(info.name());
        self.remove_images(index, &*info.node().images);
        self.remove_label_keys(&info.node().labels);
        self.follow(index);
        self.forget_affinity(info.pods_with_affinity().len());
        self.free.push(index);
        Some(Arc::unwrap_or_clone(info))
    }

    /// Sets the visiting order.
    pub fn set_order(&mut self, order: Vec<NodeIndex>) {
        self.order = order;
    }

    /// Updates everything derived from a node.
    fn follow(&mut self, index: NodeIndex) {
        self.columns.set(index, self.slots[index.0 as usize].as_deref());
        self.list_affinity(index);
    }

    /// Updates the lists of nodes with affinity for one node.
    fn list_affinity(&mut self, index: NodeIndex) {
        let info = self.slots[index.0 as usize].as_deref();
        let lists = [
            (&mut self.with_affinity, info.map(NodeInfo::pods_with_affinity)),
            (&mut self.with_required_anti_affinity, info.map(NodeInfo::pods_with_required_anti_affinity)),
        ];
        for (list, pods) in lists {
            if pods.is_some_and(|pods| !pods.is_empty()) {
                list.insert(index);
            } else if !list.is_empty() {
                list.remove(&index);
            }
        }
    }

    /// Notes removed pods with affinity.
    fn forget_affinity(&mut self, pods: usize) {
        if pods > 0 && self.affinity_keys.note_gone(pods) {
            let infos = self.with_affinity.iter().filter_map(|index| self.slots[index.0 as usize].as_deref());
            self.affinity_keys.sweep(infos.flat_map(NodeInfo::pods_with_affinity));
        }
    }

    fn add_label_keys(&mut self, labels: &Labels) {
        for (key, _) in labels.iter() {
            match self.label_keys.get_mut(key) {
                Some(nodes) => *nodes += 1,
                None => drop(self.label_keys.insert(Arc::clone(key), 1)),
            }
        }
    }

    fn remove_label_keys(&mut self, labels: &Labels) {
        for (key, _) in labels.iter() {
            match self.label_keys.get_mut(key) {
                Some(nodes) if *nodes > 1 => *nodes -= 1,
                _ => drop(self.label_keys.remove(key)),
            }
        }
    }

    /// Updates the images of a node. Most of them stay the same.
    fn replace_images(&mut self, index: NodeIndex, old: &[NodeImage], new: &[NodeImage]) {
        let stays = |gone: &NodeImage| new.binary_search_by(|image| image.name.cmp(&gone.name)).is_ok();
        self.remove_images(index, old.iter().filter(|image| !stays(image)));
        self.add_images(index, new);
    }

    fn add_images(&mut self, index: NodeIndex, images: &[NodeImage]) {
        for NodeImage { name, size } in images {
            let image = self.images.entry(Arc::clone(name));
            let image = image.or_insert_with(|| Image { size: *size, nodes: Vec::new() });
            if let Err(place) = image.nodes.binary_search(&index) {
                image.nodes.insert(place, index);
            }
            if image.nodes.len() == 1 {
                image.size = *size;
            }
        }
    }

    fn remove_images<'a>(&mut self, index: NodeIndex, images: impl IntoIterator<Item = &'a NodeImage>) {
        for NodeImage { name, .. } in images {
            let Some(image) = self.images.get_mut(name) else { continue };
            if let Ok(place) = image.nodes.binary_search(&index) {
                image.nodes.remove(place);
            }
            if image.nodes.is_empty() {
                self.images.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_affinity::{PodAffinity, PodAffinityTerm};
    use crate::testing::{node, pod};

    #[test]
    fn images_are_counted_over_the_nodes_that_have_them() {
        let mut nodes = Nodes::default();
        let a = nodes.insert(NodeInfo::new(Arc::new(node("a").image("x:1", 10).image("y:1", 5).build())));
        let b = nodes.insert(NodeInfo::new(Arc::new(node("b").image("x:1", 11).build())));
        assert_eq!(nodes.image("x:1"), Some(ImageState { size: 10, nodes: 2 }));
        nodes.set_node(b, Arc::new(node("b").build()));
        assert_eq!(nodes.image("x:1"), Some(ImageState { size: 10, nodes: 1 }));
        nodes.set_node(b, Arc::new(node("b").image("x:1", 11).image("z:1", 1).build()));
        assert_eq!((nodes.with_image("x:1"), nodes.with_image("z:1")), (&[a, b][..], &[b][..]));
        nodes.set_node(a, Arc::new(node("a").image("y:1", 6).build()));
        assert_eq!(nodes.image("x:1"), Some(ImageState { size: 10, nodes: 1 }), "the first size stays");
        assert_eq!(
            nodes.image("y:1"),
            Some(ImageState { size: 6, nodes: 1 }),
            "its only node can change the size"
        );
        nodes.set_node(b, Arc::new(node("b").build()));
        nodes.remove(a);
        assert_eq!((nodes.image("x:1"), nodes.image("y:1")), (None, None));
        assert_eq!(nodes.index_of("a"), None);
    }

    #[test]
    fn label_keys_are_known_while_a_node_has_them() {
        let labelled =
            |name: &str, keys: &[&str]| keys.iter().fold(node(name), |node, key| node.label(key, "")).build();
        let mut nodes = Nodes::default();
        let a = nodes.insert(NodeInfo::new(Arc::new(labelled("a", &["x", "y"]))));
        let b = nodes.insert(NodeInfo::new(Arc::new(labelled("b", &["x"]))));
        let known = |nodes: &Nodes| {
            ["x", "y", "z"].into_iter().filter(|key| nodes.any_has_label(key)).collect::<String>()
        };
        assert_eq!(known(&nodes), "xy");
        nodes.set_node(b, Arc::new(labelled("b", &["x", "z"])));
        nodes.set_node(a, Arc::new(labelled("a", &["x"])));
        assert_eq!(known(&nodes), "xz");
        nodes.remove(b);
        assert_eq!(known(&nodes), "x");
        nodes.remove(a);
        assert_eq!(known(&nodes), "");
    }

    #[test]
    fn nodes_with_affinity_are_listed() {
        let affine = |name: &str, required: bool| {
            let terms = [PodAffinityTerm::default()];
            let affinity = PodAffinity {
                required_anti_affinity: terms.into_iter().filter(|_| required).collect(),
                ..PodAffinity::default()
            };
            Arc::new(pod(name).with_spec(|spec| spec.pod_affinity = Some(Box::new(affinity))).build())
        };
        let names = |nodes: &Nodes| {
            let listed = |list: Vec<&NodeInfo>| {
                list.iter().map(|info| info.name().to_string()).collect::<Vec<_>>().join(" ")
            };
            (listed(nodes.with_affinity().collect()), listed(nodes.with_required_anti_affinity().collect()))
        };
        let mut nodes = Nodes::default();
        let mut ghost = NodeInfo::new(Arc::new(node("a").build()));
        ghost.add_pod(affine("returned", true));
        let a = nodes.insert(ghost);
        let b = nodes.insert(NodeInfo::new(Arc::new(node("b").build())));
        assert_eq!(names(&nodes), ("a".into(), "a".into()));
        for pod in [affine("soft", false), affine("hard", true), Arc::new(pod("plain").build())] {
            nodes.update(b, |info| info.add_pod(pod));
        }
        assert_eq!(names(&nodes), ("a b".into(), "a b".into()));
        nodes.update(b, |info| info.remove_pod(&"hard".into()));
        assert_eq!(names(&nodes), ("a b".into(), "a".into()));
        nodes.set_node(b, Arc::new(node("b").label("new", "").build()));
        nodes.remove(a);
        assert_eq!(names(&nodes), ("b".into(), String::new()));
        nodes.update(b, |info| info.remove_pod(&"soft".into()));
        assert_eq!(names(&nodes), (String::new(), String::new()));
    }
}

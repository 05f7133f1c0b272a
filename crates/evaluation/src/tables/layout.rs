//! The order of nodes in a table: by domain, and within a domain in visiting order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::hash_seed::{HashSeed, SeededMap};
use supercargo_framework::{NodeIndex, Nodes};

use crate::cache::Cache;

/// Topology keys, sorted.
pub(super) type Keys = SmallVec<[Arc<str>; 2]>;

/// The maximum number of domains of a coarse key. Plugins run for each domain in every cycle.
const COARSE: usize = 64;

/// No leaf: the slot has no node.
const NONE: u32 = u32::MAX;

/// Nodes as leaves: the nodes of a domain are adjacent, in visiting order.
#[derive(Debug)]
pub(super) struct Layout {
    /// By leaf, the node.
    slots: Vec<u32>,
    /// By node, the leaf.
    leaves: Vec<u32>,
    /// By leaf, the position in visiting order.
    ranks: Vec<u32>,
    /// The leaves of each domain; a single domain if there are no keys.
    domains: Vec<Range<u32>>,
}

impl Layout {
    fn new(nodes: &Nodes, keys: &Keys, seed: &HashSeed) -> Self {
        let mut domains: Vec<Vec<u32>> = Vec::new();
        let mut known: SeededMap<SmallVec<[Option<&str>; 2]>, usize> = seed.map();
        for (rank, (_, node)) in nodes.iter().enumerate() {
            let labels = &node.node().labels;
            let values = keys.iter().map(|key| labels.get(key).map(|value| &**value)).collect();
            let domain = *known.entry(values).or_insert_with(|| {
                domains.push(Vec::new());
                domains.len() - 1
            });
            domains[domain].push(rank as u32);
        }
        Self::of_ranks(&domains, nodes.order(), nodes.columns().len())
    }

    /// `domains` lists the positions in visiting order of each domain's nodes.
    fn of_ranks(domains: &[Vec<u32>], order: &[NodeIndex], slot_count: usize) -> Self {
        let ranks: Vec<u32> = domains.iter().flatten().copied().collect();
        let slots: Vec<u32> = ranks.iter().map(|rank| order[*rank as usize].0).collect();
        let mut leaves = vec![NONE; slot_count];
        for (leaf, slot) in slots.iter().enumerate() {
            leaves[*slot as usize] = leaf as u32;
        }
        let mut start = 0;
        let domains = domains.iter().map(|domain| {
            let range = start..start + domain.len() as u32;
            start = range.end;
            range
        });
        let domains = domains.collect();
        Self { slots, leaves, ranks, domains }
    }

    /// A layout of nodes with these domains, in visiting order.
    #[cfg(test)]
    pub(super) fn of_domains(domains: &[usize]) -> Self {
        let order: Vec<NodeIndex> = (0..domains.len() as u32).map(NodeIndex).collect();
        let of = |domain| (0..domains.len() as u32).filter(move |node| domains[*node as usize] == domain);
        let mut known: Vec<usize> = domains.to_vec();
        known.sort_unstable();
        known.dedup();
        let ranks: Vec<Vec<u32>> = known.into_iter().map(|domain| of(domain).collect()).collect();
        Self::of_ranks(&ranks, &order, domains.len())
    }

    /// By leaf, the node.
    pub(super) fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// The leaf of a node; `None` if the node does not exist.
    pub(super) fn leaf(&self, index: NodeIndex) -> Option<usize> {
        self.leaves.get(index.0 as usize).filter(|leaf| **leaf != NONE).map(|leaf| *leaf as usize)
    }

    /// The node at a leaf.
    pub(super) fn node(&self, leaf: usize) -> NodeIndex {
        NodeIndex(self.slots[leaf])
    }

    /// The position of a leaf in visiting order.
    pub(super) fn rank(&self, leaf: usize) -> u32 {
        self.ranks[leaf]
    }

    /// The leaves of each domain.
    pub(super) fn domains(&self) -> impl ExactSizeIterator<Item = Range<usize>> {
        self.domains.iter().map(|range| range.start as usize..range.end as usize)
    }

    /// The nodes of a domain.
    pub(super) fn domain_slots(&self, domain: usize) -> &[u32] {
        let range = &self.domains[domain];
        &self.slots[range.start as usize..range.end as usize]
    }

    /// The approximate size in bytes.
    fn bytes(&self) -> usize {
        let slots = self.slots.capacity() + self.leaves.capacity() + self.ranks.capacity();
        slots * size_of::<u32>() + self.domains.capacity() * size_of::<Range<u32>>() + size_of::<Self>()
    }

    /// The domain of a leaf, and its position there.
    pub(super) fn place(&self, leaf: usize) -> (usize, usize) {
        let domain = self.domains.partition_point(|range| range.end as usize <= leaf);
        (domain, leaf - self.domains[domain].start as usize)
    }
}

/// The versions of nodes and labels that something was built from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Version {
    order: u64,
    labels: u64,
}

/// The nodes of each domain of one key.
type ByValue = SeededMap<Arc<str>, SmallVec<[NodeIndex; 2]>>;

/// The domains of one key.
#[derive(Debug)]
struct Domains {
    by_value: ByValue,
    bytes: usize,
    /// Whether they were read since [`Topology::drop_unused`].
    is_used: bool,
}

impl Domains {
    fn new(nodes: &Nodes, key: &str, seed: &HashSeed) -> Self {
        let mut by_value: ByValue = seed.map();
        for (index, node) in nodes.iter() {
            if let Some(value) = node.node().labels.get(key) {
                by_value.entry(Arc::clone(value)).or_default().push(index);
            }
        }
        let spilled = by_value.values().filter(|nodes| nodes.spilled());
        let spilled: usize = spilled.map(|nodes| nodes.capacity() * size_of::<NodeIndex>()).sum();
        let entry = size_of::<(Arc<str>, SmallVec<[NodeIndex; 2]>)>();
        let bytes = size_of::<Self>() + key.len() + by_value.capacity() * entry + spilled;
        Self { by_value, bytes, is_used: true }
    }
}

/// Layouts and domains, shared by all tables. Rebuilt when nodes or their labels change.
#[derive(Debug)]
pub(super) struct Topology {
    seed: HashSeed,
    version: Version,
    /// The maximum number of domains of a coarse key.
    pub(super) coarse: usize,
    layouts: Vec<(Keys, Arc<Layout>)>,
    /// Layouts of earlier versions, which tables hold until they are rebuilt.
    outdated: Vec<Arc<Layout>>,
    /// By key. Ordered, because anyone who creates pods chooses the keys.
    domains: BTreeMap<Arc<str>, Domains>,
    /// The size of new layouts and domains in bytes.
    added: usize,
}

impl Topology {
    /// Nothing is read yet.
    pub(super) fn new(seed: HashSeed) -> Self {
        Self {
            seed,
            version: Version::default(),
            coarse: COARSE,
            layouts: Vec::new(),
            outdated: Vec::new(),
            domains: BTreeMap::new(),
            added: 0,
        }
    }

    /// Drops what is out of date.
    pub(super) fn refresh(&mut self, cache: &Cache) {
        let version = Version { order: cache.order_version(), labels: cache.labels_version() };
        if self.version == version {
            return;
        }
        let is_current = |keys: &Keys| self.version.order == version.order && keys.is_empty();
        let outdated = self.layouts.extract_if(.., |(keys, _)| !is_current(keys));
        self.outdated.extend(outdated.map(|(_, layout)| layout));
        self.outdated.retain(is_held);
        if self.version.labels != version.labels {
            self.domains.clear();
        }
        self.version = version;
    }

    /// The nodes by the domains of these keys.
    pub(super) fn layout(&mut self, nodes: &Nodes, keys: &Keys) -> Arc<Layout> {
        if let Some((_, layout)) = self.layouts.iter().find(|(known, _)| known == keys) {
            return Arc::clone(layout);
        }
        let layout = Arc::new(Layout::new(nodes, keys, &self.seed));
        self.added += layout.bytes() + text_bytes(keys);
        self.layouts.push((keys.clone(), Arc::clone(&layout)));
        layout
    }

    fn by_value(&mut self, nodes: &Nodes, key: &Arc<str>) -> &ByValue {
        let domains = self.domains.entry(Arc::clone(key)).or_insert_with(|| {
            let domains = Domains::new(nodes, key, &self.seed);
            self.added += domains.bytes;
            domains
        });
        domains.is_used = true;
        &domains.by_value
    }

    /// Drops layouts that no table holds, and domains that nothing has read since the last call.
    pub(super) fn drop_unused(&mut self) {
        self.drop_layouts();
        self.domains.retain(|_, domains| std::mem::take(&mut domains.is_used));
    }

    /// Drops layouts that no table holds.
    pub(super) fn drop_layouts(&mut self) {
        self.layouts.retain(|(_, layout)| is_held(layout));
        self.layouts.shrink_to_fit();
        self.outdated.retain(is_held);
    }

    /// Drops all domains. They are made again when they are read.
    pub(super) fn drop_domains(&mut self) {
        self.domains.clear();
    }

    /// Whether the key has few domains.
    pub(super) fn is_coarse(&mut self, nodes: &Nodes, key: &Arc<str>) -> bool {
        self.by_value(nodes, key).len() <= self.coarse
    }

    /// The nodes that have this value of the key.
    pub(super) fn domain(&mut self, nodes: &Nodes, key: &Arc<str>, value: &str) -> &[NodeIndex] {
        self.by_value(nodes, key).get(value).map_or(&[], SmallVec::as_slice)
    }

    /// The size in bytes of the layouts and domains that were added since the last call.
    pub(super) fn take_added(&mut self) -> usize {
        std::mem::take(&mut self.added)
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let layouts = self.layouts.iter().map(|(keys, layout)| text_bytes(keys) + layout.bytes());
        let outdated = self.outdated.iter().map(|layout| layout.bytes());
        layouts.chain(outdated).sum::<usize>()
            + self.domains.values().map(|domains| domains.bytes).sum::<usize>()
    }
}

/// Whether a table holds the layout.
fn is_held(layout: &Arc<Layout>) -> bool {
    Arc::strong_count(layout) > 1
}

/// The size of texts in bytes. Texts that others share count in full.
pub(super) fn text_bytes<'a>(texts: impl IntoIterator<Item = &'a Arc<str>>) -> usize {
    texts.into_iter().map(|text| text.len() + size_of::<Arc<str>>()).sum()
}

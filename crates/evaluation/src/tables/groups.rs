//! Groups of feasible nodes with equal scores, for scores that are normalized over all nodes. Only
//! the best node of each group needs to be compared.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use supercargo_framework::NodeIndex;

use super::layout::Layout;
use super::rule::Rule;
use super::tournament::{OUT, Tournament};
use super::view::View;

/// The values by which plugins with scores normalized over all nodes distinguish the nodes of a
/// domain: one per plugin.
pub(super) type Class = SmallVec<[i64; 2]>;

/// The class of each node, by plugin.
pub(super) type RowsByPlugin<'a> = SmallVec<[&'a [i64]; 2]>;

/// The maximum number of groups per domain of a coarse key. With more, comparing nodes costs no
/// more.
const GROUPS_PER_DOMAIN: usize = 16;

/// A node in a group. The best comes first: the greatest sum, then the first in visiting order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Competitor {
    sum: Reverse<i64>,
    pub(super) rank: u32,
    leaf: u32,
}

impl Competitor {
    /// The sum of the scores by node.
    pub(super) fn sum(&self) -> i64 {
        self.sum.0
    }

    pub(super) fn leaf(&self) -> usize {
        self.leaf as usize
    }
}

/// The nodes of a domain and a class. They differ only in their sums.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) domain: usize,
    pub(super) class: Class,
    nodes: BTreeSet<Competitor>,
}

impl Group {
    /// The best node; `None` if the group is empty.
    pub(super) fn best(&self) -> Option<&Competitor> {
        self.nodes.first()
    }
}

/// All groups.
#[derive(Debug)]
pub(super) struct Groups {
    all: Vec<Group>,
    numbers: FxHashMap<(usize, Class), usize>,
    /// By leaf, the number of its group and its sum; [`OUT`] if it is in none.
    members: Vec<(u32, i64)>,
    /// The maximum number of groups.
    most: usize,
}

impl Groups {
    /// Groups all nodes; `None` if there are too many groups.
    fn new(layout: &Layout, sums: &[Tournament], classes: &RowsByPlugin<'_>, most: usize) -> Option<Self> {
        let members = vec![(0, OUT); layout.slots().len()];
        let mut made = Self { all: Vec::new(), numbers: FxHashMap::default(), members, most };
        let mut nodes: Vec<Vec<Competitor>> = Vec::new();
        for (domain, (leaves, sums)) in layout.domains().zip(sums).enumerate() {
            for (leaf, sum) in leaves.zip(sums.leaves()).filter(|(_, sum)| **sum != OUT) {
                let group = made.number(domain, class(layout, leaf, classes))?;
                nodes.resize(made.all.len(), Vec::new());
                nodes[group].push(competitor(layout, leaf, *sum));
                made.members[leaf] = (group as u32, *sum);
            }
        }
        // Building a set at once is cheaper than inserting one by one.
        for (group, nodes) in made.all.iter_mut().zip(nodes) {
            group.nodes = nodes.into_iter().collect();
        }
        Some(made)
    }

    /// The number of a group, which is created if needed; `None` if there are too many.
    fn number(&mut self, domain: usize, class: Class) -> Option<usize> {
        let key = (domain, class);
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        let number = self.all.len();
        if number == self.most {
            return None;
        }
        self.all.push(Group { domain, class: key.1.clone(), nodes: BTreeSet::new() });
        self.numbers.insert(key, number);
        Some(number)
    }

    /// Moves a node to its current group; `false` if there are too many groups, empty ones
    /// included.
    fn set(
        &mut self,
        layout: &Layout,
        sums: &[Tournament],
        classes: &RowsByPlugin<'_>,
        index: NodeIndex,
    ) -> bool {
        let Some(leaf) = layout.leaf(index) else { return true };
        let (domain, place) = layout.place(leaf);
        let sum = sums[domain].leaves()[place];
        let (group, old) = std::mem::replace(&mut self.members[leaf], (0, OUT));
        if old != OUT {
            self.all[group as usize].nodes.remove(&competitor(layout, leaf, old));
        }
        if sum == OUT {
            return true;
        }
        let Some(group) = self.number(domain, class(layout, leaf, classes)) else { return false };
        self.all[group].nodes.insert(competitor(layout, leaf, sum));
        self.members[leaf] = (group as u32, sum);
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.all.iter()
    }

    fn bytes(&self) -> usize {
        let nodes: usize = self.all.iter().map(|group| group.nodes.len() * size_of::<Competitor>()).sum();
        let groups = self.all.len() * (size_of::<Group>() + size_of::<(usize, Class)>());
        groups + nodes + self.members.capacity() * size_of::<(u32, i64)>()
    }
}

fn competitor(layout: &Layout, leaf: usize, sum: i64) -> Competitor {
    Competitor { sum: Reverse(sum), rank: layout.rank(leaf), leaf: leaf as u32 }
}

fn class(layout: &Layout, leaf: usize, classes: &RowsByPlugin<'_>) -> Class {
    let slot = layout.slots()[leaf] as usize;
    classes.iter().map(|rows| rows.get(slot).copied().unwrap_or_default()).collect()
}

/// The groups of a table.
#[derive(Debug, Default)]
pub(super) enum Grouping {
    /// To be built when needed.
    #[default]
    Stale,
    Kept(Groups),
    /// There are too many groups.
    TooMany,
}

impl Grouping {
    /// Updates the groups of these nodes.
    pub(super) fn follow(
        &mut self,
        view: &mut View<'_>,
        layout: &Layout,
        sums: &[Tournament],
        classes: &RowsByPlugin<'_>,
        changed: &[NodeIndex],
    ) {
        let before = self.bytes();
        if let Self::Kept(groups) = self
            && !changed.is_empty()
            && view.rules.follow(Rule::Group)
            && !changed.iter().all(|index| groups.set(layout, sums, classes, *index))
        {
            *self = Self::Stale;
        }
        if matches!(self, Self::Stale) {
            let most = view.topology.coarse * GROUPS_PER_DOMAIN;
            *self = Groups::new(layout, sums, classes, most).map_or(Self::TooMany, Self::Kept);
        }
        view.gain(self.bytes().saturating_sub(before));
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Kept(groups) => groups.bytes(),
            Self::Stale | Self::TooMany => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A node: its sum, `None` if it is not feasible, and its class.
    type Node = (Option<i64>, i64);

    fn node() -> impl Strategy<Value = Node> {
        (prop::option::weighted(0.8, 0..3_i64), 0..3_i64)
    }

    /// The best node of each domain and class, by comparing all nodes.
    fn bests(domains: &[usize], nodes: &[Node]) -> Vec<(usize, i64, usize)> {
        let mut bests: Vec<(usize, i64, usize)> = Vec::new();
        for (slot, (sum, class)) in nodes.iter().enumerate() {
            let Some(sum) = sum else { continue };
            match bests.iter_mut().find(|(domain, known, _)| *domain == domains[slot] && known == class) {
                Some((.., best)) if nodes[*best].0 < Some(*sum) => *best = slot,
                Some(_) => {}
                None => bests.push((domains[slot], *class, slot)),
            }
        }
        bests.sort_unstable();
        bests
    }

    proptest! {
        /// The best of each group is the best of its nodes, and the first among equals. Groups are
        /// dropped exactly when there are too many.
        #[test]
        fn the_best_of_each_group_is_known(
            start in prop::collection::vec((0..3_usize, node()), 1..12),
            changes in prop::collection::vec((0..12_usize, node()), 0..12),
            most in 3..10_usize,
        ) {
            let domains: Vec<usize> = start.iter().map(|(domain, _)| *domain).collect();
            let mut nodes: Vec<Node> = start.iter().map(|(_, node)| *node).collect();
            let layout = Layout::of_domains(&domains);
            let sums = |nodes: &[Node]| -> Vec<Tournament> {
                let sum = |leaf: usize| nodes[layout.node(leaf).0 as usize].0.unwrap_or(OUT);
                layout.domains().map(|leaves| Tournament::new(leaves.map(sum).collect())).collect()
            };
            let classes = |nodes: &[Node]| nodes.iter().map(|(_, class)| *class).collect::<Vec<_>>();
            let made = |nodes: &[Node]| {
                Groups::new(&layout, &sums(nodes), &RowsByPlugin::from_slice(&[&classes(nodes)]), most)
            };
            let found = |groups: &Groups| {
                let of_group = |group: &Group| {
                    let slot = layout.node(group.best()?.leaf()).0 as usize;
                    Some((domains[slot], group.class[0], slot))
                };
                let mut found: Vec<_> = groups.iter().filter_map(of_group).collect();
                found.sort_unstable();
                found
            };
            let mut kept = made(&nodes);
            for (slot, node) in changes {
                let slot = slot % nodes.len();
                nodes[slot] = node;
                let expected = bests(&domains, &nodes);
                let rows = classes(&nodes);
                let index = NodeIndex(slot as u32);
                kept = kept.and_then(|mut groups| {
                    let fits = groups.set(&layout, &sums(&nodes), &RowsByPlugin::from_slice(&[&rows]), index);
                    fits.then_some(groups)
                });
                if kept.is_none() {
                    kept = made(&nodes);
                }
                prop_assert_eq!(kept.is_some(), expected.len() <= most);
                if let Some(groups) = &kept {
                    prop_assert_eq!(found(groups), expected);
                }
            }
        }
    }
}

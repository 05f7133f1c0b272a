//! Feasible nodes that score alike, where scores are normalised over all nodes: as many to compare as there are groups.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use supercargo_framework::NodeIndex;

use super::answers::View;
use super::layout::Layout;
use super::rule::Rule;
use super::tournament::{OUT, Tournament};

/// What the plugins whose scores are normalised over all nodes tell nodes of a domain apart by: one number for each.
pub(super) type Class = SmallVec<[i64; 2]>;

/// By plugin and node, the node's class.
pub(super) type RowsByPlugin<'a> = SmallVec<[&'a [i64]; 2]>;

/// So many groups for each domain that a coarse key may have: more are no less work than the nodes themselves.
const GROUPS_PER_DOMAIN: usize = 16;

/// A node in the race, the best first: the greatest sum, then the first in visiting order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Competitor {
    sum: Reverse<i64>,
    pub(super) rank: u32,
    leaf: u32,
}

impl Competitor {
    /// What is scored so far.
    pub(super) fn sum(&self) -> i64 {
        self.sum.0
    }

    pub(super) fn leaf(&self) -> usize {
        self.leaf as usize
    }
}

/// The nodes of a domain and a class, which differ in their sums alone.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) domain: usize,
    pub(super) class: Class,
    nodes: BTreeSet<Competitor>,
}

impl Group {
    /// The best node, if any is left.
    pub(super) fn best(&self) -> Option<&Competitor> {
        self.nodes.first()
    }
}

/// All groups.
#[derive(Debug)]
pub(super) struct Groups {
    groups: Vec<Group>,
    numbers: FxHashMap<(usize, Class), usize>,
    /// By leaf, the number of its group and its sum, which is [`OUT`] where it is in none.
    members: Vec<(u32, i64)>,
    /// There are no more than so many.
    most: usize,
}

impl Groups {
    /// Puts all nodes into groups; `None` when there are too many groups.
    fn new(layout: &Layout, sums: &[Tournament], classes: &RowsByPlugin<'_>, most: usize) -> Option<Self> {
        let members = vec![(0, OUT); layout.slots().len()];
        let mut made = Self { groups: Vec::new(), numbers: FxHashMap::default(), members, most };
        let mut nodes: Vec<Vec<Competitor>> = Vec::new();
        for (domain, (leaves, sums)) in layout.domains().zip(sums).enumerate() {
            for (leaf, sum) in leaves.zip(sums.leaves()).filter(|(_, sum)| **sum != OUT) {
                let group = made.number(domain, class(layout, leaf, classes))?;
                nodes.resize(made.groups.len(), Vec::new());
                nodes[group].push(competitor(layout, leaf, *sum));
                made.members[leaf] = (group as u32, *sum);
            }
        }
        // At once, which costs less than one by one.
        for (group, nodes) in made.groups.iter_mut().zip(nodes) {
            group.nodes = nodes.into_iter().collect();
        }
        Some(made)
    }

    /// The number of a group; `None` when it would be one too many.
    fn number(&mut self, domain: usize, class: Class) -> Option<usize> {
        let key = (domain, class);
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        let number = self.groups.len();
        if number == self.most {
            return None;
        }
        self.groups.push(Group { domain, class: key.1.clone(), nodes: BTreeSet::new() });
        self.numbers.insert(key, number);
        Some(number)
    }

    /// Moves a node to the group where it belongs now; `false` when there are too many groups, empty ones included.
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
            self.groups[group as usize].nodes.remove(&competitor(layout, leaf, old));
        }
        if sum == OUT {
            return true;
        }
        let Some(group) = self.number(domain, class(layout, leaf, classes)) else { return false };
        self.groups[group].nodes.insert(competitor(layout, leaf, sum));
        self.members[leaf] = (group as u32, sum);
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }

    fn bytes(&self) -> usize {
        let nodes: usize = self.groups.iter().map(|group| group.nodes.len() * size_of::<Competitor>()).sum();
        let groups = self.groups.len() * (size_of::<Group>() + size_of::<(usize, Class)>());
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
    /// To be made, where they are of use.
    #[default]
    Stale,
    Kept(Groups),
    /// There would be too many.
    TooMany,
}

impl Grouping {
    /// Takes what has become of these nodes.
    pub(super) fn follow(
        &mut self,
        view: &mut View<'_>,
        layout: &Layout,
        sums: &[Tournament],
        classes: &RowsByPlugin<'_>,
        changed: &[NodeIndex],
    ) {
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
    }

    /// How many bytes they take, roughly.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Kept(groups) => groups.bytes(),
            Self::Stale | Self::TooMany => 0,
        }
    }
}

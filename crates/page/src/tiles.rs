//! Tiles: one per node, or one per group of nodes in a large cluster.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most nodes that have a tile each. In a larger cluster a tile stands for the nodes of a pool
/// in a zone that have about the same load.
pub const MOST_TILES: usize = 5_000;
/// The most pools in zones with a block of tiles each. The smallest of more share one per zone, or
/// one in all if there are as many zones.
const MOST_BLOCKS: usize = 100;
/// The pool of those that share a block. No label has such a value.
const OTHERS: &str = "(other pools)";
/// The steps of a load: half a percent each.
const STEPS: i64 = 200;
/// The steps of a load in a tile's group: 10 % each.
const BAND: u8 = 20;

/// A node as the page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its zone; empty if it has none.
    pub zone: Arc<str>,
    /// Its pool; empty if it has none.
    pub pool: Arc<str>,
    /// The requested share of its CPU. See [`share`].
    pub cpu: u8,
    /// The requested share of its memory.
    pub memory: u8,
    /// The number of its pods.
    pub pods: u32,
    /// Whether it is cordoned.
    pub is_cordoned: bool,
}

/// What a tile shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The requested share of CPU; the mean of several nodes.
    pub cpu: u8,
    /// The requested share of memory; the mean of several nodes.
    pub memory: u8,
    /// The number of pods.
    pub pods: u32,
    /// The number of nodes that it stands for.
    pub nodes: u32,
    /// The number of cordoned ones.
    pub cordoned: u32,
}

/// A tile. Tiles are ordered by zone, pool and name, so a tile keeps its place among the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The zone; empty if there is none.
    pub zone: Arc<str>,
    /// The pool; empty if there is none.
    pub pool: Arc<str>,
    /// The name of the node, or the loads of the group.
    pub name: Arc<str>,
    /// What it shows.
    pub load: Load,
}

impl Tile {
    /// The order of tiles; equal if they are the same one.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        // Most texts that are equal are shared.
        let order = |one: &Arc<str>, other: &Arc<str>| {
            if Arc::ptr_eq(one, other) { Ordering::Equal } else { one.cmp(other) }
        };
        order(&self.zone, &other.zone)
            .then_with(|| order(&self.pool, &other.pool))
            .then_with(|| order(&self.name, &other.name))
    }
}

/// The requested share in half percents. More than 100 % is possible. Nothing of nothing is 0.
pub fn share(requested: i64, allocatable: i64) -> u8 {
    let (requested, allocatable) = (requested.max(0), allocatable.max(0));
    let steps = (i128::from(requested) * i128::from(STEPS)).checked_div(i128::from(allocatable));
    let full = if requested == 0 { 0 } else { STEPS.into() };
    u8::try_from(steps.unwrap_or(full)).unwrap_or(u8::MAX)
}

/// The tiles of these nodes, in order, and whether they are groups.
pub(crate) fn tiles(mut nodes: Vec<Node>) -> (Vec<Tile>, bool) {
    merge_blocks(&mut nodes);
    let is_grouped = nodes.len() > MOST_TILES;
    let mut tiles = if is_grouped { groups(nodes) } else { nodes.into_iter().map(tile).collect() };
    tiles.sort_by(Tile::order);
    (tiles, is_grouped)
}

/// Leaves at most twice [`MOST_BLOCKS`]: any label may name a pool, even one per node.
fn merge_blocks(nodes: &mut [Node]) {
    let mut sizes: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for node in &*nodes {
        *sizes.entry((&node.zone, &node.pool)).or_default() += 1;
    }
    if sizes.len() <= MOST_BLOCKS {
        return;
    }
    let zones = sizes.keys().map(|(zone, _)| zone).collect::<BTreeSet<_>>().len();
    let mut largest: Vec<_> = sizes.into_iter().collect();
    largest.sort_by_key(|(_, nodes)| Reverse(*nodes));
    let kept = largest.into_iter().take(MOST_BLOCKS).map(|((zone, pool), _)| (zone.into(), pool.into()));
    let (kept, others) = (kept.collect::<BTreeSet<(Arc<str>, Arc<str>)>>(), Arc::from(OTHERS));
    for node in nodes {
        if !kept.contains(&(Arc::clone(&node.zone), Arc::clone(&node.pool))) {
            node.pool = Arc::clone(&others);
            if zones > MOST_BLOCKS {
                node.zone = Arc::default();
            }
        }
    }
}

fn tile(Node { name, zone, pool, cpu, memory, pods, is_cordoned }: Node) -> Tile {
    Tile { zone, pool, name, load: Load { cpu, memory, pods, nodes: 1, cordoned: is_cordoned.into() } }
}

/// Sums of loads.
#[derive(Default)]
struct Sums {
    cpu: u64,
    memory: u64,
    pods: u32,
    nodes: u32,
    cordoned: u32,
}

fn groups(nodes: Vec<Node>) -> Vec<Tile> {
    let mut groups: BTreeMap<(Arc<str>, Arc<str>, u8), Sums> = BTreeMap::new();
    for node in nodes {
        let band = (node.cpu / BAND).min((STEPS as u8 - 1) / BAND);
        let sums = groups.entry((node.zone, node.pool, band)).or_default();
        sums.cpu += u64::from(node.cpu);
        sums.memory += u64::from(node.memory);
        sums.pods = sums.pods.saturating_add(node.pods);
        sums.nodes += 1;
        sums.cordoned += u32::from(node.is_cordoned);
    }
    let tile = |((zone, pool, band), sums): ((Arc<str>, Arc<str>, u8), Sums)| {
        // Not zero: a group has a node. A mean of bytes is a byte.
        let mean = |sum: u64| (sum / u64::from(sums.nodes)) as u8;
        let load = Load {
            cpu: mean(sums.cpu),
            memory: mean(sums.memory),
            pods: sums.pods,
            nodes: sums.nodes,
            cordoned: sums.cordoned,
        };
        let from = u32::from(band) * 10;
        Tile { zone, pool, name: format!("{from}–{} % CPU", from + 10).into(), load }
    };
    groups.into_iter().map(tile).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_half_percents() {
        assert_eq!([share(0, 4), share(1, 4), share(4, 4), share(5, 4)], [0, 50, 200, 250]);
        assert_eq!([share(9, 4), share(i64::MAX, 1), share(i64::MAX, i64::MAX)], [255, 255, 200]);
        assert_eq!([share(0, 0), share(1, 0), share(-1, 4), share(1, -4)], [0, 200, 0, 200]);
    }

    fn node(index: usize, cpu: u8) -> Node {
        let zone = ["a", "b"][index % 2].into();
        let (name, pool) = (format!("n{index}").into(), "".into());
        Node { name, zone, pool, cpu, memory: 7, pods: 3, is_cordoned: index.is_multiple_of(5) }
    }

    #[test]
    fn a_large_cluster_has_groups_that_add_up() {
        let nodes: Vec<Node> = (0..=MOST_TILES).map(|i| node(i, (i % 256) as u8)).collect();
        let (tiles, is_grouped) = tiles(nodes.clone());
        assert!(is_grouped && tiles.len() == 20, "{}", tiles.len());
        let sum = |of: fn(&Load) -> u32| tiles.iter().map(|tile| of(&tile.load)).sum::<u32>() as usize;
        assert_eq!(sum(|load| load.nodes), nodes.len());
        assert_eq!(sum(|load| load.pods), 3 * nodes.len());
        assert_eq!(sum(|load| load.cordoned), nodes.iter().filter(|node| node.is_cordoned).count());
        assert_eq!(&*tiles[9].name, "90–100 % CPU");
        assert!(tiles[3].load.cpu / BAND == 3 && tiles[3].load.memory == 7);
    }

    #[test]
    fn the_smallest_of_many_pools_share_a_block() {
        let blocks = |zones: usize| {
            let node = |i: usize| Node {
                zone: format!("z{}", i % zones).into(),
                pool: format!("p{}", i.min(299)).into(),
                ..node(0, 1)
            };
            let (tiles, _) = tiles((0..400).map(node).collect());
            let mut blocks: Vec<_> =
                tiles.iter().map(|tile| (tile.zone.clone(), tile.pool.clone())).collect();
            blocks.dedup();
            let others = blocks.iter().filter(|(_, pool)| &**pool == OTHERS).count();
            (blocks.len(), others, blocks.iter().any(|(_, pool)| &**pool == "p299"))
        };
        assert_eq!(blocks(1), (MOST_BLOCKS + 1, 1, true));
        assert_eq!(blocks(2), (MOST_BLOCKS + 2, 2, true));
        assert_eq!(blocks(MOST_BLOCKS + 1), (MOST_BLOCKS + 1, 1, true));
    }

    proptest! {
        /// Whatever the order of the nodes, and whatever else there is.
        #[test]
        fn tiles_keep_their_order(mut loads in proptest::collection::vec(0..=255_u8, 1..40), cut in 0..40_usize) {
            let all: Vec<Node> = loads.drain(..).enumerate().map(|(i, cpu)| node(i, cpu)).collect();
            let names = |nodes: Vec<Node>| tiles(nodes).0.into_iter().map(|tile| tile.name).collect::<Vec<_>>();
            let mut turned = all.clone();
            turned.rotate_left(cut % all.len());
            prop_assert_eq!(names(turned), names(all.clone()));
            let left: Vec<Node> = all.iter().filter(|node| node.cpu % 3 != 0).cloned().collect();
            let mut expected = names(all.clone());
            expected.retain(|name| left.iter().any(|node| node.name == *name));
            prop_assert_eq!(names(left), expected);
        }
    }
}

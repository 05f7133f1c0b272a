//! The devices of the cluster, prepared for questions about one node.

mod reach;
mod slice;

use std::collections::BTreeMap;
use std::sync::Arc;

use supercargo_framework::hash_seed::{HashSeed, SeededMap};
use supercargo_framework::objects::{DeviceTaintRule, Object, ObjectBody as _, ResourceSlice};

use crate::allocated::PoolId;
pub use reach::Reach;
pub(crate) use slice::{Consumption, Slice, have_unique_names, values_of};

/// All ResourceSlices, by node and by pool, with the taints of all DeviceTaintRules laid over them.
///
/// A question about a node reads the slices that name this node, and those that name none. Cloning
/// copies pointers.
#[derive(Clone, Debug)]
pub struct Inventory {
    seed: HashSeed,
    slices: SeededMap<Arc<str>, Arc<Slice>>,
    /// Slices with `nodeName`, by node.
    on_nodes: SeededMap<Arc<str>, Slices>,
    /// All other ones.
    shared: Slices,
    /// Slices with counters and `nodeName`: the allocator `stable` uses them on every node.
    counters_on_nodes: Slices,
    pools: SeededMap<PoolId, BTreeMap<i64, Generation>>,
    rules: BTreeMap<Arc<str>, Arc<Object>>,
    last_id: u64,
}

/// Slices in the order of drivers, pools and names.
pub(crate) type Slices = BTreeMap<(PoolId, Arc<str>), Arc<Slice>>;

/// The slices of one generation of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Generation {
    /// By name.
    pub(crate) slices: BTreeMap<Arc<str>, Arc<Slice>>,
    /// How many use compatibility groups.
    pub(crate) with_groups: usize,
    /// How many have counters or devices that consume some.
    pub(crate) with_counters: usize,
}

impl Inventory {
    /// An empty inventory.
    pub fn new(seed: HashSeed) -> Self {
        Self {
            slices: seed.map(),
            on_nodes: seed.map(),
            shared: Slices::new(),
            counters_on_nodes: Slices::new(),
            pools: seed.map(),
            rules: BTreeMap::new(),
            last_id: 0,
            seed,
        }
    }

    /// Adds a ResourceSlice, or replaces it by name. Objects of other kinds are ignored.
    pub fn insert(&mut self, object: &Arc<Object>) {
        let Some(spec) = ResourceSlice::of(&object.body) else { return };
        self.remove(&object.key);
        self.last_id += 1;
        let taints = self.taints_by_rules(spec);
        self.put(Arc::new(Slice::new(Arc::clone(object), spec, self.last_id, taints)));
    }

    /// Removes a ResourceSlice by name.
    pub fn remove(&mut self, name: &str) {
        let Some(slice) = self.slices.remove(name) else { return };
        let place = slice.place();
        if let Some(node) = slice.node_name() {
            if let Some(slices) = self.on_nodes.get_mut(node) {
                slices.remove(&place);
                if slices.is_empty() {
                    self.on_nodes.remove(node);
                }
            }
        } else {
            self.shared.remove(&place);
        }
        self.counters_on_nodes.remove(&place);
        let (pool, name) = place;
        let Some(generations) = self.pools.get_mut(&pool) else { return };
        if let Some(generation) = generations.get_mut(&slice.spec().generation) {
            generation.slices.remove(&name);
            generation.with_groups -= usize::from(slice.uses_groups);
            generation.with_counters -= usize::from(slice.uses_counters);
        }
        generations.retain(|_, generation| !generation.slices.is_empty());
        if generations.is_empty() {
            self.pools.remove(&pool);
        }
    }

    fn put(&mut self, slice: Arc<Slice>) {
        let (pool, name) = slice.place();
        let place = (pool.clone(), Arc::clone(&name));
        if let Some(node) = slice.node_name() {
            if !slice.spec().shared_counters.is_empty() {
                self.counters_on_nodes.insert(place.clone(), Arc::clone(&slice));
            }
            self.on_nodes.entry(Arc::clone(node)).or_default().insert(place, Arc::clone(&slice));
        } else {
            self.shared.insert(place, Arc::clone(&slice));
        }
        let generation = self.pools.entry(pool).or_default().entry(slice.spec().generation).or_default();
        generation.with_groups += usize::from(slice.uses_groups);
        generation.with_counters += usize::from(slice.uses_counters);
        generation.slices.insert(Arc::clone(&name), Arc::clone(&slice));
        self.slices.insert(name, slice);
    }

    /// Adds a DeviceTaintRule, or replaces it by name. Objects of other kinds are ignored.
    /// Returns whether it says something else than before: most updates of rules are of their
    /// status.
    pub fn insert_rule(&mut self, object: &Arc<Object>) -> bool {
        let Some(new) = DeviceTaintRule::of(&object.body) else { return false };
        let old = self.rules.insert(Arc::clone(&object.key), Arc::clone(object));
        let has_changed = old.as_ref().and_then(|old| DeviceTaintRule::of(&old.body)) != Some(new);
        if has_changed {
            self.taint_again(old.as_ref().into_iter().chain([object]));
        }
        has_changed
    }

    /// Removes a DeviceTaintRule by name.
    pub fn remove_rule(&mut self, name: &str) {
        let old = self.rules.remove(name);
        self.taint_again(old.as_ref().into_iter());
    }

    /// Lays the rules again over the slices that one of these may concern.
    fn taint_again<'a>(&mut self, rules: impl Iterator<Item = &'a Arc<Object>> + Clone) {
        let concerns = |slice: &Arc<Slice>| rules.clone().any(|rule| slice::concerns(rule, slice.spec()));
        let slices: Vec<_> = self.slices.values().filter(|slice| concerns(slice)).cloned().collect();
        for slice in slices {
            let tainted = Arc::new(slice.with_taints(self.taints_by_rules(slice.spec())));
            self.remove(slice.name());
            self.put(tainted);
        }
    }

    /// The rules' taints that keep pods off, for each device.
    fn taints_by_rules(&self, spec: &ResourceSlice) -> slice::Taints {
        slice::taints(spec, self.rules.values())
    }

    /// The number of ResourceSlices.
    pub fn len(&self) -> usize {
        self.slices.len()
    }

    /// Whether there is no ResourceSlice.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    pub(crate) const fn seed(&self) -> &HashSeed {
        &self.seed
    }

    pub(crate) fn on_node(&self, node: &str) -> Option<&Slices> {
        self.on_nodes.get(node)
    }

    pub(crate) const fn shared(&self) -> &Slices {
        &self.shared
    }

    pub(crate) const fn counters_on_nodes(&self) -> &Slices {
        &self.counters_on_nodes
    }

    /// The slices of the newest generation of each pool, in any order.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &Arc<Slice>> {
        let newest = self.pools.values().filter_map(BTreeMap::last_key_value);
        newest.flat_map(|(_, generation)| generation.slices.values())
    }

    pub(crate) fn generations(&self, pool: &PoolId) -> Option<&BTreeMap<i64, Generation>> {
        self.pools.get(pool)
    }
}

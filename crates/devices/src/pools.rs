//! The pools that have devices for one node.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::NodeRecord;
use supercargo_framework::objects::DevicePlace;

use crate::allocated::PoolId;
use crate::counters;
use crate::features::Features;
use crate::inventory::{Generation, Inventory, Slice, have_unique_names};
use crate::node_match::includes;

/// A pool, as seen from a node.
#[derive(Debug)]
pub(crate) struct Pool<'a> {
    pub(crate) id: &'a PoolId,
    pub(crate) state: PoolState,
    /// The slices with devices for the node, by name.
    pub(crate) slices: List<'a>,
    /// The slices with counters for the node.
    counters: List<'a>,
    /// All slices of the generation, if those for the node are not the whole pool.
    whole: Option<&'a Generation>,
}

pub(crate) type List<'a> = SmallVec<[&'a Arc<Slice>; 2]>;

/// The pools for a node. Most nodes see one.
pub(crate) type Pools<'a> = SmallVec<[Pool<'a>; 1]>;

/// Whether devices of a pool can be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolState {
    Usable,
    /// The driver is publishing it.
    Incomplete,
    Invalid,
}

/// The pools for a node, in the order of their devices. Same as upstream's `GatherPools`.
pub(crate) fn gather<'a>(
    inventory: &'a Inventory,
    node: &NodeRecord,
    features: Features,
) -> Result<Pools<'a>, String> {
    let candidates = relevant(inventory, node, features)?;
    let mut pools = Pools::new();
    for slices in candidates.chunk_by(|a, b| is_of_one_pool(a, b)) {
        pools.extend(pool(inventory, slices, features));
    }
    // Devices with binding conditions come last. The allocator `stable` does not know them.
    if !features.is_stable() {
        pools.sort_by_key(|pool: &Pool<'_>| {
            pool.state == PoolState::Usable && pool.slices.iter().any(|slice| slice.has_binding_conditions)
        });
    }
    Ok(pools)
}

fn is_of_one_pool(a: &Arc<Slice>, b: &Arc<Slice>) -> bool {
    let (a, b) = (a.spec(), b.spec());
    a.driver == b.driver && a.pool == b.pool
}

/// The slices for a node, in the order of drivers, pools and names.
fn relevant<'a>(
    inventory: &'a Inventory,
    node: &NodeRecord,
    features: Features,
) -> Result<SmallVec<[&'a Arc<Slice>; 4]>, String> {
    let has_all_counters = features.is_stable() && features.partitionable_devices;
    let own = inventory.on_node(&node.name).into_iter().flat_map(|slices| slices.values());
    let mut found: SmallVec<[&Arc<Slice>; 4]> = own.filter(|slice| is_known(slice, features)).collect();
    let before = found.len();
    for slice in inventory.shared().values().filter(|slice| is_known(slice, features)) {
        if (has_all_counters && !slice.spec().shared_counters.is_empty()) || is_for_node(slice, node)? {
            found.push(slice);
        }
    }
    if has_all_counters {
        let elsewhere = |slice: &&Arc<Slice>| slice.spec().place != DevicePlace::Node(Arc::clone(&node.name));
        let counters = inventory.counters_on_nodes().values().filter(|slice| is_known(slice, features));
        found.extend(counters.filter(elsewhere));
    }
    if has_all_counters || (before > 0 && found.len() > before) {
        found.sort_by(|a, b| {
            let key = |slice: &&'a Arc<Slice>| (&*slice.spec().driver, &*slice.spec().pool, &**slice.name());
            key(a).cmp(&key(b))
        });
    }
    Ok(found)
}

/// Whether the enabled features know all of a slice.
fn is_known(slice: &Slice, features: Features) -> bool {
    let spec = slice.spec();
    let is_partitionable = spec.place == DevicePlace::PerDevice || !spec.shared_counters.is_empty();
    (features.partitionable_devices || !is_partitionable) && !slice.uses_groups
}

fn is_for_node(slice: &Slice, node: &NodeRecord) -> Result<bool, String> {
    let spec = slice.spec();
    let wrong = |reason| {
        format!(
            "gather pool information: failed to perform node selection for slice {}: {reason}",
            slice.name()
        )
    };
    if spec.place != DevicePlace::PerDevice {
        return includes(&spec.place, node).map_err(wrong);
    }
    for device in &spec.devices {
        if includes(&device.place, node).map_err(wrong)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A pool of its slices for the node; nothing if it is being replaced elsewhere.
fn pool<'a>(inventory: &'a Inventory, slices: &[&'a Arc<Slice>], features: Features) -> Option<Pool<'a>> {
    let generation = slices.iter().map(|slice| slice.spec().generation).max()?;
    let slices: List<'a> =
        slices.iter().copied().filter(|slice| slice.spec().generation == generation).collect();
    // If slices disagree about the number, upstream believes the first one that it finds.
    let is_own = |slice: &&&Arc<Slice>| matches!(slice.spec().place, DevicePlace::Node(_));
    let own = slices.iter().find(is_own).filter(|_| !features.is_stable());
    let first = own.or(slices.first())?;
    let count = first.spec().slice_count;
    let id = first.pool();
    let mut pool = Pool { id, state: PoolState::Usable, slices, counters: List::new(), whole: None };
    if i64::try_from(pool.slices.len()) != Ok(count) {
        let generations = inventory.generations(pool.id)?;
        if generations.last_key_value().is_some_and(|(latest, _)| *latest > generation) {
            return None;
        }
        let whole = generations.get(&generation)?;
        if i64::try_from(whole.slices.len() - whole.with_groups) != Ok(count) {
            pool.state = PoolState::Incomplete;
            pool.slices.clear();
            return Some(pool);
        }
        pool.whole = Some(whole);
    }
    pool.validate(inventory, features);
    Some(pool)
}

impl<'a> Pool<'a> {
    fn validate(&mut self, inventory: &Inventory, features: Features) {
        if features.partitionable_devices {
            let has_counters = |slice: &&'a Arc<Slice>| !slice.spec().shared_counters.is_empty();
            (self.counters, self.slices) = self.slices.iter().copied().partition(has_counters);
        }
        let is_valid = have_unique_names(&self.slices, inventory.seed())
            && (!features.partitionable_devices || !self.uses_counters() || counters::are_valid(self));
        if !is_valid {
            self.state = PoolState::Invalid;
            self.slices.clear();
        }
    }

    fn uses_counters(&self) -> bool {
        match self.whole {
            Some(whole) => whole.with_counters > 0,
            None => !self.counters.is_empty() || self.slices.iter().any(|slice| slice.uses_counters),
        }
    }

    /// All slices with counters, and with devices, for the node or not.
    pub(crate) fn all_slices(&self) -> impl Iterator<Item = &'a Arc<Slice>> {
        let own = self.counters.iter().chain(&self.slices).copied();
        let whole = self.whole.into_iter().flat_map(|whole| whole.slices.values());
        let is_whole = self.whole.is_some();
        own.filter(move |_| !is_whole).chain(whole.filter(|slice| !slice.uses_groups))
    }
}

//! How many devices there are, by class and node.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;

use supercargo_framework::objects::{
    DeviceClass, DeviceId, DevicePlace, ObjectBody as _, Objects, ResourceClaim, resources,
};

use crate::budget::Budget;
use crate::{AllocatedState, ClassCounter, Inventory, Matches};

/// Devices of a class on a node. Each counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// A claim has them, or shares them.
    pub allocated: usize,
    /// Nobody has them, and a taint keeps pods off.
    pub tainted: usize,
    /// The others.
    pub free: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.allocated += other.allocated;
        self.tainted += other.tainted;
        self.free += other.free;
    }
}

/// The name of a class; empty for devices that no class selects. Then the node; `None` if several
/// nodes can use the devices.
pub type CensusKey = (Arc<str>, Option<Arc<str>>);

/// Counts the devices of the newest generation of each pool. A device counts in each class that
/// selects it. A class whose selectors fail selects nothing.
pub fn census(objects: &Objects) -> BTreeMap<CensusKey, Tally> {
    let seed = objects.hash_seed();
    let (mut inventory, mut allocated) = (Inventory::new(seed.clone()), AllocatedState::new(seed.clone()));
    objects.list(&resources::DEVICE_TAINT_RULE).for_each(|rule| inventory.insert_rule(rule));
    objects.list(&resources::RESOURCE_SLICE).for_each(|slice| inventory.insert(slice));
    let known = objects.list(&resources::RESOURCE_CLAIM).filter_map(|claim| ResourceClaim::of(&claim.body));
    let pending = objects.list_pending().filter_map(|claim| ResourceClaim::of(&claim.body));
    for allocation in known.chain(pending).filter_map(|claim| claim.allocation.as_ref()) {
        allocated.add(&allocation.results, false);
    }
    let mut matches = Matches::new(seed);
    let classes: Vec<(Arc<str>, ClassCounter)> = objects
        .list(&resources::DEVICE_CLASS)
        .filter_map(|class| Some((Arc::clone(&class.key), DeviceClass::of(&class.body)?)))
        .map(|(name, class)| (name, ClassCounter::new(class, &mut matches)))
        .collect();
    let mut census: BTreeMap<CensusKey, Tally> = BTreeMap::new();
    for slice in inventory.newest() {
        for (i, device) in slice.spec().devices.iter().enumerate() {
            let place = match &slice.spec().place {
                DevicePlace::PerDevice => &device.place,
                place => place,
            };
            let node = match place {
                DevicePlace::Node(name) => Some(Arc::clone(name)),
                _ => None,
            };
            let (driver, pool) = (Arc::clone(&slice.spec().driver), Arc::clone(&slice.spec().pool));
            let id = DeviceId { driver, pool, device: Arc::clone(&device.name) };
            let tally = match (allocated.is_allocated(&id), slice.taints(i)) {
                (true, _) => Tally { allocated: 1, ..Tally::default() },
                (false, []) => Tally { free: 1, ..Tally::default() },
                (false, _) => Tally { tainted: 1, ..Tally::default() },
            };
            let mut is_selected = false;
            for (class, counter) in &classes {
                if matches.selected(&counter.0, slice, i, &mut Budget::unlimited()).unwrap_or(false) {
                    is_selected = true;
                    *census.entry((Arc::clone(class), node.clone())).or_default() += tally;
                }
            }
            if !is_selected {
                *census.entry((Arc::default(), node)).or_default() += tally;
            }
        }
    }
    census
}

#[cfg(test)]
mod tests {
    use supercargo_framework::TaintEffect;
    use supercargo_framework::objects::{
        AllocationResult, Body, ClaimAllocation, Device, DeviceTaint, Object, ResourceSlice,
    };
    use supercargo_framework::testing::{object, objects};

    use super::*;

    fn slice(generation: i64, devices: Box<[Device]>) -> Object {
        let (driver, pool, place) = ("d".into(), "p".into(), DevicePlace::Node("n".into()));
        let slice =
            ResourceSlice { driver, pool, generation, slice_count: 1, place, devices, ..Default::default() };
        object(&resources::RESOURCE_SLICE, &format!("s{generation}"), Body::ResourceSlice(slice))
    }

    fn class(name: &str, expression: &str) -> Object {
        let class = DeviceClass { selectors: [Some(expression.into())].into(), ..DeviceClass::default() };
        object(&resources::DEVICE_CLASS, name, Body::DeviceClass(class))
    }

    #[test]
    fn a_device_counts_in_each_class_that_selects_it() {
        let taint = DeviceTaint { key: "sick".into(), value: "".into(), effect: TaintEffect::NoSchedule };
        let device = |name: &str| Device { name: name.into(), ..Device::default() };
        let sick = |name| Device { taints: [taint.clone()].into(), ..device(name) };
        let id = DeviceId { driver: "d".into(), pool: "p".into(), device: "a".into() };
        let results = [AllocationResult { device: id, ..AllocationResult::default() }].into();
        let allocation = Some(ClaimAllocation { results, ..ClaimAllocation::default() });
        let claim = ResourceClaim { allocation, ..ResourceClaim::default() };
        let census = census(&objects([
            // Its pool has a newer generation.
            slice(1, [device("x"), device("y")].into()),
            slice(2, [sick("a"), sick("b"), device("c")].into()),
            class("all", "device.driver == 'd'"),
            class("broken", "device.nothing("),
            object(&resources::RESOURCE_CLAIM, "ns/c", Body::ResourceClaim(claim)),
        ]));
        let expected = Tally { allocated: 1, tainted: 1, free: 1 };
        let on_node = |class: &str| (Arc::from(class), Some(Arc::from("n")));
        assert_eq!(census, BTreeMap::from([(on_node("all"), expected)]));
    }

    #[test]
    fn devices_without_a_class_count_too() {
        let device = Device { name: "a".into(), ..Device::default() };
        let census = census(&objects([slice(1, [device].into()), class("none", "device.driver == 'e'")]));
        let key = (Arc::from(""), Some(Arc::from("n")));
        assert_eq!(census, BTreeMap::from([(key, Tally { free: 1, ..Tally::default() })]));
    }
}

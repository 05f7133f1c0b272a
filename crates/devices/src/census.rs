//! How many devices there are, by class and node.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;

use supercargo_framework::objects::{
    Device, DeviceClass, DeviceId, DevicePlace, ObjectBody as _, Objects, resources,
};
use supercargo_framework::{Feature as Gate, Features as Gates};

use crate::budget::Budget;
use crate::inventory::Slice;
use crate::selectors::Selectors;
use crate::{AllocatedState, Features, Inventory, Matches};

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

/// The devices of a cluster, or of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// How many there are.
    pub tallies: BTreeMap<CensusKey, Tally>,
    /// Whether the selectors of classes took too much work, so that devices are missing.
    pub is_cut: bool,
}

/// The steps that the selectors of all classes may take together: seconds, if each costs something.
const MOST_STEPS: u64 = 50_000_000;

/// Counts the devices of the newest generation of each pool, or those of one node only. A device
/// counts in each class that selects it. A class whose selectors fail selects nothing.
pub fn census(objects: &Objects, gates: &Gates, node: Option<&str>) -> Census {
    census_within(&mut Budget::new(MOST_STEPS), objects, gates, node)
}

fn census_within(budget: &mut Budget, objects: &Objects, gates: &Gates, node: Option<&str>) -> Census {
    let features = Features::of(gates);
    let (inventory, allocated) = (inventory(objects, gates), AllocatedState::of(objects, false));
    let mut matches = Matches::new(objects.hash_seed());
    let classes = classes(objects, features, &mut matches);
    let mut census = Census::default();
    for slice in inventory.newest() {
        for (i, device) in slice.spec().devices.iter().enumerate() {
            let place = place_of(slice, device);
            if node.is_some() && place.as_deref() != node {
                continue;
            }
            let tally = match (allocated.is_allocated(&id_of(slice, device)), slice.taints(i)) {
                (true, _) => Tally { allocated: 1, ..Tally::default() },
                (false, [_, ..]) if features.device_taints => Tally { tainted: 1, ..Tally::default() },
                (false, _) => Tally { free: 1, ..Tally::default() },
            };
            let mut is_selected = false;
            for (class, selectors) in &classes {
                let selected = matches.selected(selectors, slice, i, budget);
                if budget.is_exhausted() {
                    return Census { is_cut: true, ..census };
                }
                if selected.unwrap_or(false) {
                    is_selected = true;
                    *census.tallies.entry((Arc::clone(class), place.clone())).or_default() += tally;
                }
            }
            if !is_selected {
                *census.tallies.entry((Arc::default(), place)).or_default() += tally;
            }
        }
    }
    census
}

fn inventory(objects: &Objects, gates: &Gates) -> Inventory {
    let mut inventory = Inventory::new(objects.hash_seed().clone());
    if gates.enabled(Gate::DRADeviceTaintRules) {
        for rule in objects.list(&resources::DEVICE_TAINT_RULE) {
            inventory.insert_rule(rule);
        }
    }
    objects.list(&resources::RESOURCE_SLICE).for_each(|slice| inventory.insert(slice));
    inventory
}

fn classes(objects: &Objects, features: Features, matches: &mut Matches) -> Vec<(Arc<str>, Arc<Selectors>)> {
    let mut compiled = |class: &DeviceClass| {
        let expressions = class.selectors.iter().flatten().cloned().collect();
        // As in an allocation.
        matches.compile(expressions, Box::default(), features.is_stable())
    };
    objects
        .list(&resources::DEVICE_CLASS)
        .filter_map(|class| Some((Arc::clone(&class.key), compiled(DeviceClass::of(&class.body)?))))
        .collect()
}

/// The node of a device; `None` if several nodes can use it.
fn place_of(slice: &Slice, device: &Device) -> Option<Arc<str>> {
    let place = match &slice.spec().place {
        DevicePlace::PerDevice => &device.place,
        place => place,
    };
    match place {
        DevicePlace::Node(name) => Some(Arc::clone(name)),
        _ => None,
    }
}

fn id_of(slice: &Slice, device: &Device) -> DeviceId {
    let (driver, pool) = (Arc::clone(&slice.spec().driver), Arc::clone(&slice.spec().pool));
    DeviceId { driver, pool, device: Arc::clone(&device.name) }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::TaintEffect;
    use supercargo_framework::objects::{
        AllocationResult, Body, ClaimAllocation, DeviceTaint, DeviceTaintRule, Object, ResourceClaim,
        ResourceSlice, TaintRuleSelector,
    };
    use supercargo_framework::testing::{object, objects};

    use super::*;

    fn device(name: &str) -> Device {
        Device { name: name.into(), ..Device::default() }
    }

    fn taint() -> DeviceTaint {
        DeviceTaint { key: "sick".into(), value: "".into(), effect: TaintEffect::NoSchedule }
    }

    /// The only slice of a generation of the pool `p`.
    fn slice(generation: i64, place: DevicePlace, devices: Box<[Device]>) -> Object {
        let (driver, pool) = ("d".into(), "p".into());
        let slice =
            ResourceSlice { driver, pool, generation, slice_count: 1, place, devices, ..Default::default() };
        object(&resources::RESOURCE_SLICE, &format!("s{generation}"), Body::ResourceSlice(slice))
    }

    fn on(node: &str) -> DevicePlace {
        DevicePlace::Node(node.into())
    }

    fn class(name: &str, expression: &str) -> Object {
        let class = DeviceClass { selectors: [Some(expression.into())].into(), ..DeviceClass::default() };
        object(&resources::DEVICE_CLASS, name, Body::DeviceClass(class))
    }

    /// A claim that has a share of a device, or all of it.
    fn claim(device: &str, share_id: Option<&str>) -> Object {
        let device = DeviceId { driver: "d".into(), pool: "p".into(), device: device.into() };
        let share_id = share_id.map(Into::into);
        let results = [AllocationResult { device, share_id, ..AllocationResult::default() }].into();
        let allocation = Some(ClaimAllocation { results, ..ClaimAllocation::default() });
        let claim = ResourceClaim { allocation, ..ResourceClaim::default() };
        object(&resources::RESOURCE_CLAIM, "ns/c", Body::ResourceClaim(claim))
    }

    fn key(class: &str, node: Option<&str>) -> CensusKey {
        (class.into(), node.map(Into::into))
    }

    /// Allocated, tainted and free devices.
    fn tally([allocated, tainted, free]: [usize; 3]) -> Tally {
        Tally { allocated, tainted, free }
    }

    fn all(objects: &Objects) -> BTreeMap<CensusKey, Tally> {
        census(objects, &Gates::default(), None).tallies
    }

    #[test]
    fn a_device_counts_in_each_class_that_selects_it() {
        let sick = |name| Device { taints: [taint()].into(), ..device(name) };
        let objects = objects([
            // Its pool has a newer generation.
            slice(1, on("n"), [device("x"), device("y")].into()),
            slice(2, on("n"), [sick("a"), sick("b"), device("c")].into()),
            class("all", "device.driver == 'd'"),
            class("broken", "device.nothing("),
            claim("a", None),
        ]);
        assert_eq!(all(&objects), BTreeMap::from([(key("all", Some("n")), tally([1, 1, 1]))]));
        // Without their gate, taints are ignored.
        let gates = Gates::default().with(Gate::DRADeviceTaints, false);
        let census = census(&objects, &gates, None);
        assert_eq!(census.tallies, BTreeMap::from([(key("all", Some("n")), tally([1, 0, 2]))]));
    }

    #[test]
    fn devices_without_a_class_count_too() {
        let objects =
            objects([slice(1, on("n"), [device("a")].into()), class("none", "device.driver == 'e'")]);
        assert_eq!(all(&objects), BTreeMap::from([(key("", Some("n")), tally([0, 0, 1]))]));
    }

    #[test]
    fn a_device_with_one_share_is_allocated_and_says_that_it_can_be_shared() {
        let shared = Device { allows_multiple_allocations: true, ..device("a") };
        let objects = objects([
            slice(1, on("n"), [shared, device("b")].into()),
            class("shared", "device.allowMultipleAllocations"),
            claim("a", Some("one")),
        ]);
        let expected = [(key("", Some("n")), tally([0, 0, 1])), (key("shared", Some("n")), tally([1, 0, 0]))];
        assert_eq!(all(&objects), BTreeMap::from(expected));
    }

    #[test]
    fn rules_taint_devices_if_their_gate_is_on() {
        let rule = DeviceTaintRule { selector: Some(TaintRuleSelector::default()), taint: taint() };
        let objects = objects([
            slice(1, on("n"), [device("a")].into()),
            object(&resources::DEVICE_TAINT_RULE, "r", Body::DeviceTaintRule(rule)),
        ]);
        for (is_on, expected) in [(true, [0, 1, 0]), (false, [0, 0, 1])] {
            let gates = Gates::default().with(Gate::DRADeviceTaintRules, is_on);
            let census = census(&objects, &gates, None);
            assert_eq!(census.tallies, BTreeMap::from([(key("", Some("n")), tally(expected))]));
        }
    }

    #[test]
    fn a_node_has_its_own_devices_only() {
        let at = |place, name| Device { place, ..device(name) };
        let devices = [at(on("n"), "a"), at(on("m"), "b"), at(DevicePlace::AllNodes, "c")].into();
        let objects = objects([slice(1, DevicePlace::PerDevice, devices)]);
        let places = [None, Some("m"), Some("n")];
        assert_eq!(all(&objects), places.map(|place| (key("", place), tally([0, 0, 1]))).into());
        let census = census(&objects, &Gates::default(), Some("n"));
        assert_eq!(census.tallies, BTreeMap::from([(key("", Some("n")), tally([0, 0, 1]))]));
    }

    #[test]
    fn a_census_ends_with_its_budget() {
        let objects =
            objects([slice(1, on("n"), [device("a")].into()), class("all", "device.driver == 'd'")]);
        let census = census_within(&mut Budget::new(1), &objects, &Gates::default(), None);
        assert_eq!(census, Census { is_cut: true, ..Census::default() });
    }
}

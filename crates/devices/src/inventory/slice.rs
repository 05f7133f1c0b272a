//! One ResourceSlice, with what is derived of it.

use std::sync::Arc;

use supercargo_framework::TaintEffect;
use supercargo_framework::hash_seed::HashSeed;
use supercargo_framework::objects::{
    Device, DevicePlace, DeviceTaint, DeviceTaintRule, Object, ObjectBody as _, ResourceSlice,
};

use crate::allocated::PoolId;
use crate::capacity::Capacity;
use supercargo_cel::Quantity;

/// A ResourceSlice. It never changes: a new version is another slice with another identity.
#[derive(Debug)]
pub(crate) struct Slice {
    object: Arc<Object>,
    pool: PoolId,
    /// Its identity within an inventory. Taints do not change it, because no selector sees them.
    pub(crate) id: u64,
    devices: Arc<[Prepared]>,
    taints: Taints,
    /// Whether no two devices have one name.
    pub(crate) has_unique_names: bool,
    /// Whether a device consumes counters with compatibility groups.
    pub(crate) uses_groups: bool,
    /// Whether it has counters, or devices that consume some.
    pub(crate) uses_counters: bool,
    /// Whether a device has binding conditions, be it an empty list.
    pub(crate) has_binding_conditions: bool,
    /// The number of values that selectors see of its devices.
    pub(crate) values: usize,
}

/// The number of values that selectors see of a device.
pub(crate) fn values_of(device: &Device) -> usize {
    3 + device.attributes.len() + device.capacity.len()
}

/// For each device, the taints that keep pods off.
pub(super) type Taints = Box<[Box<[DeviceTaint]>]>;

/// What is derived of a device.
#[derive(Debug)]
struct Prepared {
    capacities: Box<[Capacity]>,
    consumption: Box<[Consumption]>,
}

/// What a device takes of a counter.
#[derive(Clone, Debug)]
pub(crate) struct Consumption {
    pub(crate) set: Arc<str>,
    pub(crate) counter: Arc<str>,
    /// In billionths.
    pub(crate) amount: i128,
}

impl Slice {
    pub(super) fn new(object: Arc<Object>, spec: &ResourceSlice, id: u64, taints: Taints) -> Self {
        let mut names: Vec<&str> = spec.devices.iter().map(|device| &*device.name).collect();
        names.sort_unstable();
        let consumes = |device: &Device| !device.consumes_counters.is_empty();
        Self {
            id,
            pool: PoolId { driver: Arc::clone(&spec.driver), name: Arc::clone(&spec.pool) },
            devices: spec.devices.iter().map(Prepared::new).collect(),
            taints,
            has_unique_names: names.windows(2).all(|pair| pair[0] != pair[1]),
            uses_groups: spec
                .devices
                .iter()
                .any(|device| device.consumes_counters.iter().any(|used| used.has_compatibility_groups)),
            uses_counters: !spec.shared_counters.is_empty() || spec.devices.iter().any(consumes),
            has_binding_conditions: spec.devices.iter().any(|device| device.binding_conditions.is_some()),
            values: spec.devices.iter().map(values_of).sum(),
            object,
        }
    }

    /// The same slice with other taints.
    pub(super) fn with_taints(&self, taints: Taints) -> Self {
        let (object, pool) = (Arc::clone(&self.object), self.pool.clone());
        Self { object, pool, devices: Arc::clone(&self.devices), taints, ..*self }
    }

    pub(crate) fn spec(&self) -> &ResourceSlice {
        ResourceSlice::of(&self.object.body).expect("a slice is made of a ResourceSlice only")
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.object.key
    }

    pub(super) fn place(&self) -> (PoolId, Arc<str>) {
        (self.pool.clone(), Arc::clone(self.name()))
    }

    pub(crate) const fn pool(&self) -> &PoolId {
        &self.pool
    }

    /// The node that its devices belong to. An empty name is none, as upstream has it.
    pub(super) fn node_name(&self) -> Option<&Arc<str>> {
        match &self.spec().place {
            DevicePlace::Node(name) if !name.is_empty() => Some(name),
            _ => None,
        }
    }

    pub(crate) fn capacities(&self, device: usize) -> &[Capacity] {
        &self.devices[device].capacities
    }

    pub(crate) fn consumption(&self, device: usize) -> &[Consumption] {
        &self.devices[device].consumption
    }

    /// The taints that keep pods off a device.
    pub(crate) fn taints(&self, device: usize) -> &[DeviceTaint] {
        &self.taints[device]
    }
}

impl Prepared {
    fn new(device: &Device) -> Self {
        let mut capacities: Box<[Capacity]> =
            device.capacity.iter().map(|(name, capacity)| Capacity::new(name, capacity)).collect();
        capacities.sort_by(|a, b| a.name.cmp(&b.name));
        let consumption = device
            .consumes_counters
            .iter()
            .flat_map(|used| {
                used.counters.iter().map(|(counter, quantity)| Consumption {
                    set: Arc::clone(&used.counter_set),
                    counter: Arc::clone(counter),
                    amount: Quantity::lenient(quantity).nanos(),
                })
            })
            .collect();
        Self { capacities, consumption }
    }
}

/// The taints of the devices that keep pods off, those of rules included.
pub(super) fn taints<'a>(spec: &ResourceSlice, rules: impl Iterator<Item = &'a Arc<Object>>) -> Taints {
    let mut taints: Vec<Vec<DeviceTaint>> =
        spec.devices.iter().map(|device| device.taints.to_vec()).collect();
    for rule in rules.filter_map(|rule| DeviceTaintRule::of(&rule.body)).filter(|rule| is_of_pool(rule, spec))
    {
        let wanted = rule.selector.as_ref().and_then(|selector| selector.device.as_ref());
        for (device, taints) in spec.devices.iter().zip(&mut taints) {
            if wanted.is_none_or(|wanted| *wanted == device.name) {
                taints.push(rule.taint.clone());
            }
        }
    }
    taints
        .into_iter()
        .map(|mut taints| {
            taints.retain(|taint| matches!(taint.effect, TaintEffect::NoSchedule | TaintEffect::NoExecute));
            taints.into()
        })
        .collect()
}

/// Whether a rule may have a taint for a device of this slice.
pub(super) fn concerns(rule: &Arc<Object>, spec: &ResourceSlice) -> bool {
    DeviceTaintRule::of(&rule.body).is_some_and(|rule| is_of_pool(rule, spec))
}

fn is_of_pool(rule: &DeviceTaintRule, spec: &ResourceSlice) -> bool {
    let matches =
        |wanted: &Option<Arc<str>>, is: &Arc<str>| wanted.as_ref().is_none_or(|wanted| wanted == is);
    rule.selector.as_ref().is_some_and(|selector| {
        matches(&selector.driver, &spec.driver) && matches(&selector.pool, &spec.pool)
    })
}

/// Whether no two devices of these slices have one name.
pub(crate) fn have_unique_names(slices: &[&Arc<Slice>], seed: &HashSeed) -> bool {
    match slices {
        [] => true,
        [slice] => slice.has_unique_names,
        slices => {
            let mut seen = seed.set();
            slices.iter().all(|slice| slice.has_unique_names)
                && slices
                    .iter()
                    .flat_map(|slice| &slice.spec().devices)
                    .all(|device| seen.insert(&device.name))
        }
    }
}

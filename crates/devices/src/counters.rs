//! The counters that the devices of a pool share.

use std::collections::BTreeMap;

use supercargo_cel::Quantity;

use crate::allocated::PoolUsage;
use crate::inventory::Consumption;
use crate::pools::Pool;
use crate::sum::Sum;

/// The counters of a pool in a search.
#[derive(Debug, Default)]
pub(crate) struct Counters<'a> {
    /// What is left of each counter of each set.
    left: BTreeMap<(&'a str, &'a str), Sum>,
    /// How many are below zero.
    overdrawn: usize,
}

/// Whether the sets have one name each, and the devices consume only what is there.
pub(crate) fn are_valid(pool: &Pool<'_>) -> bool {
    let mut sets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for set in pool.all_slices().flat_map(|slice| &slice.spec().shared_counters) {
        let mut counters: Vec<&str> = set.counters.iter().map(|(name, _)| &**name).collect();
        counters.sort_unstable();
        if sets.insert(&set.name, counters).is_some() {
            return false;
        }
    }
    let devices = pool.all_slices().flat_map(|slice| &slice.spec().devices);
    devices.flat_map(|device| &device.consumes_counters).all(|used| {
        sets.get(&*used.counter_set)
            .is_some_and(|set| used.counters.iter().all(|(name, _)| set.binary_search(&&**name).is_ok()))
    })
}

impl<'a> Counters<'a> {
    /// What the allocated devices of a valid pool leave.
    pub(crate) fn new(pool: &Pool<'a>, usage: Option<&PoolUsage>) -> Self {
        let mut left = BTreeMap::new();
        for set in pool.all_slices().flat_map(|slice| &slice.spec().shared_counters) {
            for (name, quantity) in &set.counters {
                left.insert((&*set.name, &**name), Sum::from(Quantity::lenient(quantity).nanos()));
            }
        }
        let overdrawn = left.values().filter(|left| left.is_negative()).count();
        let mut counters = Self { left, overdrawn };
        if let Some(usage) = usage {
            for slice in pool.all_slices() {
                for (place, device) in slice.spec().devices.iter().enumerate() {
                    if usage.contains_key(&device.name) {
                        counters.change(slice.consumption(place), Sum::subtract);
                    }
                }
            }
        }
        counters
    }

    /// Takes what a device consumes, unless a counter of the pool is overdrawn then.
    pub(crate) fn take(&mut self, consumption: &'a [Consumption]) -> bool {
        self.change(consumption, Sum::subtract);
        if self.overdrawn > 0 {
            self.give_back(consumption);
            return false;
        }
        true
    }

    pub(crate) fn give_back(&mut self, consumption: &'a [Consumption]) {
        self.change(consumption, Sum::add);
    }

    fn change(&mut self, consumption: &'a [Consumption], change: impl Fn(&mut Sum, i128)) {
        for used in consumption {
            if let Some(left) = self.left.get_mut(&(&*used.set, &*used.counter)) {
                let was_overdrawn = left.is_negative();
                change(left, used.amount);
                self.overdrawn += usize::from(left.is_negative());
                self.overdrawn -= usize::from(was_overdrawn);
            }
        }
    }
}

//! Which devices are allocated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use supercargo_cel::Quantity;
use supercargo_framework::hash_seed::{HashSeed, SeededMap};
use supercargo_framework::objects::{
    AllocationResult, DeviceId, ObjectBody as _, Objects, ResourceClaim, resources,
};

use crate::sum::Sum;

/// A pool: its driver and its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PoolId {
    pub(crate) driver: Arc<str>,
    pub(crate) name: Arc<str>,
}

/// The devices that claims have: of claims in the API, and of those that bindings in flight write.
///
/// Same as upstream's `AllocatedState`. A device that was allocated with admin access is not in it.
#[derive(Clone, Debug)]
pub struct AllocatedState {
    seed: HashSeed,
    pools: SeededMap<PoolId, PoolUsage>,
}

/// The devices of one pool, by name.
pub(crate) type PoolUsage = SeededMap<Arc<str>, Usage>;

/// How a device is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// The allocations that have it for themselves: one, unless something went wrong.
    dedicated: u32,
    /// The allocations that share it.
    shares: u32,
    /// The sums that these have of its capacities.
    consumed: BTreeMap<Arc<str>, Sum>,
}

impl AllocatedState {
    /// Nothing is allocated.
    pub fn new(seed: HashSeed) -> Self {
        Self { pools: seed.map(), seed }
    }

    /// What all claims have, and what is pending.
    pub fn of(objects: &Objects, is_sharing: bool) -> Self {
        let mut allocated = Self::new(objects.hash_seed().clone());
        let claims = objects.list(&resources::RESOURCE_CLAIM).chain(objects.list_pending());
        let claims = claims.filter_map(|claim| ResourceClaim::of(&claim.body));
        for allocation in claims.filter_map(|claim| claim.allocation.as_ref()) {
            allocated.add(&allocation.results, is_sharing);
        }
        allocated
    }

    /// Adds the devices of an allocation. `is_sharing` is whether DRAConsumableCapacity is enabled:
    /// without it, no device is shared.
    pub fn add(&mut self, results: &[AllocationResult], is_sharing: bool) {
        for result in results.iter().filter(|result| !result.admin_access) {
            let pool = self.pools.entry(PoolId::of(&result.device)).or_insert_with(|| self.seed.map());
            let usage = pool.entry(Arc::clone(&result.device.device)).or_default();
            if !is_sharing || result.share_id.is_none() {
                usage.dedicated += 1;
                continue;
            }
            usage.shares += 1;
            for (name, quantity) in &result.consumed {
                let sum = usage.consumed.entry(Arc::clone(name)).or_default();
                sum.add(Quantity::lenient(quantity).nanos());
            }
        }
    }

    /// Removes what [`add`](Self::add) has added.
    pub fn remove(&mut self, results: &[AllocationResult], is_sharing: bool) {
        for result in results.iter().filter(|result| !result.admin_access) {
            let id = PoolId::of(&result.device);
            let Some(pool) = self.pools.get_mut(&id) else { continue };
            let Some(usage) = pool.get_mut(&result.device.device) else { continue };
            if is_sharing && result.share_id.is_some() {
                usage.shares = usage.shares.saturating_sub(1);
                for (name, quantity) in &result.consumed {
                    if let Some(sum) = usage.consumed.get_mut(name) {
                        sum.subtract(Quantity::lenient(quantity).nanos());
                    }
                }
            } else {
                usage.dedicated = usage.dedicated.saturating_sub(1);
            }
            if (usage.dedicated, usage.shares) == (0, 0) {
                pool.remove(&result.device.device);
            }
            if pool.is_empty() {
                self.pools.remove(&id);
            }
        }
    }

    /// Whether nobody else can have the device.
    pub fn is_dedicated(&self, device: &DeviceId) -> bool {
        self.usage(device).is_some_and(Usage::is_dedicated)
    }

    /// Whether any claim has the device.
    pub fn is_allocated(&self, device: &DeviceId) -> bool {
        self.usage(device).is_some()
    }

    /// The devices that are used otherwise than expected.
    pub fn differences(&self, expected: &Self) -> Vec<String> {
        let (found, expected) = (self.uses(), expected.uses());
        let devices: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
        let is_different = |device: &&String| found.get(*device) != expected.get(*device);
        let text = |device: &String| {
            format!("device {device}: {:?}, expected {:?}", found.get(device), expected.get(device))
        };
        devices.into_iter().filter(is_different).map(text).collect()
    }

    /// How each device is used, by its name. A sum that is 0 may be kept or not.
    fn uses(&self) -> BTreeMap<String, Usage> {
        let devices = self.pools.iter().flat_map(|(pool, devices)| devices.iter().map(move |of| (pool, of)));
        let named = devices.map(|(PoolId { driver, name }, (device, usage))| {
            let mut usage = usage.clone();
            usage.consumed.retain(|_, sum| !sum.is_zero());
            (format!("{driver}/{name}/{device}"), usage)
        });
        named.collect()
    }

    fn usage(&self, device: &DeviceId) -> Option<&Usage> {
        self.pools.get(&PoolId::of(device))?.get(&device.device)
    }

    pub(crate) fn pool(&self, id: &PoolId) -> Option<&PoolUsage> {
        self.pools.get(id)
    }
}

impl Usage {
    pub(crate) const fn is_dedicated(&self) -> bool {
        self.dedicated > 0
    }

    pub(crate) const fn is_shared(&self) -> bool {
        self.shares > 0
    }

    /// What is consumed of a capacity, in billionths.
    pub(crate) fn consumed(&self, capacity: &str) -> Sum {
        self.consumed.get(capacity).copied().unwrap_or_default()
    }
}

impl PoolId {
    pub(crate) fn of(device: &DeviceId) -> Self {
        Self { driver: Arc::clone(&device.driver), name: Arc::clone(&device.pool) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(device: &str, share: Option<&str>, admin_access: bool, memory: &str) -> AllocationResult {
        AllocationResult {
            device: DeviceId { driver: "d".into(), pool: "p".into(), device: device.into() },
            share_id: share.map(Arc::from),
            admin_access,
            consumed: Box::new([("memory".into(), memory.into())]),
            ..AllocationResult::default()
        }
    }

    fn consumed(state: &AllocatedState, device: &AllocationResult) -> i128 {
        state.usage(&device.device).map_or(0, |usage| usage.consumed("memory").saturated())
    }

    #[test]
    fn shares_add_up_and_admin_access_does_not_count() {
        let mut state = AllocatedState::new(HashSeed::new(1));
        let shares = [result("a", Some("1"), false, "1Ki"), result("a", Some("2"), false, "1")];
        state.add(&shares, true);
        state.add(&[result("b", None, true, "1")], true);
        assert!(state.is_allocated(&shares[0].device) && !state.is_dedicated(&shares[0].device));
        assert!(!state.is_allocated(&result("b", None, false, "1").device));
        assert_eq!(consumed(&state, &shares[0]), 1025 * 1_000_000_000);
        state.remove(&shares[..1], true);
        assert_eq!(consumed(&state, &shares[0]), 1_000_000_000);
        state.remove(&shares[1..], true);
        assert!(state.pools.is_empty(), "nothing is left behind");
    }

    #[test]
    fn enormous_shares_leave_what_others_have() {
        let mut state = AllocatedState::new(HashSeed::new(1));
        let shares = ["1", "2", "3"].map(|share| result("a", Some(share), false, "1e29"));
        state.add(&shares, true);
        state.remove(&shares[1..], true);
        assert_eq!(consumed(&state, &shares[0]), 10_i128.pow(38));
    }

    #[test]
    fn devices_that_are_used_otherwise_differ() {
        let state = |results: &[AllocationResult]| {
            let mut state = AllocatedState::new(HashSeed::new(1));
            state.add(results, true);
            state
        };
        let [one, other] = ["1", "2"].map(|share| result("a", Some(share), false, share));
        let nothing = AllocationResult { consumed: Box::default(), ..one.clone() };
        let mut followed = state(&[one.clone(), nothing.clone()]);
        followed.remove(std::slice::from_ref(&one), true);
        assert_eq!(followed.differences(&state(&[nothing])), [""; 0], "a sum of 0 is none");
        let other = state(&[other]);
        assert_eq!(state(std::slice::from_ref(&one)).differences(&other).len(), 1, "another amount");
        let expected = "device d/p/b: None, expected Some(Usage { dedicated: 1, shares: 0, consumed: {} })";
        let more = state(&[one.clone(), result("b", None, false, "1")]);
        assert_eq!(state(&[one]).differences(&more), [expected]);
    }

    #[test]
    fn without_sharing_every_allocation_is_dedicated() {
        let mut state = AllocatedState::new(HashSeed::new(1));
        let share = result("a", Some("1"), false, "1");
        state.add(std::slice::from_ref(&share), false);
        assert!(state.is_dedicated(&share.device));
        state.remove(std::slice::from_ref(&share), false);
        assert!(!state.is_allocated(&share.device));
    }
}

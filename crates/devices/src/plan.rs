//! What each request needs on one node, before the search.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::NodeRecord;
use supercargo_framework::objects::{Device, DeviceCount, DevicePlace};

use crate::allocated::{AllocatedState, PoolUsage};
use crate::budget::Budget;
use crate::capacity::{ConsumedAmounts, take};
use crate::demand::{Alternative, Demand};
use crate::error::AllocateError;
use crate::inventory::Slice;
use crate::node_match::includes;
use crate::pools::{Pool, PoolState};
use crate::selectors::{Matches, SelectorError, SelectorFailure};

/// The most devices of a claim. Same as upstream's `AllocationResultsMaxSize`.
pub(crate) const MAX_RESULTS: i64 = 32;

/// The devices of a node that can be allocated, numbered in the order in which they are tried.
#[derive(Debug)]
pub(crate) struct Devices<'a> {
    slots: SmallVec<[Slot<'a>; 4]>,
    count: u32,
}

/// The devices of one slice.
#[derive(Clone, Copy, Debug)]
struct Slot<'a> {
    pool: usize,
    slice: &'a Arc<Slice>,
    first: u32,
    usage: Option<&'a PoolUsage>,
}

/// A device of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) number: u32,
    pub(crate) pool: usize,
    pub(crate) slice: &'a Arc<Slice>,
    /// Its place in the slice.
    pub(crate) place: usize,
    pub(crate) usage: Option<&'a PoolUsage>,
}

impl<'a> Devices<'a> {
    pub(crate) fn new(pools: &[Pool<'a>], allocated: &'a AllocatedState) -> Self {
        let mut devices = Self { slots: SmallVec::new(), count: 0 };
        for (pool, found) in pools.iter().enumerate().filter(|(_, pool)| pool.state == PoolState::Usable) {
            let usage = allocated.pool(found.id);
            for slice in &found.slices {
                devices.slots.push(Slot { pool, slice, first: devices.count, usage });
                devices.count += slice.spec().devices.len() as u32;
            }
        }
        devices
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// The number of values that selectors see of them.
    pub(crate) fn values(&self) -> usize {
        self.slots.iter().map(|slot| slot.slice.values).sum()
    }

    pub(crate) fn get(&self, number: u32) -> Candidate<'a> {
        let slot = self.slots[self.slots.partition_point(|slot| slot.first <= number) - 1];
        let Slot { pool, slice, first, usage } = slot;
        Candidate { number, pool, slice, place: (number - first) as usize, usage }
    }

    /// The numbers of the devices of a pool.
    fn of_pool(&self, pool: usize) -> impl Iterator<Item = u32> {
        let slots = self.slots.iter().filter(move |slot| slot.pool == pool);
        slots.flat_map(|slot| (slot.first..).take(slot.slice.spec().devices.len()))
    }
}

impl<'a> Candidate<'a> {
    pub(crate) fn device(&self) -> &'a Device {
        &self.slice.spec().devices[self.place]
    }

    /// `driver/pool/device`
    pub(crate) fn id(&self) -> String {
        let spec = self.slice.spec();
        format!("{}/{}/{}", spec.driver, spec.pool, self.device().name)
    }
}

/// What an alternative needs on the node.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The number of devices.
    pub(crate) number: i64,
    /// The devices, if all are wanted.
    pub(crate) all: Vec<u32>,
}

/// By alternative.
pub(crate) type Plans = SmallVec<[Plan; 2]>;

/// Answers about single devices.
#[derive(Debug)]
pub(crate) struct Matcher<'a, 'm> {
    pub(crate) demand: &'a Demand,
    pub(crate) node: &'a NodeRecord,
    pub(crate) matches: &'m mut Matches,
    pub(crate) budget: &'m mut Budget,
}

impl<'a> Matcher<'a, '_> {
    /// Checks the claims, and finds out how many devices each request needs. Same as upstream's
    /// checks before its search.
    pub(crate) fn plan(&mut self, pools: &[Pool<'a>], devices: &Devices<'a>) -> Result<Plans, AllocateError> {
        let demand = self.demand;
        let mut plans = Plans::new();
        for (place, claim) in demand.claims.iter().enumerate() {
            if !self.budget.take(1) {
                return Err(AllocateError::Exhausted(format!("claim {}", claim.object.key).into()));
            }
            let mut total = 0_i64;
            for request in &claim.requests {
                fail(request.error.as_deref())?;
                let mut least = i64::MAX;
                for alternative in &demand.alternatives[request.alternatives.clone()] {
                    fail(alternative.error.as_deref())?;
                    self.spend(1, place, alternative)?;
                    let plan = match alternative.count {
                        DeviceCount::All => self.all(place, alternative, pools, devices)?,
                        DeviceCount::Exact(number) => Plan { number, all: Vec::new() },
                        DeviceCount::Unknown(_) => Plan::default(),
                    };
                    least = least.min(plan.number);
                    plans.push(plan);
                }
                if least > MAX_RESULTS.saturating_sub(total) {
                    let (key, name) = (&claim.object.key, &request.name);
                    return Err(AllocateError::fatal(format!(
                        "claim {key}, request {name}: adding {least} devices exceeds the claim limit of {MAX_RESULTS}, \
                         with {total} already accounted for"
                    )));
                }
                total = total.saturating_add(least);
            }
            fail(claim.constraint_error.as_deref())?;
        }
        Ok(plans)
    }

    /// All devices that match, and are large enough even if nobody uses them.
    fn all(
        &mut self,
        claim: usize,
        alternative: &Alternative,
        pools: &[Pool<'a>],
        devices: &Devices<'a>,
    ) -> Result<Plan, AllocateError> {
        let mut all = Vec::new();
        for (place, pool) in pools.iter().enumerate() {
            let state = match pool.state {
                PoolState::Usable => None,
                PoolState::Incomplete => Some("being updated"),
                PoolState::Invalid => Some("invalid"),
            };
            if let Some(state) = state {
                let id = format!("{}/{}", pool.id.driver, pool.id.name);
                let what = format!("asks for all devices, but resource pool {id} is currently {state}");
                return Err(self.wrong(claim, alternative, &what));
            }
            for number in devices.of_pool(place) {
                self.spend(1, claim, alternative)?;
                let candidate = devices.get(number);
                if !self.selects(claim, alternative, candidate)? {
                    continue;
                }
                if self.demand.features.consumable_capacity {
                    let name = &candidate.device().name;
                    let checking = |text| format!("checking capacity for device {name}: {text}");
                    let taken = self.take(alternative, candidate, |_| 0);
                    if taken.map_err(|text| self.wrong(claim, alternative, &checking(text)))?.is_none() {
                        continue;
                    }
                }
                all.push(number);
            }
        }
        Ok(Plan { number: all.len() as i64, all })
    }

    /// Whether the selectors match a device, and it can be used on the node.
    pub(crate) fn selects(
        &mut self,
        claim: usize,
        alternative: &Alternative,
        candidate: Candidate<'_>,
    ) -> Result<bool, AllocateError> {
        let device = candidate.device();
        let waits = device.binding_conditions.as_ref().is_some_and(|conditions| !conditions.is_empty());
        if waits && !self.demand.features.binding_conditions {
            return Ok(false);
        }
        if let Some(selectors) = &alternative.selectors {
            let selected = self.matches.selected(selectors, candidate.slice, candidate.place, self.budget);
            if !selected.map_err(|error| self.selector_error(claim, alternative, candidate, &error))? {
                return Ok(false);
            }
        }
        match candidate.slice.spec().place {
            DevicePlace::PerDevice => includes(&device.place, self.node).map_err(AllocateError::fatal),
            _ => Ok(true),
        }
    }

    /// What a request takes of the device's capacities, if it can.
    pub(crate) fn take(
        &self,
        alternative: &Alternative,
        candidate: Candidate<'_>,
        used: impl Fn(usize) -> i128,
    ) -> Result<Option<ConsumedAmounts>, String> {
        let capacities = candidate.slice.capacities(candidate.place);
        take(capacities, &alternative.capacity, used, self.demand.features.fractional_capacity_range)
    }

    /// Takes steps from the budget, for a request.
    pub(crate) fn spend(
        &mut self,
        steps: u64,
        claim: usize,
        alternative: &Alternative,
    ) -> Result<(), AllocateError> {
        if self.budget.take(steps) {
            return Ok(());
        }
        let key = &self.demand.claims[claim].object.key;
        Err(AllocateError::Exhausted(format!("claim {key}, request {}", alternative.full_name).into()))
    }

    /// An error of a request.
    pub(crate) fn wrong(&self, claim: usize, alternative: &Alternative, what: &str) -> AllocateError {
        let key = &self.demand.claims[claim].object.key;
        AllocateError::fatal(format!("claim {key}, request {}: {what}", alternative.name))
    }

    fn selector_error(
        &self,
        claim: usize,
        alternative: &Alternative,
        candidate: Candidate<'_>,
        error: &SelectorError,
    ) -> AllocateError {
        let of = match (error.is_of_class, &alternative.class) {
            (true, Some(class)) => format!("class {}", class.key),
            _ => format!("claim {}", self.demand.claims[claim].object.key),
        };
        let selector = error.selector;
        let on_device = || format!("{of}: selector #{selector} on device {}", candidate.id());
        match &error.cause {
            SelectorFailure::Compile(cause) => {
                AllocateError::fatal(format!("{of}: selector #{selector}: CEL compile error: {cause}"))
            }
            SelectorFailure::Eval(cause) => {
                AllocateError::fatal(format!("{}: CEL runtime error: {cause}", on_device()))
            }
            SelectorFailure::Exhausted => AllocateError::Exhausted(on_device().into()),
        }
    }
}

fn fail(error: Option<&str>) -> Result<(), AllocateError> {
    error.map_or(Ok(()), |text| Err(AllocateError::fatal(text)))
}

//! The search for devices: exhaustive, depth first, and the first solution wins.
//!
//! Same as upstream's `allocateOne`, step by step. Frames are kept here and not on the stack,
//! because a pod decides how deep the search goes.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::allocated::Usage;
use crate::capacity::ConsumedAmounts;
use crate::constraints::Values;
use crate::counters::Counters;
use crate::demand::Alternative;
use crate::error::AllocateError;
use crate::inventory::Slice;
use crate::plan::{Candidate, Devices, MAX_RESULTS, Matcher, Plans};
use crate::pools::Pool;
use crate::sum::Sum;
use supercargo_framework::objects::DeviceCount;

/// A search on one node.
pub(crate) struct Search<'a, 's> {
    matcher: Matcher<'a, 's>,
    pools: &'s [Pool<'a>],
    devices: &'s Devices<'a>,
    plans: Plans,
    /// How many claims have a device for themselves in this search, by its number.
    marks: SmallVec<[u32; 16]>,
    /// The devices that requests share in this search.
    shared: FxHashMap<u32, Shared>,
    /// By pool, once they are needed.
    counters: SmallVec<[Option<Counters<'a>>; 1]>,
    /// By claim and constraint.
    values: SmallVec<[Vec<Values<'a>>; 1]>,
    /// By claim.
    results: Vec<Vec<Chosen>>,
    frames: SmallVec<[Frame; 2]>,
    /// Whether it is known that every request alone can be met, or that this does not count.
    is_checked: bool,
}

/// What requests take of a device that they share.
#[derive(Debug, Default)]
struct Shared {
    requests: u32,
    /// By capacity, in billionths.
    sums: SmallVec<[Sum; 2]>,
}

/// A device that was chosen.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    number: u32,
    pub(crate) slice: Arc<Slice>,
    pub(crate) place: usize,
    /// The alternative that it was chosen for.
    pub(crate) alternative: usize,
    pub(crate) is_shared: bool,
    /// What is taken of its capacities, if it is shared.
    pub(crate) taken: ConsumedAmounts,
}

/// The devices of all claims, and the chosen alternative of each request.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    pub(crate) results: Vec<Vec<Chosen>>,
    /// By claim and request; the place in the demand's alternatives.
    pub(crate) selected: Vec<Vec<usize>>,
}

/// One invocation of upstream's function.
#[derive(Clone, Copy, Debug)]
struct Call {
    claim: usize,
    request: usize,
    /// The alternative in the request, once one is being tried.
    sub: Option<usize>,
    /// How many devices the request has already.
    has: i64,
    /// The first device to try.
    from: u32,
}

/// An invocation that waits for the one that it made.
#[derive(Debug)]
enum Frame {
    /// At the end of a claim.
    Claim,
    /// The alternatives of a request; whether all of those before had too many devices.
    Alternatives { call: Call, sub: usize, all_exceeded: bool },
    /// A request for all devices.
    All { undo: Undo },
    /// A request for some devices, at this one.
    Some { call: Call, at: u32, undo: Undo },
}

/// What is to be undone of a device that was chosen.
#[derive(Clone, Copy, Debug)]
struct Undo {
    claim: usize,
    alternative: usize,
    number: u32,
    has_counters: bool,
    constraints: usize,
}

#[derive(Clone, Copy, Debug)]
enum SearchStep {
    Call(Call),
    End(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Found,
    Failed,
    /// More than [`MAX_RESULTS`] devices for one claim.
    Exceeded,
}

impl<'a, 's> Search<'a, 's> {
    pub(crate) fn new(
        matcher: Matcher<'a, 's>,
        pools: &'s [Pool<'a>],
        devices: &'s Devices<'a>,
        plans: Plans,
    ) -> Self {
        let claims = &matcher.demand.claims;
        let is_checked = !matcher.budget.is_limited();
        let values = claims
            .iter()
            .map(|claim| claim.constraints.iter().map(|_| Values::default()).collect())
            .collect();
        Self {
            marks: SmallVec::from_elem(0, devices.count() as usize),
            shared: FxHashMap::default(),
            counters: pools.iter().map(|_| None).collect(),
            values,
            results: claims.iter().map(|_| Vec::new()).collect(),
            frames: SmallVec::new(),
            is_checked,
            matcher,
            pools,
            devices,
            plans,
        }
    }

    /// Searches. `interrupt` is asked before each step, and ends the search with a reason.
    pub(crate) fn run(
        mut self,
        interrupt: &mut dyn FnMut() -> Option<Arc<str>>,
    ) -> Result<Option<Solution>, AllocateError> {
        let mut call = Call { claim: 0, request: 0, sub: None, has: 0, from: 0 };
        loop {
            if let Some(reason) = interrupt() {
                return Err(AllocateError::Aborted(reason));
            }
            let mut step = self.enter(call)?;
            loop {
                match step {
                    SearchStep::Call(next) => {
                        call = next;
                        break;
                    }
                    SearchStep::End(End::Found) => return Ok(Some(self.solution())),
                    SearchStep::End(End::Failed) if self.is_hopeless()? => return Ok(None),
                    SearchStep::End(end) => match self.frames.pop() {
                        Some(frame) => step = self.resume(frame, end)?,
                        None => return Ok(None),
                    },
                }
            }
        }
    }

    /// Whether a search that is about to take a choice back cannot succeed, because a request has
    /// too few devices on this node, whatever the others get. It looks once.
    fn is_hopeless(&mut self) -> Result<bool, AllocateError> {
        let has_choice = || self.frames.iter().any(|frame| matches!(frame, Frame::Some { .. }));
        if self.is_checked || !has_choice() {
            return Ok(false);
        }
        self.is_checked = true;
        match self.lacks_devices() {
            Err(error @ AllocateError::Exhausted(_)) => Err(error),
            // Whether it is reported depends on the order of the search.
            Err(_) => Ok(false),
            Ok(lacks_devices) => Ok(lacks_devices),
        }
    }

    /// Whether a request has too few devices. An error is one that the search may come across.
    fn lacks_devices(&mut self) -> Result<bool, AllocateError> {
        let demand = self.matcher.demand;
        let mut lacks_devices = false;
        for (number, claim) in demand.claims.iter().enumerate() {
            for request in &claim.requests {
                let mut is_met = false;
                for place in request.alternatives.clone() {
                    is_met |= self.has_devices(number, place)?;
                }
                lacks_devices |= !is_met;
            }
        }
        Ok(lacks_devices)
    }

    /// Whether there are as many devices as an alternative needs, if no other request takes one.
    fn has_devices(&mut self, claim: usize, place: usize) -> Result<bool, AllocateError> {
        let demand = self.matcher.demand;
        let alternative = &demand.alternatives[place];
        let plan = &self.plans[place];
        if alternative.count == DeviceCount::All {
            // Constraints and capacities of all devices are errors if they are not met.
            return if plan.all.is_empty() { Ok(false) } else { Err(AllocateError::fatal("")) };
        }
        let (needed, mut found) = (plan.number, 0);
        for at in 0..self.devices.count() {
            self.matcher.spend(1, claim, alternative)?;
            let candidate = self.devices.get(at);
            let is_taken = !alternative.is_admin && usage(candidate).is_some_and(Usage::is_dedicated);
            if is_taken || !self.matcher.selects(claim, alternative, candidate)? {
                continue;
            }
            let fits = !demand.features.consumable_capacity || {
                let taken = self.matcher.take(alternative, candidate, |_| 0);
                taken.map_err(AllocateError::fatal)?.is_some()
            };
            found += i64::from(fits && !self.is_tainted(alternative, candidate));
        }
        Ok(found >= needed)
    }

    fn solution(self) -> Solution {
        let claims = self.matcher.demand.claims.iter();
        let mut selected: Vec<Vec<usize>> = claims
            .map(|claim| claim.requests.iter().map(|request| request.alternatives.start).collect())
            .collect();
        for frame in &self.frames {
            if let Frame::Alternatives { call, sub, .. } = frame {
                selected[call.claim][call.request] += sub;
            }
        }
        Solution { results: self.results, selected }
    }

    fn enter(&mut self, call: Call) -> Result<SearchStep, AllocateError> {
        let demand = self.matcher.demand;
        let Some(claim) = demand.claims.get(call.claim) else { return Ok(SearchStep::End(End::Found)) };
        let Some(request) = claim.requests.get(call.request) else {
            self.frames.push(Frame::Claim);
            return Ok(SearchStep::Call(Call {
                claim: call.claim + 1,
                request: 0,
                sub: None,
                has: 0,
                from: 0,
            }));
        };
        if request.is_prioritized && call.sub.is_none() {
            self.frames.push(Frame::Alternatives { call, sub: 0, all_exceeded: true });
            return Ok(SearchStep::Call(Call { sub: Some(0), ..call }));
        }
        let place = request.alternatives.start + call.sub.unwrap_or(0);
        let alternative = &demand.alternatives[place];
        self.matcher.spend(1, call.claim, alternative)?;
        let plan = &self.plans[place];
        let wants_all = alternative.count == DeviceCount::All;
        if wants_all && plan.all.is_empty() {
            return Ok(SearchStep::End(End::Failed));
        }
        if call.has >= plan.number {
            return Ok(SearchStep::Call(Call {
                request: call.request + 1,
                sub: None,
                has: 0,
                from: 0,
                ..call
            }));
        }
        if plan.number - call.has > MAX_RESULTS - self.results[call.claim].len() as i64 {
            return Ok(SearchStep::End(End::Exceeded));
        }
        if !wants_all {
            return self.try_from(call, call.from);
        }
        let candidate = self.devices.get(plan.all[call.has as usize]);
        match self.choose(call.claim, place, candidate, None)? {
            None => Ok(SearchStep::End(End::Failed)),
            Some(undo) => {
                self.frames.push(Frame::All { undo });
                Ok(SearchStep::Call(Call { has: call.has + 1, from: 0, ..call }))
            }
        }
    }

    fn resume(&mut self, frame: Frame, end: End) -> Result<SearchStep, AllocateError> {
        match frame {
            // Fewer devices of another claim do not help this one, but another alternative of an
            // earlier request may.
            Frame::Claim => Ok(SearchStep::End(End::Failed)),
            Frame::Alternatives { call, sub, all_exceeded } => {
                let all_exceeded = all_exceeded && end == End::Exceeded;
                let request = &self.matcher.demand.claims[call.claim].requests[call.request];
                if sub + 1 >= request.alternatives.len() {
                    return Ok(SearchStep::End(if all_exceeded { End::Exceeded } else { End::Failed }));
                }
                self.frames.push(Frame::Alternatives { call, sub: sub + 1, all_exceeded });
                Ok(SearchStep::Call(Call { sub: Some(sub + 1), ..call }))
            }
            Frame::All { undo } => {
                self.undo(undo);
                Ok(SearchStep::End(end))
            }
            Frame::Some { call, at, undo } => {
                self.undo(undo);
                if end == End::Exceeded {
                    return Ok(SearchStep::End(end));
                }
                self.try_from(call, at + 1)
            }
        }
    }

    /// Takes the first device that fits, and goes on to the next one that the request needs.
    fn try_from(&mut self, call: Call, from: u32) -> Result<SearchStep, AllocateError> {
        let place = self.place(call);
        let demand = self.matcher.demand;
        let alternative = &demand.alternatives[place];
        for at in from..self.devices.count() {
            self.matcher.spend(1, call.claim, alternative)?;
            let candidate = self.devices.get(at);
            let Some(taken) = self.could_choose(call.claim, place, candidate)? else { continue };
            if let Some(undo) = self.choose(call.claim, place, candidate, Some(taken))? {
                self.frames.push(Frame::Some { call, at, undo });
                // The order of a request's devices does not matter, which the allocator `stable`
                // does not use.
                let from = if self.matcher.demand.features.is_stable() { 0 } else { at + 1 };
                return Ok(SearchStep::Call(Call { has: call.has + 1, from, ..call }));
            }
        }
        Ok(SearchStep::End(End::Failed))
    }

    fn place(&self, call: Call) -> usize {
        let request = &self.matcher.demand.claims[call.claim].requests[call.request];
        request.alternatives.start + call.sub.unwrap_or(0)
    }

    /// The checks of a single device; what is taken of its capacities if it passes.
    fn could_choose(
        &mut self,
        claim: usize,
        place: usize,
        candidate: Candidate<'a>,
    ) -> Result<Option<ConsumedAmounts>, AllocateError> {
        let demand = self.matcher.demand;
        let alternative = &demand.alternatives[place];
        if self.is_taken(claim, alternative, candidate)
            || !self.matcher.selects(claim, alternative, candidate)?
        {
            return Ok(None);
        }
        if !demand.features.consumable_capacity {
            return Ok(Some(ConsumedAmounts::new()));
        }
        self.take(alternative, candidate).map_err(|text| {
            let id = candidate.id();
            self.matcher.wrong(claim, alternative, &format!("checking capacity for device {id}: {text}"))
        })
    }

    /// Whether somebody has the device, who does not share it.
    fn is_taken(&self, claim: usize, alternative: &Alternative, candidate: Candidate<'a>) -> bool {
        if alternative.is_admin {
            let is_same = |chosen: &Chosen| chosen.number == candidate.number && !chosen.is_shared;
            return self.results[claim].iter().any(is_same);
        }
        self.marks[candidate.number as usize] > 0 || usage(candidate).is_some_and(Usage::is_dedicated)
    }

    fn is_tainted(&self, alternative: &Alternative, candidate: Candidate<'a>) -> bool {
        let (demand, taints) = (self.matcher.demand, candidate.slice.taints(candidate.place));
        demand.features.device_taints && !taints.is_empty() && !demand.tolerates(alternative, taints)
    }

    fn take(
        &self,
        alternative: &Alternative,
        candidate: Candidate<'a>,
    ) -> Result<Option<ConsumedAmounts>, String> {
        let allocated = usage(candidate);
        let shared = self.shared.get(&candidate.number);
        let capacities = candidate.slice.capacities(candidate.place);
        self.matcher.take(alternative, candidate, |capacity| {
            let name = &capacities[capacity].name;
            let allocated = allocated.map_or(Sum::default(), |usage| usage.consumed(name));
            let chosen = shared.map_or(Sum::default(), |shared| shared.sums[capacity]);
            allocated.saturated().saturating_add(chosen.saturated())
        })
    }

    /// Chooses a device if counters, taints and constraints allow. `taken` is known unless the
    /// device is one of all.
    fn choose(
        &mut self,
        claim: usize,
        place: usize,
        candidate: Candidate<'a>,
        taken: Option<ConsumedAmounts>,
    ) -> Result<Option<Undo>, AllocateError> {
        let demand = self.matcher.demand;
        let (features, alternative) = (demand.features, &demand.alternatives[place]);
        self.matcher.spend(1 + demand.claims[claim].constraints.len() as u64, claim, alternative)?;
        let device = candidate.device();
        let is_one_of_all = taken.is_none();
        if is_one_of_all && self.is_taken(claim, alternative, candidate) {
            return Ok(None);
        }
        let is_shared = features.consumable_capacity && device.allows_multiple_allocations;
        if !device.consumes_counters.is_empty() && !features.partitionable_devices {
            return Ok(None);
        }
        // A device that is shared already has taken its counters.
        let is_in_use = is_shared && self.is_shared_already(candidate);
        let has_counters = !device.consumes_counters.is_empty() && !is_in_use;
        if has_counters && !self.take_counters(candidate) {
            return Ok(None);
        }
        let mut undo =
            Undo { claim, alternative: place, number: candidate.number, has_counters, constraints: 0 };
        if self.is_tainted(alternative, candidate) {
            self.roll_back(undo);
            return Ok(None);
        }
        let driver = &candidate.slice.spec().driver;
        for (i, constraint) in demand.claims[claim].constraints.iter().enumerate() {
            if alternative.constrained[i] && !constraint.add(&mut self.values[claim][i], device, driver) {
                self.roll_back(undo);
                if !is_one_of_all {
                    return Ok(None);
                }
                let what = format!(
                    "cannot add device {} because a claim constraint would not be satisfied",
                    candidate.id()
                );
                return Err(self.matcher.wrong(claim, alternative, &what));
            }
            undo.constraints += 1;
        }
        let taken = match taken {
            Some(taken) => Some(taken),
            None if features.consumable_capacity => self.take(alternative, candidate).map_err(|text| {
                let what = format!("rechecking capacity for device {}: {text}", candidate.id());
                self.matcher.wrong(claim, alternative, &what)
            })?,
            None => Some(ConsumedAmounts::new()),
        };
        let Some(taken) = taken else {
            self.roll_back(undo);
            return Ok(None);
        };
        self.record(claim, place, candidate, is_shared, taken);
        Ok(Some(undo))
    }

    fn record(
        &mut self,
        claim: usize,
        place: usize,
        candidate: Candidate<'a>,
        is_shared: bool,
        taken: ConsumedAmounts,
    ) {
        let Candidate { number, slice, place: device, .. } = candidate;
        let taken = if is_shared { taken } else { ConsumedAmounts::new() };
        if is_shared {
            let shared = self.shared.entry(number).or_default();
            shared.requests += 1;
            shared.sums.resize(taken.len(), Sum::default());
            for (sum, quantity) in shared.sums.iter_mut().zip(&taken) {
                sum.add(quantity.nanos());
            }
        } else {
            self.marks[number as usize] += 1;
        }
        let slice = Arc::clone(slice);
        self.results[claim].push(Chosen {
            number,
            slice,
            place: device,
            alternative: place,
            is_shared,
            taken,
        });
    }

    /// Takes a chosen device back.
    fn undo(&mut self, undo: Undo) {
        let Some(chosen) = self.results[undo.claim].pop() else { return };
        if chosen.is_shared {
            if let Some(shared) = self.shared.get_mut(&undo.number) {
                shared.requests -= 1;
                for (sum, quantity) in shared.sums.iter_mut().zip(&chosen.taken) {
                    sum.subtract(quantity.nanos());
                }
                if shared.requests == 0 {
                    self.shared.remove(&undo.number);
                }
            }
        } else {
            self.marks[undo.number as usize] -= 1;
        }
        self.roll_back(undo);
    }

    /// Undoes constraints and counters.
    fn roll_back(&mut self, undo: Undo) {
        let constrained = &self.matcher.demand.alternatives[undo.alternative].constrained;
        for i in (0..undo.constraints).rev().filter(|i| constrained[*i]) {
            self.values[undo.claim][i].undo();
        }
        if undo.has_counters {
            let candidate = self.devices.get(undo.number);
            if let Some(counters) = &mut self.counters[candidate.pool] {
                counters.give_back(candidate.slice.consumption(candidate.place));
            }
        }
    }

    fn is_shared_already(&self, candidate: Candidate<'a>) -> bool {
        self.shared.contains_key(&candidate.number) || usage(candidate).is_some_and(Usage::is_shared)
    }

    fn take_counters(&mut self, candidate: Candidate<'a>) -> bool {
        let pool = &self.pools[candidate.pool];
        let counters =
            self.counters[candidate.pool].get_or_insert_with(|| Counters::new(pool, candidate.usage));
        counters.take(candidate.slice.consumption(candidate.place))
    }
}

fn usage(candidate: Candidate<'_>) -> Option<&Usage> {
    candidate.usage?.get(&candidate.device().name)
}

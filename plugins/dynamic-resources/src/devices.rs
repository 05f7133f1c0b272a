//! What the devices of the cluster are, and which ones are taken.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use supercargo_devices::{
    AllocateError, AllocatedState, Allocation, Budget, ClassCounter, Cluster, Demand, Features, Inventory,
    Matches, Reach,
};
use supercargo_framework::objects::{
    AllocationResult, DeviceClass, DeviceId, Object, ObjectBody as _, Objects, ResourceClaim, Revision,
    resources,
};
use supercargo_framework::{Context, NodeRecord, Text};

/// The kinds from which it follows.
const KINDS: &[Text] = &[resources::RESOURCE_SLICE, resources::DEVICE_TAINT_RULE, resources::RESOURCE_CLAIM];

/// The devices of the cluster, as the objects of a scheduler have them.
///
/// It holds nothing but what follows from these objects, and catches up with their changes.
#[derive(Debug)]
pub(crate) struct Devices {
    features: Features,
    /// Whether DeviceTaintRules apply.
    with_rules: bool,
    followed: Option<Followed>,
    /// Selectors from before the last time that everything was forgotten.
    forgotten: Option<Matches>,
    /// How often that was.
    epoch: u64,
    /// What the attempt may still do.
    budget: Budget,
}

/// The steps of an attempt, beside those for each device: about a tenth of a second. An attempt
/// that tables cannot answer begins twice.
pub(super) const MAX_STEPS: u64 = 2_000_000;

/// The number of deleted claims after which unused selectors are forgotten.
const CLAIMS_BETWEEN_SWEEPS: usize = 64;

/// A position in the changes of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    epoch: u64,
    number: u64,
}

#[derive(Debug)]
pub(crate) struct Followed {
    inventory: Inventory,
    matches: Matches,
    taken: Taken,
    until: Until,
    touched: Touched,
}

/// The devices of claims.
#[derive(Clone, Debug)]
struct Taken {
    allocated: AllocatedState,
    /// What `allocated` has of claims, by key, and of pending allocations by the UID of their
    /// claim. Not the claims: it may be long until it catches up, and then they are gone.
    claims: BTreeMap<Arc<str>, Results>,
    pending: BTreeMap<Arc<str>, Results>,
    /// How many claims were deleted since selectors were forgotten.
    deleted: usize,
}

type Results = Box<[AllocationResult]>;

/// How far the changes of objects were followed.
#[derive(Debug, Default)]
struct Until {
    slices: Option<Revision>,
    rules: Option<Revision>,
    claims: Option<Revision>,
    pending: Option<Revision>,
}

impl Devices {
    pub(crate) const fn new(features: Features, with_rules: bool) -> Self {
        let budget = Budget::new(MAX_STEPS);
        Self { features, with_rules, followed: None, forgotten: None, epoch: 0, budget }
    }

    /// Forgets everything, so that the next cycle begins with the objects as they are.
    pub(crate) fn forget(&mut self) {
        if let Some(followed) = self.followed.take() {
            self.forgotten = Some(followed.matches);
        }
    }

    /// Catches up with the objects.
    pub(crate) fn follow(&mut self, cx: &Context<'_>) -> &mut Followed {
        let objects = cx.follow(KINDS);
        if self.followed.as_ref().is_some_and(|followed| !followed.can_follow(objects)) {
            self.forget();
        }
        let followed = self.followed.get_or_insert_with(|| {
            self.epoch += 1;
            Followed::new(objects, self.forgotten.take())
        });
        followed.follow(objects, self.features, self.with_rules);
        followed
    }

    /// Answers of selectors, if objects have been followed.
    #[cfg(test)]
    pub(crate) fn matches(&mut self) -> Option<&mut Matches> {
        self.followed.as_mut().map(|followed| &mut followed.matches)
    }

    /// Begins a pod's attempt with a new budget.
    pub(super) fn begin_attempt(&mut self) {
        self.budget = Budget::new(MAX_STEPS);
        if let Some(followed) = &mut self.followed {
            followed.matches.begin_attempt();
        }
    }

    /// Catches up with the objects, and begins an attempt.
    pub(super) fn begin(&mut self, cx: &Context<'_>) {
        self.follow(cx);
        self.begin_attempt();
    }

    /// Prepares the allocation of claims. It must come before [`allocate`](Self::allocate) in every
    /// cycle.
    pub(super) fn demand(&mut self, cx: &Context<'_>, claims: &[Arc<Object>]) -> Demand {
        let features = self.features;
        let class = |name: &str| cx.object(&resources::DEVICE_CLASS, name).cloned();
        Demand::new(features, claims, class, &mut self.follow(cx).matches)
    }

    /// Prepares to count devices of a class.
    pub(crate) fn counter(&mut self, class: &DeviceClass) -> Option<ClassCounter> {
        Some(ClassCounter::new(class, &mut self.followed.as_mut()?.matches))
    }

    /// How many devices of a class a node has in use, and in all.
    pub(crate) fn count(&mut self, counter: &ClassCounter, node: &NodeRecord) -> Option<(i64, i64)> {
        let followed = self.followed.as_mut()?;
        let cluster = Cluster { inventory: &followed.inventory, allocated: &followed.taken.allocated };
        counter.count(cluster, node, &mut followed.matches)
    }

    /// The position of what was followed last.
    pub(super) fn position(&self) -> Position {
        let number = self.followed.as_ref().map_or(0, |followed| followed.touched.end());
        Position { epoch: self.epoch, number }
    }

    /// Catches up with the objects. Returns the nodes for which something may have changed since a
    /// position; `None` if nothing is known about that.
    pub(super) fn touched_since(&mut self, cx: &Context<'_>, position: Position) -> Option<Reach> {
        self.follow(cx);
        let followed = self.followed.as_ref().filter(|_| position.epoch == self.epoch)?;
        Some(followed.touched.since(position.number))
    }

    /// How the devices that are taken differ from a sum over all claims. What was followed may lag
    /// behind, so a copy catches up: the check leaves the next cycle its work. What is too far
    /// behind is not compared, because the next cycle begins from scratch.
    pub(super) fn inconsistencies(&self, objects: &Objects) -> Vec<String> {
        let followed = self.followed.as_ref().filter(|followed| followed.can_follow(objects));
        let Some(Followed { taken, until, .. }) = followed else { return Vec::new() };
        let (mut taken, is_sharing) = (taken.clone(), self.features.consumable_capacity);
        taken.follow(objects, until, is_sharing, |_| {});
        taken.allocated.differences(&AllocatedState::of(objects, is_sharing))
    }

    /// The devices for the claims on a node.
    pub(super) fn allocate(
        &mut self,
        demand: &Demand,
        node: &NodeRecord,
        interrupt: &mut dyn FnMut() -> Option<Arc<str>>,
    ) -> Result<Option<Allocation>, AllocateError> {
        let Some(followed) = &mut self.followed else {
            return Err(AllocateError::Aborted("the devices were forgotten after a panic".into()));
        };
        let cluster = Cluster { inventory: &followed.inventory, allocated: &followed.taken.allocated };
        demand.allocate(cluster, node, &mut followed.matches, &mut self.budget, interrupt)
    }
}

impl Followed {
    fn new(objects: &Objects, before: Option<Matches>) -> Self {
        let seed = objects.hash_seed();
        let allocated = AllocatedState::new(seed.clone());
        Self {
            inventory: Inventory::new(seed.clone()),
            matches: before.map_or_else(|| Matches::new(seed), |before| Matches::after(&before, seed)),
            taken: Taken { allocated, claims: BTreeMap::new(), pending: BTreeMap::new(), deleted: 0 },
            until: Until::default(),
            touched: Touched::default(),
        }
    }

    fn can_follow(&self, objects: &Objects) -> bool {
        let until = &self.until;
        [
            (&resources::RESOURCE_SLICE, &until.slices),
            (&resources::DEVICE_TAINT_RULE, &until.rules),
            (&resources::RESOURCE_CLAIM, &until.claims),
        ]
        .into_iter()
        .all(|(kind, until)| objects.changes_since(kind, until.as_ref()).is_some())
            && objects.pending_since(until.pending.as_ref()).is_some()
    }

    fn follow(&mut self, objects: &Objects, features: Features, with_rules: bool) {
        let changes = |kind: &Text, until: &mut Option<Revision>| {
            let keys = objects.changes_since(kind, until.as_ref()).unwrap_or_default();
            *until = objects.revision(kind);
            keys
        };
        if with_rules {
            for key in changes(&resources::DEVICE_TAINT_RULE, &mut self.until.rules) {
                let has_changed = match objects.get(&resources::DEVICE_TAINT_RULE, key) {
                    Some(rule) => self.inventory.insert_rule(rule),
                    None => {
                        self.inventory.remove_rule(key);
                        true
                    }
                };
                if has_changed {
                    self.touched.add(Reach::All);
                }
            }
        }
        for key in changes(&resources::RESOURCE_SLICE, &mut self.until.slices) {
            self.touched.add(self.inventory.reach_of_slice(key, features));
            match objects.get(&resources::RESOURCE_SLICE, key) {
                Some(slice) => self.inventory.insert(slice),
                None => self.inventory.remove(key),
            }
            self.touched.add(self.inventory.reach_of_slice(key, features));
        }
        let Self { taken, until, inventory, touched, .. } = self;
        let touch = |device: &DeviceId| touched.add(inventory.reach_of_device(device, features));
        taken.follow(objects, until, features.consumable_capacity, touch);
        self.until.claims = objects.revision(&resources::RESOURCE_CLAIM);
        self.until.pending = Some(objects.pending_revision());
        if self.taken.deleted >= CLAIMS_BETWEEN_SWEEPS {
            self.taken.deleted = 0;
            self.matches.forget_unused();
        }
    }
}

impl Taken {
    /// Catches up with claims. Passes the devices of changed ones on.
    fn follow(
        &mut self,
        objects: &Objects,
        until: &Until,
        is_sharing: bool,
        mut touch: impl FnMut(&DeviceId),
    ) {
        let mut recount = |before: &[AllocationResult], after: &[AllocationResult]| {
            if before != after {
                self.allocated.remove(before, is_sharing);
                self.allocated.add(after, is_sharing);
                before.iter().chain(after).for_each(|result| touch(&result.device));
            }
        };
        let keys = objects.changes_since(&resources::RESOURCE_CLAIM, until.claims.as_ref());
        for key in keys.unwrap_or_default() {
            let claim = objects.get(&resources::RESOURCE_CLAIM, key);
            self.deleted += usize::from(claim.is_none());
            let after = results(claim);
            recount(&replace(&mut self.claims, key, after), after);
        }
        for uid in objects.pending_since(until.pending.as_ref()).unwrap_or_default() {
            let after = results(objects.pending(uid));
            recount(&replace(&mut self.pending, uid, after), after);
        }
    }
}

/// Keeps the results of a claim, if it has any. Returns those that were kept.
fn replace(kept: &mut BTreeMap<Arc<str>, Results>, key: &Arc<str>, results: &[AllocationResult]) -> Results {
    let before =
        if results.is_empty() { kept.remove(key) } else { kept.insert(Arc::clone(key), results.into()) };
    before.unwrap_or_default()
}

fn results(claim: Option<&Arc<Object>>) -> &[AllocationResult] {
    let claim = claim.and_then(|claim| ResourceClaim::of(&claim.body));
    let allocation = claim.and_then(|claim| claim.allocation.as_ref());
    allocation.map_or(&[], |allocation| &allocation.results)
}

/// The nodes for which something changed, the latest last; `None` is all nodes.
#[derive(Debug, Default)]
struct Touched {
    nodes: VecDeque<Option<Arc<str>>>,
    /// The number of changes that are no longer kept.
    dropped: u64,
}

/// The number of changes kept. A reader that is further behind asks about all nodes.
const MAX_TOUCHED: usize = 4096;

impl Touched {
    fn add(&mut self, reach: Reach) {
        match reach {
            Reach::Nodes(nodes) => {
                for node in nodes {
                    self.push(Some(node));
                }
            }
            Reach::All => self.push(None),
        }
    }

    fn push(&mut self, node: Option<Arc<str>>) {
        if self.nodes.len() == MAX_TOUCHED {
            self.nodes.pop_front();
            self.dropped += 1;
        }
        self.nodes.push_back(node);
    }

    fn end(&self) -> u64 {
        self.dropped + self.nodes.len() as u64
    }

    /// The nodes since a position, each once.
    fn since(&self, number: u64) -> Reach {
        let seen = number.checked_sub(self.dropped).and_then(|seen| usize::try_from(seen).ok());
        let nodes = seen.and_then(|seen| self.nodes.iter().skip(seen).cloned().collect::<Option<Vec<_>>>());
        nodes.map_or(Reach::All, |mut nodes| {
            nodes.sort_unstable();
            nodes.dedup();
            Reach::Nodes(nodes.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::Nodes;
    use supercargo_framework::objects::{Body, ClaimAllocation};
    use supercargo_framework::testing::object;

    use super::*;

    #[test]
    fn devices_that_are_leaked_or_missed_are_inconsistent() {
        let mut objects = Objects::default();
        let device = DeviceId { driver: "d".into(), pool: "p".into(), device: "a".into() };
        let results: Results = [AllocationResult { device, ..AllocationResult::default() }].into();
        let allocation = Some(ClaimAllocation { results: results.clone(), ..ClaimAllocation::default() });
        let claim = ResourceClaim { allocation, ..ResourceClaim::default() };
        objects.insert(object(&resources::RESOURCE_CLAIM, "default/c", Body::ResourceClaim(claim)).into());
        let mut devices = Devices::new(Features::default(), true);
        devices.follow(&Context::at_rest(&Nodes::default(), &objects));
        assert_eq!(devices.inconsistencies(&objects), [""; 0]);

        devices.followed.as_mut().unwrap().taken.allocated.remove(&results, true);
        assert!(devices.inconsistencies(&objects)[0].starts_with("device d/p/a: None, expected Some"));
        devices.followed.as_mut().unwrap().taken.allocated.add(&results, true);
        assert_eq!(devices.inconsistencies(&objects), [""; 0]);

        devices.followed.as_mut().unwrap().taken.claims.clear();
        objects.remove(&resources::RESOURCE_CLAIM, "default/c");
        assert!(devices.inconsistencies(&objects)[0].ends_with("expected None"), "it was not given back");
    }
}

//! What the devices of the cluster are, and which ones are taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use supercargo_devices::{
    AllocateError, AllocatedState, Allocation, Cluster, Demand, Features, Inventory, Matches,
};
use supercargo_framework::objects::{
    AllocationResult, Object, ObjectBody as _, Objects, ResourceClaim, Revision, resources,
};
use supercargo_framework::{Context, NodeRecord, Text};

/// The kinds from which it follows.
const KINDS: &[Text] = &[resources::RESOURCE_SLICE, resources::DEVICE_TAINT_RULE, resources::RESOURCE_CLAIM];

/// The devices of the cluster, as the objects of a scheduler have them.
///
/// It holds nothing but what follows from these objects, and catches up with their changes.
#[derive(Debug)]
pub(super) struct Devices {
    features: Features,
    /// Whether DeviceTaintRules apply.
    with_rules: bool,
    followed: Option<Followed>,
}

#[derive(Debug)]
struct Followed {
    inventory: Inventory,
    matches: Matches,
    allocated: AllocatedState,
    /// What `allocated` has of claims, by key, and of pending allocations by the UID of their claim. Not
    /// the claims: it may be long until it catches up, and then they are gone.
    claims: BTreeMap<Arc<str>, Results>,
    pending: BTreeMap<Arc<str>, Results>,
    until: Until,
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
    pub(super) const fn new(features: Features, with_rules: bool) -> Self {
        Self { features, with_rules, followed: None }
    }

    /// Forgets everything, so that the next cycle begins with the objects as they are.
    pub(super) fn forget(&mut self) {
        self.followed = None;
    }

    /// Prepares the allocation of claims. It must come before [`allocate`](Self::allocate) in every
    /// cycle.
    pub(super) fn demand(&mut self, cx: &Context<'_>, claims: &[Arc<Object>]) -> Demand {
        let objects = cx.objects_of(KINDS);
        self.followed.take_if(|followed| !followed.can_follow(objects));
        let followed = self.followed.get_or_insert_with(|| Followed::new(objects));
        followed.follow(objects, self.features.consumable_capacity, self.with_rules);
        let class = |name: &str| cx.object(&resources::DEVICE_CLASS, name).cloned();
        Demand::new(self.features, claims, class, &mut followed.matches)
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
        let cluster = Cluster { inventory: &followed.inventory, allocated: &followed.allocated };
        demand.allocate(cluster, node, &mut followed.matches, interrupt)
    }
}

impl Followed {
    fn new(objects: &Objects) -> Self {
        let seed = objects.hash_seed();
        Self {
            inventory: Inventory::new(seed.clone()),
            matches: Matches::new(seed),
            allocated: AllocatedState::new(seed.clone()),
            claims: BTreeMap::new(),
            pending: BTreeMap::new(),
            until: Until::default(),
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

    fn follow(&mut self, objects: &Objects, is_sharing: bool, with_rules: bool) {
        let changes = |kind: &Text, until: &mut Option<Revision>| {
            let keys = objects.changes_since(kind, until.as_ref()).unwrap_or_default();
            *until = objects.revision(kind);
            keys
        };
        if with_rules {
            for key in changes(&resources::DEVICE_TAINT_RULE, &mut self.until.rules) {
                match objects.get(&resources::DEVICE_TAINT_RULE, key) {
                    Some(rule) => self.inventory.insert_rule(rule),
                    None => self.inventory.remove_rule(key),
                }
            }
        }
        for key in changes(&resources::RESOURCE_SLICE, &mut self.until.slices) {
            match objects.get(&resources::RESOURCE_SLICE, key) {
                Some(slice) => self.inventory.insert(slice),
                None => self.inventory.remove(key),
            }
        }
        for key in changes(&resources::RESOURCE_CLAIM, &mut self.until.claims) {
            let claim = objects.get(&resources::RESOURCE_CLAIM, key);
            recount(&mut self.allocated, &mut self.claims, key, claim, is_sharing);
        }
        for uid in objects.pending_since(self.until.pending.as_ref()).unwrap_or_default() {
            recount(&mut self.allocated, &mut self.pending, uid, objects.pending(uid), is_sharing);
        }
        self.until.pending = Some(objects.pending_revision());
    }
}

/// Counts the devices of a claim, and no longer those that it had.
fn recount(
    allocated: &mut AllocatedState,
    counted: &mut BTreeMap<Arc<str>, Results>,
    key: &Arc<str>,
    claim: Option<&Arc<Object>>,
    is_sharing: bool,
) {
    if let Some(before) = counted.remove(key) {
        allocated.remove(&before, is_sharing);
    }
    if let Some(results) = claim.map(|claim| results(claim)).filter(|results| !results.is_empty()) {
        allocated.add(results, is_sharing);
        counted.insert(Arc::clone(key), results.into());
    }
}

fn results(claim: &Object) -> &[AllocationResult] {
    let allocation = ResourceClaim::of(&claim.body).and_then(|claim| claim.allocation.as_ref());
    allocation.map_or(&[], |allocation| &allocation.results)
}

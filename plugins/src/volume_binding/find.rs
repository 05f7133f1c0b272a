//! Volumes for a pod's claims on one node.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::objects::{CsiStorageCapacity, Object, ObjectBody, PersistentVolume, resources};
use supercargo_framework::status::Reasons;
use supercargo_framework::{Code, Context, Labels, NodeInfo, SmallMap, Status, Text, steps};

use super::available::OnNode;
use super::claims::Claims;
use super::delayed::{ClassClaims, DelayedClaim, Provisioning};
use super::reach::{Viewpoint, is_reached};

const OUT_OF_REACH: Text = Text::Static("node(s) didn't match PersistentVolume's node affinity");
const NO_VOLUME: Text = Text::Static("node(s) didn't find available persistent volumes to bind");
const NO_STORAGE: Text = Text::Static("node(s) did not have enough free storage");
const LOST_VOLUME: Text =
    Text::Static("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)");

/// A claim with its assignment.
type Given<'a, T> = (&'a DelayedClaim, T);

/// Volumes for a pod's claims on one node.
#[derive(Default)]
pub(super) struct PodVolumes<'a> {
    /// Claims with their volumes.
    pub(super) bindings: SmallVec<[Given<'a, &'a Arc<Object>>; 4]>,
    /// Claims to provision, with the capacities that can serve them.
    pub(super) provisions: SmallVec<[Given<'a, Option<&'a Arc<Object>>>; 4]>,
}

/// The reason why a node is rejected for unbound claims.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shortage {
    Volume,
    Storage,
}

impl Claims {
    /// Whether there are volumes for the claims on a node: whether [`find`](Self::find) succeeds.
    /// The cost depends on the volumes that the node can access, not on the number of claims.
    pub(super) fn check(&self, cx: &Context<'_>, node: &NodeInfo) -> Result<(), Status> {
        self.on_node(cx, node, |labels| self.shortage(labels).map_or(Ok(()), Err))
    }

    /// Finds volumes for the claims on a node. Does not allocate for up to four claims of a kind.
    pub(super) fn find(&self, cx: &Context<'_>, node: &NodeInfo) -> Result<PodVolumes<'_>, Status> {
        self.on_node(cx, node, |labels| self.assign(labels))
    }

    /// Evaluates the claims on a node; `delayed` evaluates those with delayed binding.
    fn on_node<T>(
        &self,
        cx: &Context<'_>,
        node: &NodeInfo,
        delayed: impl FnOnce(&Labels) -> Result<T, Shortage>,
    ) -> Result<T, Status> {
        let labels = &node.node().labels;
        let csi_node = || cx.object(&resources::CSI_NODE, node.name()).map(|object| &**object);
        let unreachable = self.unreachable(Viewpoint {
            labels,
            csi_node: self.depend_on_csi_node().then(csi_node).flatten(),
        })?;
        let found = if self.selected_nodes().any(|selected| *selected != **node.name()) {
            Err(Shortage::Volume)
        } else if let Some(error) = &self.unmatchable {
            return Err(Status::error(error.clone()));
        } else {
            delayed(labels)
        };
        match (found, unreachable) {
            (Ok(found), None) => Ok(found),
            (found, unreachable) => Err(rejection(found.err(), unreachable)),
        }
    }

    /// The reason of the first bound claim in the pod's order whose volume the node cannot access.
    fn unreachable(&self, from: Viewpoint<'_>) -> Result<Option<Text>, Status> {
        for volume in &self.bound {
            match volume {
                None => return Ok(Some(LOST_VOLUME)),
                Some(reach) if reach.includes(from).map_err(Status::error)? => {}
                Some(_) => return Ok(Some(OUT_OF_REACH)),
            }
        }
        Ok(None)
    }

    fn selected_nodes(&self) -> impl Iterator<Item = &str> {
        self.selected.iter().filter_map(|i| self.delayed[*i].selected_node.as_deref())
    }

    /// The volumes and storage for claims with delayed binding.
    fn assign(&self, labels: &Labels) -> Result<PodVolumes<'_>, Shortage> {
        let mut classes: SmallVec<[_; 2]> = self
            .classes
            .iter()
            .map(|class| (Matching::new(class, labels), Room::of(class, labels)))
            .collect();
        let mut found = PodVolumes::default();
        let mut unmatched: SmallVec<[&DelayedClaim; 4]> = SmallVec::new();
        for claim in self.to_match.iter().map(|i| &self.delayed[*i]) {
            match classes[claim.class].0.take(claim) {
                Some(volume) => found.bindings.push((claim, volume)),
                None => unmatched.push(claim),
            }
        }
        for claim in self.selected.iter().map(|i| &self.delayed[*i]).chain(unmatched) {
            found.provisions.push((claim, classes[claim.class].1.storage_for(claim)?));
        }
        Ok(found)
    }

    /// The error of [`assign`](Self::assign).
    fn shortage(&self, labels: &Labels) -> Option<Shortage> {
        let mut shortages = self.classes.iter().filter_map(|class| self.shortage_of(class, labels));
        let first = shortages.next()?;
        // Claims of several classes lack different things: the order of claims decides.
        if shortages.all(|other| other == first) { Some(first) } else { self.assign(labels).err() }
    }

    /// What claims of one class lack. All that lack something lack the same.
    fn shortage_of(&self, class: &ClassClaims, labels: &Labels) -> Option<Shortage> {
        let room = Room::of(class, labels);
        let provisioned = |i: &usize| room.storage_for(&self.delayed[*i]);
        if let Some(shortage) = class.selected.iter().find_map(|i| provisioned(i).err()) {
            return Some(shortage);
        }
        let small = class.open.partition_point(|i| provisioned(i).is_ok());
        let large = &class.open[small..];
        let shortage = provisioned(large.first()?).err()?;
        let matching = Matching::new(class, labels);
        let have_volumes = |claims: &[usize]| {
            let mut matching = matching.clone();
            claims.iter().all(|i| matching.take(&self.delayed[*i]).is_some() || provisioned(i).is_ok())
        };
        // The largest claim alone is quickly rejected on most nodes that do not fit.
        let fits = large.len() <= matching.most()
            && have_volumes(&class.open[class.open.len() - 1..])
            && (class.open.len() == 1 || have_volumes(&class.open));
        (!fits).then_some(shortage)
    }
}

/// The assignment of a class's volumes to claims on one node.
#[derive(Clone)]
struct Matching<'a, 'n> {
    class: &'a ClassClaims,
    labels: &'n Labels,
    /// The rest of each pool: the volumes before are taken or too small.
    rest: SmallVec<[OnNode<'a>; 4]>,
    /// The names of assigned volumes, if the class is contended.
    taken: SmallMap<&'a str, ()>,
}

impl<'a, 'n> Matching<'a, 'n> {
    fn new(class: &'a ClassClaims, labels: &'n Labels) -> Self {
        let rest = class.pools.iter().map(|pool| pool.for_node(labels)).collect();
        Self { class, labels, rest, taken: SmallMap::default() }
    }

    /// At least the number of claims that can get a volume.
    fn most(&self) -> usize {
        self.class.own_volumes + self.rest.iter().map(OnNode::count_all).sum::<usize>()
    }

    /// Assigns a volume to a claim that is not smaller than those before: its own if it has one,
    /// otherwise the smallest free one. A claim whose own volume is not accessible gets none.
    fn take(&mut self, claim: &'a DelayedClaim) -> Option<&'a Arc<Object>> {
        steps::add(1);
        if let Some(own) = &claim.own {
            let body = PersistentVolume::of(&own.body)?;
            return is_reached(body, self.labels).then_some(own);
        }
        let (body, rest) = (claim.body()?, &mut self.rest[claim.pool?]);
        let is_taken = |name: &str| self.class.is_contended && self.taken.contains(name);
        let suits = |volume: &&Arc<Object>| {
            PersistentVolume::of(&volume.body).is_some_and(|known| known.capacity >= body.size())
                && !is_taken(&volume.key)
        };
        let found = match &body.selector {
            None => rest.find(suits),
            // Volumes that do not match stay for the next claim.
            Some(selector) => rest.clone().find(|volume| selector.matches(&volume.labels) && suits(volume)),
        }?;
        if self.class.is_contended {
            self.taken.insert(&found.key, ());
        }
        Some(found)
    }
}

/// The volumes of a class that can be provisioned for a node.
enum Room<'a> {
    /// None.
    Nothing,
    /// Volumes of any size.
    Unlimited,
    /// Volumes that one of these capacities can hold.
    Storage(SmallVec<[&'a (i64, Arc<Object>); 2]>),
}

impl<'a> Room<'a> {
    fn of(class: &'a ClassClaims, labels: &Labels) -> Self {
        match &class.provisioning {
            Provisioning::Possible { class, storage } if Provisioning::is_allowed(class, labels) => {
                let accessible = |all: &'a [(i64, Arc<Object>)]| {
                    all.iter().filter(|(_, storage)| is_accessible(storage, labels)).collect()
                };
                storage.as_deref().map_or(Self::Unlimited, |all| Self::Storage(accessible(all)))
            }
            _ => Self::Nothing,
        }
    }

    /// The capacity that serves a claim: `Ok(None)` if none is needed because its driver does not
    /// report capacity.
    fn storage_for(&self, claim: &DelayedClaim) -> Result<Option<&'a Arc<Object>>, Shortage> {
        match (self, claim.request()) {
            (Self::Nothing, _) => Err(Shortage::Volume),
            // A request of 0 also requires a driver with capacity.
            (Self::Unlimited, _) | (Self::Storage(_), None) => Ok(None),
            (Self::Storage(accessible), Some(size)) => {
                let large = accessible.iter().copied().find(|(limit, _)| *limit >= size);
                large.map(|(_, storage)| Some(storage)).ok_or(Shortage::Storage)
            }
        }
    }
}

fn is_accessible(storage: &Object, labels: &Labels) -> bool {
    let topology = CsiStorageCapacity::of(&storage.body).and_then(|storage| storage.node_topology.as_ref());
    topology.is_some_and(|topology| topology.matches(labels))
}

/// The rejection of a node, with the reasons in upstream's order.
fn rejection(shortage: Option<Shortage>, unreachable: Option<Text>) -> Status {
    let lacking = shortage.map(|shortage| match shortage {
        Shortage::Volume => NO_VOLUME,
        Shortage::Storage => NO_STORAGE,
    });
    let is_lost = unreachable.as_ref() == Some(&LOST_VOLUME);
    let (first, last) = if is_lost { (lacking, unreachable) } else { (unreachable, lacking) };
    let reasons: Reasons = first.into_iter().chain(last).collect();
    Status::with_reasons(Code::UnschedulableAndUnresolvable, reasons)
}

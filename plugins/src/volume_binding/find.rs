//! Volumes for a pod's claims on one node.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::objects::{CsiStorageCapacity, Object, ObjectBody, PersistentVolume, resources};
use supercargo_framework::status::Reasons;
use supercargo_framework::{Code, Context, Labels, NodeInfo, Status, Text};

use super::claims::{Claims, DelayedClaim, Provisioning};
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
#[derive(Clone, Copy)]
enum Shortage {
    Volume,
    Storage,
}

impl Claims {
    /// Finds volumes for the claims on a node. Does not allocate for up to four claims of a kind.
    pub(super) fn find(&self, cx: &Context<'_>, node: &NodeInfo) -> Result<PodVolumes<'_>, Status> {
        let labels = &node.node().labels;
        let csi_node = || cx.object(&resources::CSI_NODE, node.name()).map(|object| &**object);
        let from = Viewpoint { labels, csi_node: self.depend_on_csi_node().then(csi_node).flatten() };
        // As upstream, the first claim in the pod's order that rejects the node gives the reason.
        let mut unreachable = None;
        for volume in &self.bound {
            unreachable = match volume {
                None => Some(LOST_VOLUME),
                Some(reach) => (!reach.includes(from).map_err(Status::error)?).then_some(OUT_OF_REACH),
            };
            if unreachable.is_some() {
                break;
            }
        }
        let found = self.find_delayed(labels, node.name())?;
        match (found, unreachable) {
            (Ok(found), None) => Ok(found),
            (found, unreachable) => Err(rejection(found.err(), unreachable)),
        }
    }

    /// The same for claims with delayed binding. The outer error fails the whole attempt.
    fn find_delayed(&self, labels: &Labels, node: &str) -> Result<Result<PodVolumes<'_>, Shortage>, Status> {
        let selected = self.delayed.iter().filter_map(|claim| claim.selected_node.as_deref());
        if selected.into_iter().any(|selected| selected != node) {
            return Ok(Err(Shortage::Volume));
        }
        if let Some(error) = &self.unmatchable {
            return Err(Status::error(error.clone()));
        }
        let mut found = PodVolumes::default();
        let mut unmatched: SmallVec<[&DelayedClaim; 4]> = SmallVec::new();
        for claim in self.to_match.iter().map(|i| &self.delayed[*i]) {
            match find_volume(claim, labels, &found) {
                Some(volume) => found.bindings.push((claim, volume)),
                None => unmatched.push(claim),
            }
        }
        let selected = self.delayed.iter().filter(|claim| claim.selected_node.is_some());
        for claim in selected.chain(unmatched) {
            match find_storage(claim, labels) {
                Ok(storage) => found.provisions.push((claim, storage)),
                Err(shortage) => return Ok(Err(shortage)),
            }
        }
        Ok(Ok(found))
    }
}

/// The volume for a claim: its own if it has one, otherwise the smallest free one. A claim whose
/// own volume is not accessible gets none.
fn find_volume<'a>(
    claim: &'a DelayedClaim,
    labels: &Labels,
    taken: &PodVolumes<'a>,
) -> Option<&'a Arc<Object>> {
    let is_free = |volume: &&Arc<Object>| !taken.bindings.iter().any(|(_, other)| other.key == volume.key);
    let is_reached = |volume: &&Arc<Object>| {
        PersistentVolume::of(&volume.body).is_some_and(|volume| is_reached(volume, labels))
    };
    match claim.prebound.iter().find(is_free) {
        Some(own) => Some(own).filter(is_reached),
        None => claim.available.for_node(labels).find(|volume| is_free(volume) && is_reached(volume)),
    }
}

/// The capacity that serves a claim: `Ok(None)` if none is needed because its driver does not
/// report capacity.
fn find_storage<'a>(claim: &'a DelayedClaim, labels: &Labels) -> Result<Option<&'a Arc<Object>>, Shortage> {
    let Provisioning::Possible { class, storage } = &claim.provisioning else {
        return Err(Shortage::Volume);
    };
    if !Provisioning::is_allowed(class, labels) {
        return Err(Shortage::Volume);
    }
    let Some(storage) = storage else {
        return Ok(None);
    };
    storage.iter().find(|storage| is_accessible(storage, labels)).map(Some).ok_or(Shortage::Storage)
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

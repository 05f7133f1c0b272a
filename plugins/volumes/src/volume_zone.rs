//! Filters nodes outside the zones and regions of the pod's volumes.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::HintScope;
use supercargo_framework::caching::{Caching, Scope, Stateless};
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::hint::Hint;
use supercargo_framework::labels::Labels;
use supercargo_framework::objects::{PersistentVolume, PersistentVolumeClaim, StorageClass, resources};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, PreFilter, PreFilterPlugin, SignPlugin,
};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, NodeInfo, Plugin, PodInfo, Status, VolumeSource,
};

use crate::pod_volumes::{
    NAMED_CLAIMS, claim_not_found, has_claims, names_claim, new_object, old_object, sign, with_claims,
};

/// The plugin's name.
pub const NAME: &str = "VolumeZone";

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

/// The zone and region labels, each with the label that a node may have instead.
const LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    ("failure-domain.beta.kubernetes.io/region", REGION),
    (ZONE, ZONE),
    (REGION, REGION),
];

/// Separates the zones of a volume with several zones.
const DELIMITER: &str = "__";

#[derive(Default)]
pub(crate) struct VolumeZone;

/// The location of a volume by one label: an index of [`LABELS`], and the sorted, distinct values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Topology {
    label: usize,
    values: SmallVec<[Arc<str>; 1]>,
}

/// The locations that all of a pod's volumes have in common: at most one for each label.
#[derive(Clone)]
struct Topologies(Arc<[Topology]>);

/// The location of a volume. A label with an empty value is ignored.
fn topologies(labels: &Labels) -> impl Iterator<Item = Topology> {
    LABELS.iter().enumerate().filter_map(|(label, (key, _))| {
        let parts = labels.get(key)?.split(DELIMITER).map(str::trim);
        let mut values: SmallVec<[Arc<str>; 1]> =
            parts.map(|part| (!part.is_empty()).then(|| Arc::from(part))).collect::<Option<_>>()?;
        values.sort_unstable();
        values.dedup();
        Some(Topology { label, values })
    })
}

impl Topology {
    fn admits(&self, node: &Labels) -> bool {
        let (key, stand_in) = LABELS[self.label];
        let value = node.get(key).or_else(|| node.get(stand_in));
        value.is_some_and(|value| self.values.contains(value))
    }
}

/// Limits the locations to this one, too.
fn narrow(found: &mut Vec<Topology>, topology: Topology) {
    match found.iter_mut().find(|known| known.label == topology.label) {
        Some(known) => known.values.retain(|value| topology.values.binary_search(value).is_ok()),
        None => found.push(topology),
    }
}

/// The common locations of the volumes of the pod's bound claims.
fn of_pod(cx: &Context<'_>, pod: &PodInfo) -> Result<Vec<Topology>, Status> {
    let mut found = Vec::new();
    for (volume, named) in with_claims(pod, &cx.claims_of(pod)) {
        let VolumeSource::Claim(name) = &volume.source else { continue };
        if name.is_empty() {
            return Err(Status::unresolvable("PersistentVolumeClaim had no name"));
        }
        let claim = named.claim().ok_or_else(|| Status::unresolvable(claim_not_found(name)))?;
        if claim.volume_name.is_empty() {
            check_unbound(cx, &claim)?;
            continue;
        }
        let missing = || format!("persistentvolume {:?} not found", claim.volume_name);
        let volume = named.volume().ok_or_else(|| Status::unresolvable(missing()))?;
        topologies(&volume.object.labels).for_each(|topology| narrow(&mut found, topology));
    }
    Ok(found)
}

/// An unbound claim must have binding mode WaitForFirstConsumer.
fn check_unbound(cx: &Context<'_>, claim: &PersistentVolumeClaim) -> Result<(), Status> {
    let name = &claim.storage_class;
    if name.is_empty() {
        return Err(Status::unresolvable("PersistentVolumeClaim had no pv name and storageClass name"));
    }
    let class = cx
        .get::<StorageClass>(&resources::STORAGE_CLASS, name)
        .ok_or_else(|| Status::unresolvable(format!("storageclass.storage.k8s.io {name:?} not found")))?;
    match class.waits_for_first_consumer {
        None => Err(Status::unresolvable(format!("VolumeBindingMode not set for StorageClass {name:?}"))),
        Some(false) => Err(Status::unresolvable("PersistentVolume had no name")),
        Some(true) => Ok(()),
    }
}

fn verdict(volumes: &[Topology], node: &NodeInfo) -> Status {
    let labels = &node.node().labels;
    let has_location = LABELS.iter().any(|(key, _)| labels.get(key).is_some());
    if has_location && !volumes.iter().all(|volume| volume.admits(labels)) {
        Status::unresolvable("node(s) had no available volume zone")
    } else {
        Status::success()
    }
}

fn after_class_added(_: &PodInfo, change: &Change) -> Hint {
    let class = new_object::<StorageClass>(change)?;
    Ok(QueueingHint::queue_if(class.waits_for_first_consumer == Some(true)))
}

fn after_claim_change(pod: &PodInfo, change: &Change) -> Hint {
    let claim = new_object::<PersistentVolumeClaim>(change)?;
    Ok(QueueingHint::queue_if(names_claim(pod, claim.object)))
}

fn after_volume_change(_: &PodInfo, change: &Change) -> Hint {
    let new = new_object::<PersistentVolume>(change)?;
    let moved = old_object::<PersistentVolume>(change)
        .is_none_or(|old| !topologies(&old.object.labels).eq(topologies(&new.object.labels)));
    Ok(QueueingHint::queue_if(moved))
}

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new()
            .pre_filter(&self)
            .filter(&self)
            .enqueue_extensions(&self)
            .sign(&self)
            .caching(&self)
            .incremental(&Arc::new(Stateless))
    }
}

impl PreFilterPlugin for VolumeZone {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        match of_pod(cx, pod) {
            Err(status) => PreFilter::Reject(status),
            Ok(found) if found.is_empty() => PreFilter::Skip,
            Ok(found) => {
                state.write(Topologies(found.into()));
                PreFilter::AllNodes
            }
        }
    }
}

impl FilterPlugin for VolumeZone {
    fn filter(&self, cx: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if let Some(Topologies(volumes)) = state.read() {
            return verdict(volumes, node);
        }
        // Only if a profile disables the plugin at PreFilter.
        match of_pod(cx, pod) {
            Ok(volumes) => verdict(&volumes, node),
            Err(status) => status,
        }
    }
}

impl EnqueueExtensions for VolumeZone {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        let other = EventResource::Other;
        let changed = ActionType::ADD | ActionType::UPDATE;
        vec![
            EventRegistration::hinted(other(resources::STORAGE_CLASS), ActionType::ADD, after_class_added)
                .scoped(HintScope::empty()),
            EventRegistration::always(EventResource::Node, ActionType::ADD | ActionType::UPDATE_NODE_LABEL),
            EventRegistration::hinted(other(resources::PERSISTENT_VOLUME_CLAIM), changed, after_claim_change)
                .scoped(HintScope::VOLUMES | HintScope::NAMESPACE)
                .marked(NAMED_CLAIMS),
            EventRegistration::hinted(other(resources::PERSISTENT_VOLUME), changed, after_volume_change)
                .scoped(HintScope::empty()),
        ]
    }
}

impl SignPlugin for VolumeZone {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        sign(pod, signer)
    }
}

impl Caching for VolumeZone {
    fn filter_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
        Scope::NodeObject
    }

    fn filter_never_fails(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo) -> bool {
        true
    }

    fn stands_alone(&self, pod: &PodInfo) -> bool {
        has_claims(pod)
    }
}

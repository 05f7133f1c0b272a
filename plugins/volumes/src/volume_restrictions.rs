//! Rejects nodes on which a volume of the pod is in exclusive use.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use supercargo_framework::caching::{Applied, Caching, HintMarks, HintScope, IncrementalPlugin, Mark};
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::hint::{self, Hint};
use supercargo_framework::objects::{PersistentVolumeClaim, resources};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, PreFilter, PreFilterExtensions, PreFilterPlugin,
    SignPlugin,
};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, NodeInfo, NodeRecord, Plugin, PodInfo, SmallMap, Status,
    VolumeSource,
};

use crate::pod_volumes::{
    NAMED_CLAIMS, claim_names, claim_not_found, has_claims, named_claims, names_claim, new_object,
    share_claim, sign, with_claims,
};

/// The plugin's name.
pub const NAME: &str = "VolumeRestrictions";

/// The access mode of a claim that only one pod can use at a time.
const READ_WRITE_ONCE_POD: &str = "ReadWriteOncePod";

#[derive(Default)]
pub(crate) struct VolumeRestrictions;

/// The pod's exclusive claims, and the number of uses by pods with a node.
#[derive(Clone)]
struct Exclusive {
    claims: Arc<SmallMap<Arc<str>, ()>>,
    /// Negative if a dry run removes several pods that use one claim: initially they count once.
    references: i64,
}

impl Exclusive {
    /// The pod's exclusive claims, and the references in the whole cluster.
    fn of(cx: &Context<'_>, pod: &PodInfo) -> Result<Self, Status> {
        let mut claims: SmallMap<Arc<str>, ()> = SmallMap::default();
        for (volume, named) in with_claims(pod, &cx.claims_of(pod)) {
            let VolumeSource::Claim(name) = &volume.source else { continue };
            let claim = named.claim().ok_or_else(|| Status::unresolvable(claim_not_found(name)))?;
            let exclusive = claim.access_modes.iter().any(|mode| &**mode == READ_WRITE_ONCE_POD);
            if exclusive {
                claims.insert(Arc::clone(name), ());
            }
        }
        let mut in_use: SmallMap<&str, ()> = SmallMap::default();
        if !claims.is_empty() {
            for (_, node) in cx.nodes().iter() {
                for name in node.claims_in(&pod.namespace).filter(|name| claims.contains(*name)) {
                    in_use.insert(name, ());
                }
            }
        }
        Ok(Self { references: in_use.len() as i64, claims: Arc::new(claims) })
    }

    /// The number of volumes of a pod that use one of the claims. As upstream, ignores the
    /// namespace.
    fn references_of(&self, pod: &PodInfo) -> i64 {
        claim_names(pod).filter(|name| self.claims.contains(*name)).count() as i64
    }
}

fn after_pod_deleted(pod: &PodInfo, change: &Change) -> Hint {
    let gone = hint::old_pod(change)?;
    let frees = gone.namespace == pod.namespace
        && (pod.spec.volumes.conflict(&gone.spec.volumes) || share_claim(pod, gone));
    Ok(QueueingHint::queue_if(frees))
}

/// Finds the pods with a claim of the event's pod, or with a disk that pods may not share.
const POD_MARKS: HintMarks = HintMarks {
    of_pod: |pod| {
        let has_disks = pod.spec.volumes.iter().any(|volume| volume.source.is_exclusive_disk());
        Mark::wishes(named_claims(pod).chain(has_disks.then_some(Mark::Any)))
    },
    of_change: |change| Some(named_claims(change.old_pod()?).collect()),
};

fn after_claim_added(pod: &PodInfo, change: &Change) -> Hint {
    let claim = new_object::<PersistentVolumeClaim>(change)?;
    Ok(QueueingHint::queue_if(names_claim(pod, claim.object)))
}

impl Plugin for VolumeRestrictions {
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
            .incremental(&self)
    }
}

impl PreFilterPlugin for VolumeRestrictions {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        let exclusive = match Exclusive::of(cx, pod) {
            Ok(exclusive) => exclusive,
            Err(status) => return PreFilter::Reject(status),
        };
        let is_idle = exclusive.references == 0
            && !pod.spec.volumes.iter().any(|volume| volume.source.is_exclusive_disk());
        if !is_idle || !exclusive.claims.is_empty() {
            // Written even if no claim is in use: the hooks must notice when one is.
            state.write(exclusive);
        }
        if is_idle { PreFilter::Skip } else { PreFilter::AllNodes }
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        Some(self)
    }
}

impl PreFilterExtensions for VolumeRestrictions {
    fn add_pod(&self, state: &mut CycleState, _: &PodInfo, added: &PodInfo, _: &NodeInfo) -> Status {
        change_references(state, added, 1)
    }

    fn remove_pod(&self, state: &mut CycleState, _: &PodInfo, removed: &PodInfo, _: &NodeInfo) -> Status {
        change_references(state, removed, -1)
    }
}

fn change_references(state: &mut CycleState, pod: &PodInfo, by: i64) -> Status {
    let Some(exclusive) = state.read_mut::<Exclusive>() else {
        return not_prepared();
    };
    match exclusive.references_of(pod) {
        0 => Status::skip(),
        references => {
            exclusive.references += by * references;
            Status::success()
        }
    }
}

/// Only if a profile disables the plugin at PreFilter.
fn not_prepared() -> Status {
    Status::error("cannot read \"PreFilterVolumeRestrictions\" from cycleState")
}

impl FilterPlugin for VolumeRestrictions {
    fn filter(&self, _: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if node.pods().iter().any(|other| pod.spec.volumes.conflict(&other.spec.volumes)) {
            return Status::unschedulable("node(s) had no available disk");
        }
        match state.read::<Exclusive>() {
            None => not_prepared(),
            Some(exclusive) if exclusive.references > 0 => Status::unschedulable(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                 another pod",
            ),
            Some(_) => Status::success(),
        }
    }
}

impl EnqueueExtensions for VolumeRestrictions {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        vec![
            EventRegistration::hinted(EventResource::AssignedPod, ActionType::DELETE, after_pod_deleted)
                .scoped(HintScope::VOLUMES | HintScope::NAMESPACE)
                .marked(POD_MARKS),
            EventRegistration::always(EventResource::Node, ActionType::ADD),
            EventRegistration::hinted(
                EventResource::Other(resources::PERSISTENT_VOLUME_CLAIM),
                ActionType::ADD,
                after_claim_added,
            )
            .scoped(HintScope::VOLUMES | HintScope::NAMESPACE)
            .marked(NAMED_CLAIMS),
        ]
    }
}

impl SignPlugin for VolumeRestrictions {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        sign(pod, signer)
    }
}

impl Caching for VolumeRestrictions {
    fn filter_never_fails(&self, _: &Context<'_>, state: &CycleState, _: &PodInfo) -> bool {
        state.read::<Exclusive>().is_some()
    }

    fn stands_alone(&self, pod: &PodInfo) -> bool {
        has_claims(pod)
    }
}

/// Only pods that use one of the pod's exclusive claims change the state. Such a claim has one
/// user, so this is rare.
impl IncrementalPlugin for VolumeRestrictions {
    fn pod_added(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, _: &NodeRecord) -> Applied {
        follow(state, pod, added)
    }

    fn pod_removed(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        _: &NodeRecord,
    ) -> Applied {
        follow(state, pod, removed)
    }

    fn node_added(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn node_removed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn node_changed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn feasible_changed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeInfo, _: bool) -> Applied {
        Applied::Here
    }
}

fn follow(state: &CycleState, pod: &PodInfo, changed: &PodInfo) -> Applied {
    // Pods without exclusive claims have no state, nor have pods that were rejected for a missing
    // claim.
    let shares = state
        .read::<Exclusive>()
        .is_some_and(|exclusive| changed.namespace == pod.namespace && exclusive.references_of(changed) > 0);
    if shares { Applied::Rebuild } else { Applied::Here }
}

//! Copies of pods, with the ResourceClaims that each of them has alone.

use std::sync::Arc;

use supercargo_framework::objects::{Body, Object, ObjectBody as _, Objects, ResourceClaim, resources};
use supercargo_framework::pod::{OwnerRef, PodStatus};
use supercargo_framework::pod_claims::{PodClaim, PodClaimName, PodClaimStatus, PodClaimStatuses};
use supercargo_framework::volume::VolumeSource;
use supercargo_framework::{PodInfo, Uid};

/// A pod that does not exist, and its claims.
pub(crate) struct Copy {
    pub(crate) pod: PodInfo,
    pub(crate) claims: Vec<Object>,
}

/// Whether copies of the pod need no volume of their own, and their claims are known.
pub(crate) fn can_be_copied(objects: &Objects, pod: &PodInfo) -> bool {
    let is_stateful = pod.is_controlled_by(&["StatefulSet"]);
    let needs_volume = |source: &VolumeSource| match source {
        VolumeSource::Ephemeral => true,
        VolumeSource::Claim(_) => is_stateful,
        _ => false,
    };
    let is_known = |claim: &PodClaim| match pod.claim_name(claim) {
        PodClaimName::Generated(name) => claim_of(objects, pod, name).is_some(),
        PodClaimName::Given(_) | PodClaimName::NotNeeded => true,
        PodClaimName::NotCreated | PodClaimName::Unknown => false,
    };
    !pod.spec.volumes.iter().any(|volume| needs_volume(&volume.source))
        && pod.spec.resource_claims().iter().all(is_known)
}

/// A pod like this one, and new. Claims that were made for the pod are made again.
pub(crate) fn copy_of(objects: &Objects, pod: &PodInfo, number: usize) -> Copy {
    let name: Arc<str> = format!("{}-copy-{number}", pod.name).into();
    let uid = Uid::from(format!("copy-{number}-of-{}", pod.uid).as_str());
    let renamed = |claim: &str| format!("{claim}-copy-{number}").into();
    let claims = made_again(objects, pod, &name, &uid, renamed);
    let statuses = pod.spec.resource_claims().iter().filter_map(|entry| {
        let claim = match pod.claim_name(entry) {
            PodClaimName::Generated(name) => Some(renamed(name)),
            PodClaimName::NotNeeded => None,
            _ => return None,
        };
        Some(PodClaimStatus { name: Arc::clone(&entry.name), claim })
    });
    let generated: Vec<PodClaimStatus> = statuses.collect();
    let mut status = PodStatus::default();
    if !generated.is_empty() {
        status.claims = Some(Box::new(PodClaimStatuses { generated: generated.into(), extended: None }));
    }
    let pod = PodInfo {
        uid,
        name,
        node_name: None,
        terminating: false,
        status,
        status_requests: None,
        ..pod.clone()
    };
    Copy { pod, claims }
}

/// The pod without a node, as its controller makes it again. It has its claims from templates.
pub(crate) fn replacement(pod: &PodInfo) -> PodInfo {
    let mut status = PodStatus::default();
    if let Some(claims) = &pod.status.claims {
        status.claims = Some(Box::new(PodClaimStatuses { extended: None, ..(**claims).clone() }));
    }
    PodInfo { node_name: None, status, status_requests: None, ..pod.clone() }
}

/// The claims that were made for a pod from templates, as their controller makes them for another
/// pod, which has this name and UID.
pub(crate) fn made_again(
    objects: &Objects,
    pod: &PodInfo,
    name: &Arc<str>,
    uid: &Uid,
    renamed: impl Fn(&str) -> Arc<str>,
) -> Vec<Object> {
    let entries = pod.spec.resource_claims().iter();
    let generated = entries.filter_map(|entry| match pod.claim_name(entry) {
        PodClaimName::Generated(claim) => claim_of(objects, pod, claim),
        _ => None,
    });
    let made = |claim: &Arc<Object>| {
        let key: Arc<str> = format!("{}/{}", claim.namespace(), renamed(claim.name())).into();
        let owner = claim.controller.as_deref().cloned().unwrap_or_default();
        let owner = OwnerRef { name: Arc::clone(name), uid: (*uid.text()).into(), ..owner };
        Object {
            uid: format!("{key} of {}", owner.uid).into(),
            key,
            terminating: false,
            controller: Some(Arc::new(owner)),
            ..with(claim, |body| *body = unallocated(body))
        }
    };
    generated.map(made).collect()
}

/// The claim without what its status says.
pub(crate) fn unallocated(claim: &ResourceClaim) -> ResourceClaim {
    ResourceClaim {
        allocation: None,
        reserved_for: Box::default(),
        devices: Box::default(),
        has_finalizer: false,
        ..claim.clone()
    }
}

/// A changed copy of a claim.
pub(crate) fn with(claim: &Object, change: impl FnOnce(&mut ResourceClaim)) -> Object {
    let mut body = ResourceClaim::of(&claim.body).cloned().unwrap_or_default();
    change(&mut body);
    Object { body: Body::ResourceClaim(body), ..claim.clone() }
}

/// A claim in the pod's namespace.
pub(crate) fn claim_of<'a>(objects: &'a Objects, pod: &PodInfo, name: &str) -> Option<&'a Arc<Object>> {
    objects.get(&resources::RESOURCE_CLAIM, &format!("{}/{name}", pod.namespace))
}

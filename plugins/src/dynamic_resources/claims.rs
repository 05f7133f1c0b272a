//! The claims that a pod names.

use std::sync::Arc;

use supercargo_framework::objects::{Object, ObjectBody as _, Objects, ResourceClaim, Typed, resources};
use supercargo_framework::pod_claims::PodClaimName;
use supercargo_framework::{PodInfo, Uid};

/// The body of a claim.
pub(super) fn body(claim: &Object) -> &ResourceClaim {
    ResourceClaim::of(&claim.body).expect("only claims are found")
}

/// The claims that the pod's spec names, in its order. A claim under two names is there twice. The
/// error is upstream's, about the first claim that is not ready.
pub(super) fn of_pod<'a>(
    pod: &'a PodInfo,
    claim_named: impl Fn(&str) -> Option<&'a Arc<Object>>,
) -> Result<Vec<Typed<'a, ResourceClaim>>, String> {
    let mut claims = Vec::new();
    for entry in pod.spec.resource_claims() {
        let (name, is_generated) = match pod.claim_name(entry) {
            PodClaimName::NotNeeded => continue,
            PodClaimName::Given(name) => (name, false),
            PodClaimName::Generated(name) => (name, true),
            PodClaimName::NotCreated => {
                return Err(format!("pod \"{}\": ResourceClaim not created yet", pod.key()));
            }
            PodClaimName::Unknown => {
                let (pod, name) = (pod.key(), &entry.name);
                return Err(format!(
                    "pod \"{pod}\", spec.resourceClaim {name:?}: none of the supported fields are set"
                ));
            }
        };
        let key = format!("{}/{name}", pod.namespace);
        let Some(claim) = claim_named(&key).and_then(Typed::of) else {
            return Err(format!("could not find ResourceClaim {key:?}"));
        };
        if claim.object.terminating {
            return Err(format!("resourceclaim {name:?} is being deleted"));
        }
        if is_generated && !is_controlled_by(claim.object, pod) {
            return Err(format!(
                "ResourceClaim {key} was not created for Pod {} (Pod is not owner)",
                pod.key()
            ));
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// The same without recorded reads: for PreEnqueue and hints.
pub(super) fn known<'a>(
    pod: &'a PodInfo,
    objects: &'a Objects,
) -> Result<Vec<Typed<'a, ResourceClaim>>, String> {
    of_pod(pod, |key| objects.get(&resources::RESOURCE_CLAIM, key))
}

pub(super) fn is_controlled_by(object: &Object, pod: &PodInfo) -> bool {
    object.controller.as_ref().is_some_and(|owner| *owner.uid == *pod.uid.text())
}

/// Whether the claim is reserved for the pod.
pub(super) fn is_reserved_for(claim: &ResourceClaim, pod: &Uid) -> bool {
    claim.reserved_for.iter().any(|consumer| *consumer.uid == *pod.text())
}

//! The claims that a pod names.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use supercargo_framework::objects::{
    ClaimAllocation, Object, ObjectBody as _, Objects, PodGroup, ResourceClaim, Typed, resources,
};
use supercargo_framework::pod_claims::PodClaimName;
use supercargo_framework::{NodeRecord, PodInfo, Uid};

/// The body of a claim.
pub(super) fn body(claim: &Object) -> &ResourceClaim {
    ResourceClaim::of(&claim.body).expect("only claims are found")
}

/// The claims that the pod's spec names, in its order. A claim under two names is there twice. The
/// error is upstream's, about the first claim that is not ready. `group` is that of the pod, if it
/// may control claims.
pub(super) fn of_pod<'a>(
    pod: &'a PodInfo,
    group: Option<&str>,
    claim_named: impl Fn(&str) -> Option<&'a Arc<Object>>,
) -> Result<Vec<Typed<'a, ResourceClaim>>, String> {
    let mut claims = Vec::new();
    for entry in pod.spec.resource_claims() {
        let owner = || format!("pod \"{}\"", pod.key());
        let Some((name, is_generated)) =
            named(pod.claim_name(entry), owner, &format_args!("{:?}", entry.name))?
        else {
            continue;
        };
        let key = format!("{}/{name}", pod.namespace);
        let Some(claim) = claim_named(&key).and_then(Typed::of) else {
            return Err(format!("could not find ResourceClaim {key:?}"));
        };
        if claim.object.terminating {
            return Err(format!("resourceclaim {name:?} is being deleted"));
        }
        if is_generated
            && !is_controlled_by(claim.object, &pod.uid.text())
            && !group.is_some_and(|group| is_controlled_by_group(claim.object, group))
        {
            let why = match group {
                None => "Pod is not owner".to_owned(),
                Some(group) => format!("neither Pod nor PodGroup {group} is the owner"),
            };
            return Err(format!("ResourceClaim {key} was not created for Pod {} ({why})", pod.key()));
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// The name of the claim of an entry, and whether a controller has created it. `None` if none is
/// needed.
fn named<'a>(
    claim: PodClaimName<'a>,
    owner: impl Fn() -> String,
    entry: &dyn Display,
) -> Result<Option<(&'a Arc<str>, bool)>, String> {
    match claim {
        PodClaimName::NotNeeded => Ok(None),
        PodClaimName::Given(name) => Ok(Some((name, false))),
        PodClaimName::Generated(name) => Ok(Some((name, true))),
        PodClaimName::NotCreated => Err(format!("{}: ResourceClaim not created yet", owner())),
        PodClaimName::Unknown => {
            Err(format!("{}, spec.resourceClaim {entry}: none of the supported fields are set", owner()))
        }
    }
}

/// The same without recorded reads: for PreEnqueue and hints.
pub(super) fn known<'a>(
    pod: &'a PodInfo,
    group: Option<&str>,
    objects: &'a Objects,
) -> Result<Vec<Typed<'a, ResourceClaim>>, String> {
    of_pod(pod, group, |key| objects.get(&resources::RESOURCE_CLAIM, key))
}

/// Which of the pod's claims, in the order of [`of_pod`], its group names in the same way. They are
/// those of the group.
pub(super) fn of_group(pod: &PodInfo, group: &PodGroup) -> Box<[bool]> {
    let entries = pod.spec.resource_claims().iter();
    let entries = entries.filter(|entry| pod.claim_name(entry) != PodClaimName::NotNeeded);
    entries.map(|entry| group.claims.contains(entry)).collect()
}

/// The claims that a group names and that are for it. The error is upstream's, about the first one
/// that is not there.
pub(super) fn named_by<'a>(
    group: Typed<'a, PodGroup>,
    claim_named: impl Fn(&str) -> Option<&'a Arc<Object>>,
) -> Result<Vec<Typed<'a, ResourceClaim>>, String> {
    let key = &group.object.key;
    let mut claims = Vec::new();
    for entry in &group.body.claims {
        let owner = || format!("PodGroup {key}");
        let Some((name, is_generated)) = named(group.body.claim_name(entry), owner, &entry.name)? else {
            continue;
        };
        let claim_key = format!("{}/{name}", group.object.namespace());
        let Some(claim) = claim_named(&claim_key).and_then(Typed::of) else {
            return Err(format!("could not find ResourceClaim {claim_key:?}"));
        };
        if !is_generated || is_controlled_by(claim.object, &group.object.uid) {
            claims.push(claim);
        }
    }
    Ok(claims)
}

fn is_controlled_by(object: &Object, uid: &str) -> bool {
    object.controller.as_ref().is_some_and(|owner| *owner.uid == *uid)
}

/// Whether a PodGroup with this name controls the claim. Pods do not know the UID of their group.
fn is_controlled_by_group(claim: &Object, group: &str) -> bool {
    claim.controller.as_ref().is_some_and(|owner| {
        let is_group = owner.api_version.starts_with("scheduling.k8s.io/") && *owner.kind == *"PodGroup";
        is_group && *owner.name == *group
    })
}

/// Whether the claim is reserved for the pod.
pub(super) fn is_reserved_for(claim: &ResourceClaim, pod: &Uid) -> bool {
    claim.reserved_for.iter().any(|consumer| *consumer.uid == *pod.text())
}

pub(super) fn is_allocated(claim: &Object) -> bool {
    body(claim).allocation.is_some()
}

/// Whether an allocated claim can be used on some nodes only.
pub(super) fn limits_nodes(claim: &Object) -> bool {
    let allocation = body(claim).allocation.as_ref();
    allocation.is_some_and(|allocation| allocation.node_selector.is_some() || skips_operations(allocation))
}

/// Whether an allocated claim cannot be used on the node.
pub(super) fn excludes(claim: &Object, node: &NodeRecord) -> bool {
    body(claim).allocation.as_ref().is_some_and(|allocation| {
        let selector = allocation.node_selector.as_ref();
        selector.is_some_and(|selector| !selector.terms.any_matches(node))
            || (skips_operations(allocation)
                && !node.declared_features.iter().any(|it| &**it == "DRAOptionalNodeOperations"))
    })
}

fn skips_operations(allocation: &ClaimAllocation) -> bool {
    allocation.results.iter().any(|result| result.skips_node_operations)
}

/// The claims without those that come again: a pod may name a claim twice.
pub(super) fn once_each(claims: &[Arc<Object>]) -> impl Iterator<Item = &Arc<Object>> {
    let mut seen = BTreeSet::new();
    claims.iter().filter(move |claim| seen.insert(&*claim.uid))
}

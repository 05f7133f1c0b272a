//! A pod's claims: bound ones, and those with delayed binding.

use std::sync::Arc;

use supercargo_framework::context::NamedClaim;
use supercargo_framework::objects::{
    Object, ObjectBody, PersistentVolume, PersistentVolumeClaim, StorageClass, Typed, annotations, resources,
};
use supercargo_framework::volume::Volume;
use supercargo_framework::{Context, PodInfo, SmallMap, Status, Text, VolumeSource};

use super::delayed::{ClassClaims, DelayedClaim};
use super::reach::Reach;
use crate::pod_volumes::{claim_not_found, with_claims};

/// The claims of a pod, with everything that does not depend on the node.
///
/// A pod can name one claim tens of thousands of times: only the names of its volumes are unique.
pub(super) struct Claims {
    /// Where the volumes of bound claims are, each place once, in the pod's order; `None` for a
    /// missing volume.
    pub(super) bound: Box<[Option<Reach>]>,
    /// Claims with delayed binding, in the pod's order, as often as it names them.
    pub(super) delayed: Box<[DelayedClaim]>,
    /// Their classes.
    pub(super) classes: Box<[ClassClaims]>,
    /// Those of `delayed` with a selected node.
    pub(super) selected: Box<[usize]>,
    /// Those without, the smallest request first, so that small claims get small volumes.
    pub(super) to_match: Box<[usize]>,
    /// The nodes that the selected nodes leave.
    pub(super) candidates: Candidates,
    /// The error that prevents matching volumes.
    pub(super) unmatchable: Option<Text>,
}

/// The nodes that claims with a selected node allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Candidates {
    /// No claim has a selected node.
    All,
    /// All such claims have this one.
    Only(Arc<str>),
    /// They have different ones.
    None,
}

impl Candidates {
    fn of(claims: &[DelayedClaim]) -> Self {
        let narrow = |candidates, node: &Arc<str>| match candidates {
            Self::All => Self::Only(Arc::clone(node)),
            Self::Only(known) if known == *node => Self::Only(known),
            _ => Self::None,
        };
        claims.iter().filter_map(DelayedClaim::selected_node).fold(Self::All, narrow)
    }

    /// Whether the node is one of them.
    pub(super) fn include(&self, node: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(known) => **known == *node,
            Self::None => false,
        }
    }
}

impl Claims {
    /// The pod's claims; `None` if it has none; an error if one of them makes the pod
    /// unschedulable.
    pub(super) fn of(
        cx: &Context<'_>,
        pod: &PodInfo,
        with_attributes_classes: bool,
    ) -> Result<Option<Self>, Status> {
        let named = cx.claims_of(pod);
        if named.is_empty() {
            return Ok(None);
        }
        let (mut bound, mut delayed, mut immediate) = (Vec::new(), Vec::new(), false);
        // An error of a class comes after those of claims.
        let mut failed = None;
        // Addresses are quicker to compare than names.
        let mut seen: SmallMap<Option<*const Object>, ()> = SmallMap::default();
        for existing in existing(pod, &named) {
            let (claim, volume) = existing.map_err(Status::unresolvable)?;
            if is_bound(claim.object) {
                let volume = volume.map(|volume| volume.object);
                if seen.insert(volume.map(Arc::as_ptr), ()).is_none() {
                    bound.push(volume.map(Reach::of));
                }
            } else {
                match binding_class(cx, claim) {
                    Ok(Some(class)) => delayed.push((claim, class)),
                    Ok(None) => immediate = true,
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
        }
        if let Some(error) = failed {
            return Err(Status::error(error));
        }
        if immediate {
            return Err(Status::unresolvable("pod has unbound immediate PersistentVolumeClaims"));
        }
        let (delayed, classes) = ClassClaims::of(cx, &delayed, with_attributes_classes);
        let (selected, mut to_match): (Vec<_>, Vec<_>) =
            (0..delayed.len()).partition(|i| delayed[*i].selected_node().is_some());
        to_match.sort_by_key(|i| delayed[*i].size());
        let unmatchable = (!with_attributes_classes).then(|| attributes_class_error(&delayed, &to_match));
        Ok(Some(Self {
            bound: distinct(bound),
            candidates: Candidates::of(&delayed),
            delayed,
            classes,
            selected: selected.into(),
            to_match: to_match.into(),
            unmatchable: unmatchable.flatten(),
        }))
    }

    /// Whether answers can be errors.
    pub(super) fn can_fail(&self) -> bool {
        self.unmatchable.is_some() || self.bound.iter().flatten().any(Reach::can_fail)
    }

    /// Whether any node can have a storage score: one that is not 0.
    pub(super) fn can_score(&self) -> bool {
        self.classes.iter().any(ClassClaims::can_score)
    }

    /// Whether answers depend on a node's CSINode.
    pub(super) fn depend_on_csi_node(&self) -> bool {
        self.bound.iter().flatten().any(Reach::depends_on_csi_node)
    }
}

/// Whether a claim is completely bound.
pub(super) fn is_bound(claim: &Object) -> bool {
    PersistentVolumeClaim::of(&claim.body).is_some_and(|body| !body.volume_name.is_empty())
        && claim.annotations.get(annotations::BIND_COMPLETED).is_some()
}

/// The first of equal places.
fn distinct(all: Vec<Option<Reach>>) -> Box<[Option<Reach>]> {
    let is_first: Vec<bool> = {
        let mut seen = SmallMap::default();
        let places = all.iter().map(|volume| volume.as_ref().map(Reach::place));
        places.map(|place| seen.insert(place, ()).is_none()).collect()
    };
    all.into_iter().zip(is_first).filter_map(|(volume, is_first)| is_first.then_some(volume)).collect()
}

/// A claim, with its volume.
type Existing<'a> = (Typed<'a, PersistentVolumeClaim>, Option<Typed<'a, PersistentVolume>>);

/// The pod's claims in the order of its volumes; an error for one that cannot be used.
fn existing<'a>(
    pod: &'a PodInfo,
    named: &'a [NamedClaim],
) -> impl Iterator<Item = Result<Existing<'a>, String>> {
    let check = |(volume, named): (&'a Volume, &'a NamedClaim)| {
        let name = || volume.claim_name(&pod.name).unwrap_or_default();
        let is_ephemeral = volume.source == VolumeSource::Ephemeral;
        let claim = named.claim().ok_or_else(|| {
            let name = name();
            if is_ephemeral {
                format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                )
            } else {
                claim_not_found(&name)
            }
        })?;
        if &*claim.phase == "Lost" {
            let (name, volume) = (name(), &claim.volume_name);
            return Err(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            ));
        }
        if claim.object.terminating {
            return Err(format!("persistentvolumeclaim {:?} is being deleted", name()));
        }
        let owner = claim.object.controller.as_ref();
        if is_ephemeral && owner.is_none_or(|owner| !pod.uid.is(&owner.uid)) {
            let key = &claim.object.key;
            return Err(format!("PVC {key} was not created for pod {} (pod is not owner)", pod.key()));
        }
        Ok((claim, named.volume()))
    };
    with_claims(pod, named).map(check)
}

/// The class of an unbound claim with delayed binding; `None` for other claims, including those
/// that name their volume or whose class does not exist.
fn binding_class<'a>(
    cx: &Context<'a>,
    claim: Typed<'a, PersistentVolumeClaim>,
) -> Result<Option<Typed<'a, StorageClass>>, String> {
    let name = &claim.storage_class;
    if name.is_empty() {
        return Ok(None);
    }
    let Some(class) = cx.get::<StorageClass>(&resources::STORAGE_CLASS, name) else {
        return Ok(None);
    };
    match class.waits_for_first_consumer {
        None => Err(format!("VolumeBindingMode not set for StorageClass {name:?}")),
        Some(waits) => Ok((waits && claim.volume_name.is_empty()).then_some(class)),
    }
}

/// The error of a claim with an attributes class, if these are disabled.
fn attributes_class_error(delayed: &[DelayedClaim], to_match: &[usize]) -> Option<Text> {
    let demanding = |claim: &&DelayedClaim| {
        let class = claim.body().and_then(|body| body.attributes_class.as_deref());
        class.is_some_and(|class| !class.is_empty())
    };
    let claim = to_match.iter().map(|i| &delayed[*i]).find(demanding)?;
    let message = format!(
        "unsupported volumeAttributesClassName is set on claim {} when the feature-gate VolumeAttributesClass is \
         disabled",
        claim.claim.key
    );
    Some(message.into())
}

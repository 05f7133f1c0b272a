//! A pod's claims: which are bound, which wait for the pod to get a node, and what could become of those.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::objects::{
    CsiDriver, CsiStorageCapacity, Object, ObjectBody, PersistentVolume, PersistentVolumeClaim, StorageClass,
    Typed, annotations, resources,
};
use supercargo_framework::{Context, Labels, PodInfo, Status, Text, VolumeSource};

use super::available::Available;
use super::reach::Reach;

/// The provisioner of classes whose volumes nobody provisions.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The claims of a pod. What does not depend on the node is worked out once.
pub(super) struct Claims {
    /// The volumes of bound claims, in the pod's order; `None` for one that does not exist.
    pub(super) bound: Box<[Option<Reach>]>,
    /// Claims that are bound or provisioned once the pod has a node, in the pod's order.
    pub(super) delayed: Box<[DelayedClaim]>,
    /// Those of `delayed` for which a volume is looked for, the smallest request first.
    pub(super) to_match: Box<[usize]>,
    /// Why no volume can be looked for.
    pub(super) unmatchable: Option<Text>,
}

/// A claim that waits for its pod to get a node.
pub(super) struct DelayedClaim {
    /// The claim.
    pub(super) claim: Arc<Object>,
    /// The node that its volume is being provisioned for.
    pub(super) selected_node: Option<Arc<str>>,
    /// Volumes that are this claim's already, by their word.
    pub(super) prebound: Box<[Arc<Object>]>,
    /// Volumes that could become this claim's, the smallest first.
    pub(super) available: Available,
    /// Whether, and where, a volume can be provisioned.
    pub(super) provisioning: Provisioning,
}

/// Whether a volume can be provisioned for a claim.
pub(super) enum Provisioning {
    /// The claim's class has no provisioner.
    Impossible,
    /// On the nodes that the class allows.
    Possible {
        /// The class.
        class: Arc<Object>,
        /// Storage of which one must be accessible from the node, when the driver says how much it has: what is large
        /// enough for the claim.
        storage: Option<Box<[Arc<Object>]>>,
    },
}

impl DelayedClaim {
    /// What the claim says.
    pub(super) fn body(&self) -> Option<&PersistentVolumeClaim> {
        PersistentVolumeClaim::of(&self.claim.body)
    }
}

impl Provisioning {
    /// Whether the class allows volumes for a node with these labels. Same as upstream: a term without requirements allows
    /// nothing.
    pub(super) fn is_allowed(class: &Object, labels: &Labels) -> bool {
        let Some(class) = StorageClass::of(&class.body) else {
            return false;
        };
        let meets = |(key, values): &(Arc<str>, Box<[Arc<str>]>)| {
            labels.get(key).is_some_and(|value| values.contains(value))
        };
        class.allowed_topologies.is_empty()
            || class.allowed_topologies.iter().any(|term| !term.is_empty() && term.iter().all(meets))
    }
}

impl Claims {
    /// The pod's claims; `None` when it has none, an error when it cannot be scheduled because of one.
    pub(super) fn of(
        cx: &Context<'_>,
        pod: &PodInfo,
        with_attributes_classes: bool,
    ) -> Result<Option<Self>, Status> {
        let named = existing(cx, pod).map_err(Status::unresolvable)?;
        if named.is_empty() {
            return Ok(None);
        }
        let (mut bound, mut delayed, mut immediate) = (Vec::new(), Vec::new(), false);
        for claim in named {
            if is_bound(claim.object) {
                let volume = cx.object(&resources::PERSISTENT_VOLUME, &claim.volume_name);
                bound.push(volume.map(Reach::of));
            } else {
                match binding_class(cx, claim).map_err(Status::error)? {
                    Some(class) => delayed.push((claim, class)),
                    None => immediate = true,
                }
            }
        }
        if immediate {
            return Err(Status::unresolvable("pod has unbound immediate PersistentVolumeClaims"));
        }
        let delayed: Box<[DelayedClaim]> = delayed
            .into_iter()
            .map(|(claim, class)| prepare(cx, claim, class, with_attributes_classes))
            .collect();
        let to_match = by_size(&delayed);
        let unmatchable = (!with_attributes_classes).then(|| attributes_class_error(&delayed, &to_match));
        Ok(Some(Self { bound: bound.into(), delayed, to_match, unmatchable: unmatchable.flatten() }))
    }

    /// Whether what a node's CSINode says makes a difference.
    pub(super) fn depend_on_csi_node(&self) -> bool {
        self.bound.iter().flatten().any(Reach::depends_on_csi_node)
    }
}

/// Whether a claim is bound for good.
pub(super) fn is_bound(claim: &Object) -> bool {
    PersistentVolumeClaim::of(&claim.body).is_some_and(|body| !body.volume_name.is_empty())
        && claim.annotations.get(annotations::BIND_COMPLETED).is_some()
}

/// The pod's claims in the order of its volumes, or why one of them cannot be used.
fn existing<'a>(
    cx: &Context<'a>,
    pod: &PodInfo,
) -> Result<SmallVec<[Typed<'a, PersistentVolumeClaim>; 4]>, String> {
    let mut claims = SmallVec::new();
    for volume in &pod.spec.volumes {
        let Some(name) = volume.claim_name(&pod.name) else {
            continue;
        };
        let is_ephemeral = volume.source == VolumeSource::Ephemeral;
        let key = format!("{}/{name}", pod.namespace);
        let claim: Typed<'_, PersistentVolumeClaim> =
            cx.get(&resources::PERSISTENT_VOLUME_CLAIM, &key).ok_or_else(|| {
                if is_ephemeral {
                    format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                    )
                } else {
                    format!("persistentvolumeclaim {name:?} not found")
                }
            })?;
        if &*claim.phase == "Lost" {
            let volume = &claim.volume_name;
            return Err(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            ));
        }
        if claim.object.terminating {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        let owner = claim.object.controller.as_ref();
        if is_ephemeral && owner.is_none_or(|owner| !pod.uid.is(&owner.uid)) {
            return Err(format!("PVC {key} was not created for pod {} (pod is not owner)", pod.key()));
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// The class of an unbound claim that waits for its pod to get a node; `None` when it does not wait. One that names its
/// volume does not, and neither does one whose class does not exist.
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

/// Works out what could become of a claim on some node.
fn prepare(
    cx: &Context<'_>,
    claim: Typed<'_, PersistentVolumeClaim>,
    class: Typed<'_, StorageClass>,
    with_attributes_classes: bool,
) -> DelayedClaim {
    let (mut prebound, mut available) = (Vec::new(), Vec::new());
    for volume in cx.volumes_of_class(&claim.storage_class) {
        if !is_suitable(claim, volume, with_attributes_classes) {
            continue;
        }
        if volume.claim.is_some() {
            prebound.push(Arc::clone(volume.object));
        } else if is_available(claim, volume) {
            available.push((volume.capacity, Arc::clone(volume.object)));
        }
    }
    // Of equals, the first in the order of names.
    available.sort_by_key(|(capacity, _)| *capacity);
    DelayedClaim {
        claim: Arc::clone(claim.object),
        selected_node: claim.object.annotations.get(annotations::SELECTED_NODE).cloned(),
        prebound: prebound.into(),
        available: Available::new(available.into_iter().map(|(_, volume)| volume).collect::<Vec<_>>()),
        provisioning: provisioning(cx, claim, class),
    }
}

/// Whether a volume is large enough and of the right kind, and no other claim's.
fn is_suitable(
    claim: Typed<'_, PersistentVolumeClaim>,
    volume: Typed<'_, PersistentVolume>,
    with_attributes_classes: bool,
) -> bool {
    let wanted = if with_attributes_classes { claim.attributes_class.as_deref() } else { None };
    (volume.claim.is_none() || holds(&volume, claim.object))
        && volume.capacity >= claim.size()
        && volume.volume_mode == claim.volume_mode
        && volume.attributes_class.as_deref().unwrap_or("") == wanted.unwrap_or("")
        && !volume.object.terminating
}

/// Whether the volume is this claim's, by the volume's word.
pub(super) fn holds(volume: &PersistentVolume, claim: &Object) -> bool {
    volume.claim.as_ref().is_some_and(|holder| {
        &*holder.name == claim.name()
            && &*holder.namespace == claim.namespace()
            && (holder.uid.is_empty() || holder.uid == claim.uid)
    })
}

/// Whether a volume that is nobody's can become this claim's.
fn is_available(claim: Typed<'_, PersistentVolumeClaim>, volume: Typed<'_, PersistentVolume>) -> bool {
    &*volume.phase == "Available"
        && claim.selector.as_ref().is_none_or(|selector| selector.matches(&volume.object.labels))
        && claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
}

/// Whether a volume can be provisioned for the claim.
fn provisioning(
    cx: &Context<'_>,
    claim: Typed<'_, PersistentVolumeClaim>,
    class: Typed<'_, StorageClass>,
) -> Provisioning {
    let provisioner = &*class.provisioner;
    if provisioner.is_empty() || provisioner == NO_PROVISIONER {
        return Provisioning::Impossible;
    }
    // A request of nothing is one, too: somebody must offer storage.
    let counts_storage = claim.request.is_some()
        && cx
            .get::<CsiDriver>(&resources::CSI_DRIVER, provisioner)
            .is_some_and(|driver| driver.storage_capacity);
    let storage = counts_storage.then(|| {
        cx.list::<CsiStorageCapacity>(&resources::CSI_STORAGE_CAPACITY)
            .filter(|storage| {
                &*storage.storage_class == class.object.name()
                    && volume_limit(storage).is_some_and(|limit| limit >= claim.size())
            })
            .map(|storage| Arc::clone(storage.object))
            .collect()
    });
    Provisioning::Possible { class: Arc::clone(class.object), storage }
}

/// How large a volume can be there.
pub(super) fn volume_limit(storage: &CsiStorageCapacity) -> Option<i64> {
    storage.maximum_volume_size.or(storage.capacity)
}

/// The claims for which no node has been selected, the smallest request first, so that small volumes go to small claims.
fn by_size(delayed: &[DelayedClaim]) -> Box<[usize]> {
    let mut open: Vec<usize> = (0..delayed.len()).filter(|i| delayed[*i].selected_node.is_none()).collect();
    open.sort_by_key(|i| delayed[*i].body().map_or(0, PersistentVolumeClaim::size));
    open.into()
}

/// What keeps a volume from being looked for where volumes have no attributes classes.
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

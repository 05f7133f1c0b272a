//! A pod's claims: bound ones, and those with delayed binding with their candidates.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::objects::{
    CsiDriver, CsiStorageCapacity, Object, ObjectBody, PersistentVolume, PersistentVolumeClaim, StorageClass,
    Typed, annotations, resources,
};
use supercargo_framework::{Context, Labels, PodInfo, Status, Text, VolumeSource};

use super::available::Available;
use super::reach::Reach;

/// The provisioner of classes without dynamic provisioning.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The claims of a pod, with everything that does not depend on the node.
pub(super) struct Claims {
    /// The volumes of bound claims, in the pod's order; `None` for a missing volume.
    pub(super) bound: Box<[Option<Reach>]>,
    /// Claims with delayed binding, in the pod's order.
    pub(super) delayed: Box<[DelayedClaim]>,
    /// Those of `delayed` without a selected node, the smallest request first.
    pub(super) to_match: Box<[usize]>,
    /// The error that prevents matching volumes.
    pub(super) unmatchable: Option<Text>,
}

/// A claim with delayed binding.
pub(super) struct DelayedClaim {
    /// The claim.
    pub(super) claim: Arc<Object>,
    /// The selected node, which its volume is being provisioned for.
    pub(super) selected_node: Option<Arc<str>>,
    /// Volumes whose `claimRef` is this claim.
    pub(super) prebound: Box<[Arc<Object>]>,
    /// Volumes that can be bound to this claim, the smallest first.
    pub(super) available: Available,
    /// Whether and where a volume can be provisioned.
    pub(super) provisioning: Provisioning,
}

/// Whether a volume can be provisioned for a claim.
pub(super) enum Provisioning {
    /// The claim's class has no provisioner.
    Impossible,
    /// On the nodes that the class's `allowedTopologies` match.
    Possible {
        /// The class.
        class: Arc<Object>,
        /// If the driver reports capacity: the capacities that are large enough for the claim. One
        /// of them must be accessible from the node.
        storage: Option<Box<[Arc<Object>]>>,
    },
}

impl DelayedClaim {
    /// The claim's body.
    pub(super) fn body(&self) -> Option<&PersistentVolumeClaim> {
        PersistentVolumeClaim::of(&self.claim.body)
    }
}

impl Provisioning {
    /// Whether the class allows volumes for a node with these labels. As upstream, a term without
    /// requirements allows nothing.
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
    /// The pod's claims; `None` if it has none; an error if one of them makes the pod
    /// unschedulable.
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

    /// Whether answers can be errors.
    pub(super) fn can_fail(&self) -> bool {
        self.unmatchable.is_some() || self.bound.iter().flatten().any(Reach::can_fail)
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

/// The pod's claims in the order of its volumes, or the error of one that cannot be used.
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

/// Collects the candidates for a claim.
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
    // Of equal volumes, the first by name.
    available.sort_by_key(|(capacity, _)| *capacity);
    DelayedClaim {
        claim: Arc::clone(claim.object),
        selected_node: claim.object.annotations.get(annotations::SELECTED_NODE).cloned(),
        prebound: prebound.into(),
        available: Available::new(available.into_iter().map(|(_, volume)| volume).collect::<Vec<_>>()),
        provisioning: provisioning(cx, claim, class),
    }
}

/// Whether a volume is large enough, of the right kind, and not another claim's.
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

/// Whether the volume's `claimRef` is this claim.
pub(super) fn holds(volume: &PersistentVolume, claim: &Object) -> bool {
    volume.claim.as_ref().is_some_and(|holder| {
        &*holder.name == claim.name()
            && &*holder.namespace == claim.namespace()
            && (holder.uid.is_empty() || holder.uid == claim.uid)
    })
}

/// Whether a volume without a claim can be bound to this claim.
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
    // A request of 0 also requires a driver with capacity.
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

/// The maximum size of a volume there.
pub(super) fn volume_limit(storage: &CsiStorageCapacity) -> Option<i64> {
    storage.maximum_volume_size.or(storage.capacity)
}

/// The claims without a selected node, the smallest request first, so that small claims get small
/// volumes.
fn by_size(delayed: &[DelayedClaim]) -> Box<[usize]> {
    let mut open: Vec<usize> = (0..delayed.len()).filter(|i| delayed[*i].selected_node.is_none()).collect();
    open.sort_by_key(|i| delayed[*i].body().map_or(0, PersistentVolumeClaim::size));
    open.into()
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

//! Queueing hints for pods that exceeded volume limits.

use supercargo_framework::PodInfo;
use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::hint::{Hint, held_a_node, old_pod};
use supercargo_framework::objects::{CsiNode, PersistentVolumeClaim, VolumeAttachment};
use supercargo_framework::volume::VolumeSource;

use super::attachable::{inline_driver, may_count};
use crate::pod_volumes::{new_object, old_object, uses_claim};

/// The limit of a driver has increased. As upstream, an absent limit counts as 0.
pub(super) fn after_csi_node_update(_: &PodInfo, change: &Change) -> Hint {
    let new = new_object::<CsiNode>(change)?;
    let old = old_object::<CsiNode>(change).ok_or("expected a CSINode before the event")?;
    let old_limit = |name: &str| {
        let known = old.drivers.iter().rfind(|driver| *driver.name == *name);
        known.and_then(|driver| driver.limit).unwrap_or_default()
    };
    let rose = |name: &str, limit: Option<i32>| limit.unwrap_or_default() > old_limit(name);
    Ok(QueueingHint::queue_if(new.drivers.iter().any(|driver| rose(&driver.name, driver.limit))))
}

/// A pod with a volume that could count has left its node.
pub(super) fn after_pod_deleted(_: &PodInfo, change: &Change) -> Hint {
    let gone = old_pod(change)?;
    let frees = held_a_node(gone) && gone.spec.volumes.iter().any(|volume| may_count(&volume.source));
    Ok(QueueingHint::queue_if(frees))
}

/// A claim of the pod was added, including that of an ephemeral volume.
pub(super) fn after_claim_added(pod: &PodInfo, change: &Change) -> Hint {
    let claim = new_object::<PersistentVolumeClaim>(change)?;
    Ok(QueueingHint::queue_if(uses_claim(pod, claim.object)))
}

/// A volume was detached. As upstream, this does not check the drivers of the pod's claims, and
/// ignores ephemeral volumes.
pub(super) fn after_volume_detached(pod: &PodInfo, change: &Change) -> Hint {
    let gone =
        old_object::<VolumeAttachment>(change).ok_or("expected a VolumeAttachment before the event")?;
    for volume in &pod.spec.volumes {
        if matches!(volume.source, VolumeSource::Claim(_)) {
            return Ok(QueueingHint::Queue);
        }
        if let Some(driver) = inline_driver(&volume.source) {
            let error = |error| format!("converting volume({}) from inline to csi: {error}", volume.name);
            if driver.map_err(error)? == *gone.attacher {
                return Ok(QueueingHint::Queue);
            }
        }
    }
    Ok(QueueingHint::Skip)
}

//! Queueing hints for pods whose volumes could not be bound.

use std::sync::Arc;

use supercargo_framework::caching::HintScope;
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::hint::Hint;
use supercargo_framework::objects::{
    CsiDriver, CsiNode, CsiStorageCapacity, Object, ObjectBody, PersistentVolumeClaim, StorageClass, Typed,
    annotations, resources,
};
use supercargo_framework::{ActionType, EventResource, PodInfo, Text, VolumeSource};

use super::delayed::volume_limit;
use crate::pod_volumes::{USED_CLAIMS, uses_claim};

/// The events, in upstream's order.
pub(super) fn registrations() -> Vec<EventRegistration> {
    const CHANGED: ActionType = ActionType::ADD.union(ActionType::UPDATE);
    let other = EventResource::Other;
    let hinted = |resource: Text, action, scope, hint: fn(&PodInfo, &Change) -> Hint| {
        EventRegistration::hinted(other(resource), action, hint).scoped(scope)
    };
    vec![
        hinted(resources::STORAGE_CLASS, CHANGED, HintScope::empty(), |_, change| after_class_change(change)),
        hinted(resources::PERSISTENT_VOLUME_CLAIM, CHANGED, HintScope::POD, after_claim_change)
            .marked(USED_CLAIMS),
        EventRegistration::always(other(resources::PERSISTENT_VOLUME), CHANGED),
        EventRegistration::always(EventResource::Node, ActionType::ADD | ActionType::UPDATE_NODE_LABEL),
        hinted(resources::CSI_NODE, CHANGED, HintScope::empty(), |_, change| after_csi_node_change(change)),
        hinted(resources::CSI_DRIVER, ActionType::UPDATE, HintScope::VOLUMES, after_driver_change),
        hinted(resources::CSI_STORAGE_CAPACITY, CHANGED, HintScope::empty(), |_, change| {
            after_storage_change(change)
        }),
    ]
}

/// The object before the event, if it existed, and after.
type BeforeAndAfter<'a, T> = (Option<Typed<'a, T>>, Typed<'a, T>);

fn objects<T: ObjectBody>(change: &Change) -> Result<BeforeAndAfter<'_, T>, String> {
    fn typed<T: ObjectBody>(object: &Arc<Object>) -> Result<Typed<'_, T>, String> {
        Typed::of(object).ok_or_else(|| format!("{} {} is of another kind", object.resource, object.key))
    }
    match change {
        Change::Object { old, new: Some(new) } => Ok((old.as_ref().map(typed).transpose()?, typed(new)?)),
        _ => Err("expected an object after the event".to_owned()),
    }
}

fn after_class_change(change: &Change) -> Hint {
    let (old, new) = objects::<StorageClass>(change)?;
    Ok(QueueingHint::queue_if(old.is_none_or(|old| old.allowed_topologies != new.allowed_topologies)))
}

/// Nearly every change of the pod's claims can help.
fn after_claim_change(pod: &PodInfo, change: &Change) -> Hint {
    let (_, new) = objects::<PersistentVolumeClaim>(change)?;
    Ok(QueueingHint::queue_if(uses_claim(pod, new.object)))
}

fn after_csi_node_change(change: &Change) -> Hint {
    let (old, new) = objects::<CsiNode>(change)?;
    // As upstream, an empty annotation equals an absent one.
    let migrated = |node: Typed<'_, CsiNode>| {
        node.object.annotations.get(annotations::MIGRATED_PLUGINS).cloned().unwrap_or_default()
    };
    Ok(QueueingHint::queue_if(old.is_none_or(|old| migrated(old) != migrated(new))))
}

/// Same as upstream, including its quirk: it checks drivers of inline volumes, which have no
/// capacity.
fn after_driver_change(pod: &PodInfo, change: &Change) -> Hint {
    let (old, new) = objects::<CsiDriver>(change)?;
    let uses = |name: &str| {
        let is_its = |source: &VolumeSource| matches!(source, VolumeSource::Csi(driver) if &**driver == name);
        pod.spec.volumes.iter().any(|volume| is_its(&volume.source))
    };
    let stops_counting = old.is_some_and(|old| old.storage_capacity) && !new.storage_capacity;
    Ok(QueueingHint::queue_if(stops_counting && uses(new.object.name())))
}

fn after_storage_change(change: &Change) -> Hint {
    let (old, new) = objects::<CsiStorageCapacity>(change)?;
    let grew = match (old.and_then(|old| volume_limit(&old)), volume_limit(&new)) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => new > old,
    };
    Ok(QueueingHint::queue_if(old.is_none() || grew))
}

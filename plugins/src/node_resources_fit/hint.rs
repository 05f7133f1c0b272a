//! Queueing hints for pods that did not fit.
//!
//! As upstream, hints do not consider ignored resources: a node without one does not fit here,
//! although it passes Filter.

use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::objects::{DeviceClass, Object, ObjectBody as _, Objects};
use supercargo_framework::resource::names;
use supercargo_framework::{PodInfo, Resource};

use supercargo_framework::hint::{Hint, held_a_node, new_node, new_pod, old_pod};

/// A pod was deleted.
pub(super) fn after_pod_deleted(_: &PodInfo, change: &Change) -> Hint {
    Ok(QueueingHint::queue_if(held_a_node(old_pod(change)?)))
}

/// A pod on a node was scaled down.
pub(super) fn after_pod_shrunk(pod: &PodInfo, change: &Change) -> Hint {
    let (old, new) = (old_pod(change)?, new_pod(change)?);
    let frees = new.is_assigned() && shrank(pod, &old.requests().resource, &new.requests().resource);
    Ok(QueueingHint::queue_if(frees))
}

/// Whether the amount of a resource that the pod requests has decreased.
fn shrank(pod: &PodInfo, old: &Resource, new: &Resource) -> bool {
    any_requested(&pod.requests().resource, |amount| amount(new) < amount(old))
}

/// A node was added, or its allocatable changed. With `objects`, devices can provide resources that
/// the node does not offer.
pub(super) fn after_node_change(objects: Option<&Objects>, pod: &PodInfo, change: &Change) -> Hint {
    let new = &new_node(change)?.allocatable;
    let request = &pod.spec.requests.resource;
    let is_of_devices = |name: &str| {
        new.scalar(name) <= 0 && objects.is_some_and(|objects| objects.class_of_resource(name).is_some())
    };
    let mut scalars = request.scalars().iter().filter(|(_, amount)| *amount != 0);
    let helps = fits_when_empty(request, new, is_of_devices)
        && change.old_node().is_none_or(|old| {
            offers_more(request, &old.allocatable, new) || scalars.any(|(name, _)| is_of_devices(name))
        });
    Ok(QueueingHint::queue_if(helps))
}

/// A DeviceClass was added, or names another extended resource.
pub(super) fn after_class_change(pod: &PodInfo, change: &Change) -> Hint {
    let Change::Object { old, new: Some(new) } = change else {
        return Err("expected a device class after the event".to_owned());
    };
    let name_in = |class: &Object| DeviceClass::of(&class.body)?.extended_resource_name.clone();
    // An empty name is none.
    let name = name_in(new).filter(|name| !name.is_empty());
    if old.as_deref().is_some_and(|old| name_in(old).filter(|name| !name.is_empty()) == name) {
        return Ok(QueueingHint::Skip);
    }
    let is_requested =
        |wanted: &str| pod.spec.requests.resource.scalars().iter().any(|(name, _)| **name == *wanted);
    let is_implicit = || old.is_none() && is_requested(&[names::DEVICE_CLASS_PREFIX, new.name()].concat());
    Ok(QueueingHint::queue_if(is_implicit() || name.as_deref().is_some_and(is_requested)))
}

/// What the node offers when it is empty.
pub(super) fn offered(change: &Change) -> Option<&Resource> {
    Some(&change.new_node()?.allocatable)
}

fn fits_when_empty(request: &Resource, offered: &Resource, is_of_devices: impl Fn(&str) -> bool) -> bool {
    let is_short = |wanted: i64, offered: i64| wanted > 0 && wanted > offered;
    offered.allowed_pod_number >= 1
        && !is_short(request.milli_cpu, offered.milli_cpu)
        && !is_short(request.memory, offered.memory)
        && !is_short(request.ephemeral_storage, offered.ephemeral_storage)
        && !request
            .scalars()
            .iter()
            .any(|(name, wanted)| is_short(*wanted, offered.scalar(name)) && !is_of_devices(name))
}

fn offers_more(request: &Resource, old: &Resource, new: &Resource) -> bool {
    new.allowed_pod_number > old.allowed_pod_number
        || any_requested(request, |amount| amount(new) > amount(old))
}

/// Whether the condition holds for any requested resource. The condition gets a function that reads
/// the resource's amount.
fn any_requested(request: &Resource, condition: impl Fn(&dyn Fn(&Resource) -> i64) -> bool) -> bool {
    let holds = |amount: &dyn Fn(&Resource) -> i64| amount(request) > 0 && condition(amount);
    holds(&|of| of.milli_cpu)
        || holds(&|of| of.memory)
        || holds(&|of| of.ephemeral_storage)
        || request.scalars().iter().any(|(name, _)| holds(&|of| of.scalar(name)))
}

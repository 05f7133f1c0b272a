//! Claims for devices in the model: their allocations are those of the model.

use std::collections::BTreeSet;
use std::sync::Arc;

use supercargo_framework::objects::{Body, ClaimConsumer, Object, ResourceClaim, resources};
use supercargo_framework::{PodInfo, Uid};

use super::model::Model;
use crate::input::{Input, Notification};

/// Writes the claims of a pod that is being bound, as PreBind does.
pub(super) fn write(model: &mut Model, pod: &PodInfo) {
    let keys: BTreeSet<String> = pod.claim_names().map(|name| format!("{}/{name}", pod.namespace)).collect();
    for key in keys {
        let objects = &model.scheduler.objects;
        let Some(old) = objects.from_api(&resources::RESOURCE_CLAIM, &key).cloned() else { continue };
        let Body::ResourceClaim(known) = &old.body else { continue };
        let pending = objects.pending(&old.uid).map(|pending| &pending.body);
        let mut claim = known.clone();
        if let Some(Body::ResourceClaim(pending)) = pending {
            claim.allocation.clone_from(&pending.allocation);
        }
        let uid = pod.uid.text();
        if claim.reserved_for.iter().all(|consumer| *consumer.uid != *uid) {
            let consumer = ClaimConsumer::of_pod(Arc::clone(&pod.name), (&*uid).into());
            claim.reserved_for = claim.reserved_for.iter().cloned().chain([consumer]).collect();
        }
        let resource_version = next_version(&old.resource_version);
        let new = Object { resource_version, body: Body::ResourceClaim(claim), ..Object::clone(&old) };
        model.handle(Input::Object(Notification::Updated { old, new: Arc::new(new) }));
    }
}

/// A number that is newer than this version, and not newer than the next one of the record.
fn next_version(version: &str) -> Arc<str> {
    let next =
        version.parse::<u64>().map_or_else(|_| format!("{version}-modelled"), |it| (it + 1).to_string());
    next.into()
}

/// A recorded change of an object, with the model's allocation if it is a claim. Who takes the
/// devices away in the record takes them away in the model, too.
pub(super) fn merged(model: &Model, old: &Object, new: Arc<Object>) -> Arc<Object> {
    let known = model.scheduler.objects.from_api(&new.resource, &new.key);
    let (Body::ResourceClaim(before), Body::ResourceClaim(after)) = (&old.body, &new.body) else {
        return new;
    };
    let Some(Body::ResourceClaim(known)) = known.map(|known| &known.body) else { return new };
    if before.allocation.is_some() && after.allocation.is_none() || is_alike(known, after) {
        return new;
    }
    let is_alive = |consumer: &&ClaimConsumer| {
        let uid = Uid::from(&*consumer.uid);
        let scheduler = &model.scheduler;
        &*consumer.resource != "pods"
            || scheduler.cache.pod(&uid).is_some()
            || scheduler.pending.values().any(|pod| pod.uid == uid)
    };
    let claim = ResourceClaim {
        allocation: known.allocation.clone(),
        reserved_for: known.reserved_for.iter().filter(is_alive).cloned().collect(),
        devices: known.devices.clone(),
        ..after.clone()
    };
    Arc::new(Object { body: Body::ResourceClaim(claim), ..Object::clone(&new) })
}

fn is_alike(one: &ResourceClaim, other: &ResourceClaim) -> bool {
    one.allocation == other.allocation && one.reserved_for == other.reserved_for
}

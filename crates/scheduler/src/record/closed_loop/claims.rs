//! Claims for devices in the model: their allocations are those of the model.

use std::sync::Arc;

use supercargo_framework::Uid;
use supercargo_framework::objects::{Body, ClaimConsumer, Object, ResourceClaim};
use supercargo_framework::pod::PodKey;

use super::model::Model;
use crate::input::Notification;

/// Whether only the recorded scheduler causes this: it creates a claim for extended resources, or
/// somebody changes or deletes one that the model does not have.
pub(super) fn is_foreign(model: &Model, change: &Notification<Object>) -> bool {
    let (Notification::Added(claim)
    | Notification::Updated { new: claim, .. }
    | Notification::Deleted(claim)) = change;
    let is_added = matches!(change, Notification::Added(_));
    let is_known = || model.scheduler.objects.from_api(&claim.resource, &claim.key).is_some();
    claim.is_extended_resource_claim() && (is_added || !is_known())
}

/// A recorded change of an object, with the model's allocation if it is a claim. Who takes the
/// devices away in the record takes them away in the model, too, unless a pod still uses them.
pub(super) fn merged(model: &Model, old: &Object, new: Arc<Object>) -> Arc<Object> {
    let known = model.scheduler.objects.from_api(&new.resource, &new.key);
    let (Body::ResourceClaim(before), Body::ResourceClaim(after)) = (&old.body, &new.body) else {
        return new;
    };
    let Some(Body::ResourceClaim(known)) = known.map(|known| &known.body) else { return new };
    let is_of_pod = |consumer: &ClaimConsumer| &*consumer.resource == "pods";
    let is_alive = |consumer: &&ClaimConsumer| {
        let (uid, scheduler) = (Uid::from(&*consumer.uid), &model.scheduler);
        let key = PodKey { namespace: new.namespace().into(), name: Arc::clone(&consumer.name) };
        let is_pending = || scheduler.pending.get(&key).is_some_and(|pod| pod.uid == uid);
        !is_of_pod(consumer) || scheduler.cache.pod(&uid).is_some() || is_pending()
    };
    let reserved_for: Box<[_]> = known.reserved_for.iter().filter(is_alive).cloned().collect();
    let is_freed = before.allocation.is_some() && after.allocation.is_none();
    let is_freed = is_freed && !reserved_for.iter().any(is_of_pod);
    if is_freed || is_alike(known, after) {
        return new;
    }
    let claim = ResourceClaim {
        allocation: known.allocation.clone(),
        reserved_for,
        devices: known.devices.clone(),
        ..after.clone()
    };
    Arc::new(Object { body: Body::ResourceClaim(claim), ..Object::clone(&new) })
}

fn is_alike(one: &ResourceClaim, other: &ResourceClaim) -> bool {
    one.allocation == other.allocation && one.reserved_for == other.reserved_for
}

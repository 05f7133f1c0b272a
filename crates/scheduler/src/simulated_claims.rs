//! ResourceClaims in a simulation: what DynamicResources writes before a binding, and what the
//! controller of claims does at once.

use std::sync::Arc;

use supercargo_framework::objects::{
    ClaimConsumer, Object, ObjectBody as _, ResourceClaim, uid_of_extended_resource_claim,
};
use supercargo_framework::{Now, PodInfo};

use crate::copies::{claim_of, unallocated, with};
use crate::input::{Input, Notification};
use crate::scheduler::Scheduler;

/// The most pods for which the API server lets a claim be reserved.
const MOST_RESERVATIONS: usize = 256;

impl Scheduler {
    /// The pod's claims get the allocations that Reserve has noted, and are reserved for the pod.
    pub(crate) fn write_claims(&mut self, now: Now, pod: &PodInfo) {
        let consumer = consumer(pod);
        for claim in self.claims_by_name(pod) {
            let pending = self.objects.pending(&claim.uid);
            let allocation = pending.and_then(|it| ResourceClaim::of(&it.body)?.allocation.clone());
            self.change_claim(now, &claim, |body| {
                let is_new = !body.reserved_for.contains(&consumer);
                if is_new && body.reserved_for.len() < MOST_RESERVATIONS {
                    let others = body.reserved_for.iter().cloned();
                    body.reserved_for = others.chain([consumer.clone()]).collect();
                }
                body.allocation = body.allocation.take().or(allocation);
            });
        }
        let of_extended = uid_of_extended_resource_claim(&pod.uid.text());
        if let Some(pending) = self.objects.pending(&of_extended).cloned() {
            let created = Object {
                key: format!("{}-extended-resources", pod.key()).into(),
                uid: format!("{of_extended} written").into(),
                ..with(&pending, |body| body.reserved_for = [consumer].into())
            };
            self.add_claims(now, vec![created]);
        }
    }

    /// Claims that their controller makes.
    pub(crate) fn add_claims(&mut self, now: Now, claims: Vec<Object>) {
        for claim in claims {
            self.handle(now, Input::Object(Notification::Added(Arc::new(claim))));
        }
    }

    /// The claims that the pod owns go with it. Others are no longer reserved for it, and one that
    /// is reserved for nobody loses its devices.
    pub(crate) fn release_claims(&mut self, now: Now, pod: &PodInfo) {
        let owned: Vec<_> = self.objects.claims_of_owner(&pod.uid.text()).cloned().collect();
        for claim in owned {
            self.handle(now, Input::Object(Notification::Deleted(claim)));
        }
        let consumer = consumer(pod);
        for claim in self.claims_by_name(pod) {
            let is_reserved = |body: &ResourceClaim| body.reserved_for.contains(&consumer);
            if !ResourceClaim::of(&claim.body).is_some_and(is_reserved) {
                continue;
            }
            self.change_claim(now, &claim, |body| {
                let others = body.reserved_for.iter().filter(|it| **it != consumer);
                let others: Box<[_]> = others.cloned().collect();
                *body = if others.is_empty() {
                    unallocated(body)
                } else {
                    ResourceClaim { reserved_for: others, ..body.clone() }
                };
            });
        }
    }

    /// The claims that the pod names, and those that were made for it from templates.
    fn claims_by_name(&self, pod: &PodInfo) -> Vec<Arc<Object>> {
        let objects = &self.objects;
        pod.claim_names().filter_map(|name| claim_of(objects, pod, name).cloned()).collect()
    }

    /// A change that leaves the number of reservations is none.
    fn change_claim(&mut self, now: Now, old: &Arc<Object>, change: impl FnOnce(&mut ResourceClaim)) {
        let mut new = with(old, change);
        let reserved = |claim: &Object| ResourceClaim::of(&claim.body).map_or(0, |it| it.reserved_for.len());
        if reserved(&new) == reserved(old) {
            return;
        }
        new.resource_version = format!("simulated-{}", reserved(&new)).into();
        self.handle(now, Input::Object(Notification::Updated { old: Arc::clone(old), new: Arc::new(new) }));
    }
}

fn consumer(PodInfo { name, uid, .. }: &PodInfo) -> ClaimConsumer {
    ClaimConsumer::of_pod(Arc::clone(name), (*uid.text()).into())
}

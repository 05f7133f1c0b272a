//! ResourceClaims in a simulation: what DynamicResources writes, and what the controller of claims
//! does at once.

use std::sync::Arc;

use supercargo_framework::binding::ApiCall;
use supercargo_framework::objects::{
    ClaimConsumer, Object, ObjectBody as _, ResourceClaim, resources, uid_of_extended_resource_claim,
};
use supercargo_framework::{Now, PodInfo};

use crate::copies::{claim_of, unallocated, with};
use crate::input::{Input, Notification};
use crate::scheduler::Scheduler;

/// The most pods for which the API server lets a claim be reserved.
const MOST_RESERVATIONS: usize = 256;
/// Before the number in the version of a claim that the simulation has written.
const VERSION: &str = "simulated-";

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

    /// A request that takes devices or reservations away, or deletes a claim.
    pub(crate) fn write_claim(&mut self, now: Now, call: &ApiCall, deletes: bool) {
        let ApiCall::Request { method, path, body, .. } = call else { return };
        let Some(claim) = self.claim_at(path).cloned() else { return };
        if deletes {
            self.handle(now, Input::Object(Notification::Deleted(claim)));
        } else if **method == *"PUT" {
            self.change_claim(now, &claim, |body| *body = unallocated(body));
        } else {
            let entries = body["status"]["reservedFor"].as_array().into_iter().flatten();
            let uids: Vec<_> = entries.filter_map(|entry| entry["uid"].as_str()).collect();
            self.change_claim(now, &claim, |body| {
                let others = body.reserved_for.iter().filter(|it| !uids.contains(&&*it.uid));
                body.reserved_for = others.cloned().collect();
            });
        }
    }

    fn claim_at(&self, path: &str) -> Option<&Arc<Object>> {
        let (_, of_namespace) = path.split_once("/namespaces/")?;
        let mut parts = of_namespace.split('/');
        let (namespace, _, name) = (parts.next()?, parts.next()?, parts.next()?);
        self.objects.get(&resources::RESOURCE_CLAIM, &format!("{namespace}/{name}"))
    }

    /// The claims that the pod owns go with it. Others are no longer reserved for it.
    pub(crate) fn release_claims(&mut self, now: Now, pod: &PodInfo) {
        self.delete_claims(now, pod, |_| true);
        self.unreserve_claims(now, pod);
    }

    /// The claim for extended resources goes with the pod. Others, also its own, are no longer
    /// reserved for it.
    pub(crate) fn give_devices_back(&mut self, now: Now, pod: &PodInfo) {
        self.delete_claims(now, pod, Object::is_extended_resource_claim);
        self.unreserve_claims(now, pod);
    }

    fn delete_claims(&mut self, now: Now, pod: &PodInfo, is_meant: impl Fn(&Object) -> bool) {
        let owner = pod.uid.text();
        let owned = self.objects.claims_of_owner(&owner).filter(|claim| is_meant(claim));
        for claim in owned.cloned().collect::<Vec<_>>() {
            self.handle(now, Input::Object(Notification::Deleted(claim)));
        }
    }

    /// A claim that is reserved for nobody loses its devices.
    fn unreserve_claims(&mut self, now: Now, pod: &PodInfo) {
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

    fn change_claim(&mut self, now: Now, old: &Arc<Object>, change: impl FnOnce(&mut ResourceClaim)) {
        let mut new = with(old, change);
        if new.body == old.body {
            return;
        }
        let written: Option<u64> = old.resource_version.strip_prefix(VERSION).and_then(|it| it.parse().ok());
        new.resource_version = format!("{VERSION}{}", written.map_or(1, |it| it.wrapping_add(1))).into();
        self.handle(now, Input::Object(Notification::Updated { old: Arc::clone(old), new: Arc::new(new) }));
    }
}

fn consumer(PodInfo { name, uid, .. }: &PodInfo) -> ClaimConsumer {
    ClaimConsumer::of_pod(Arc::clone(name), (*uid.text()).into())
}

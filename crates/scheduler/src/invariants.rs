//! The invariants of the scheduler, for tests and for the debugger.

use rustc_hash::FxHashSet;
use supercargo_framework::objects::Object;
use supercargo_framework::{PodInfo, Uid};

use crate::bindings::{Binding, Stage};
use crate::scheduler::Scheduler;
use supercargo_queue::Place;

impl Scheduler {
    /// The invariants that do not hold; empty unless there is a bug. Costs as much as rebuilding
    /// the cache: for tests and for the debugger.
    pub fn inconsistencies(&self) -> Vec<String> {
        let mut found = self.cache.differences();
        found.extend(self.queue.inconsistencies());
        found.extend(self.profiles.inconsistencies(&self.objects));
        found.extend(self.pending.values().filter_map(|pod| self.misplaced(pod)));
        found.extend(self.unknown_pods());
        let pending = self.objects.list_pending().filter(|claim| !self.is_being_bound(claim));
        found.extend(pending.map(|claim| {
            format!(
                "{} {} {}: an allocation is pending, and no binding writes it",
                claim.resource, claim.key, claim.uid
            )
        }));
        found.sort();
        found
    }

    /// A pod without a node is in exactly one place: in the queue, in a binding, or assumed on a
    /// node until the informer confirms it. A terminating pod may be in none.
    fn misplaced(&self, pod: &PodInfo) -> Option<String> {
        let uid = &pod.uid;
        let in_queue = self.queue.get(uid).is_some();
        let is_held = self.preemptions.held.as_ref().is_some_and(|held| held.queued.uid() == uid);
        let on_its_way = self.bindings.get(uid).is_some() || is_held;
        let on_a_node = self.cache.node_of(uid).is_some() && !on_its_way;
        let places = [in_queue, on_its_way, on_a_node].into_iter().filter(|here| *here).count();
        let is_left = self.cache.is_confirmed(uid) && places > 0;
        let is_given_up = pod.terminating && places == 0;
        (places != 1 && !is_left && !is_given_up).then(|| {
            let key = pod.key();
            format!("pod {key}: queued {in_queue}, in an attempt {on_its_way}, on a node {on_a_node}")
        })
    }

    /// Whether a pod with this claim is being bound. The claim may not exist yet, and have an owner
    /// only.
    fn is_being_bound(&self, claim: &Object) -> bool {
        self.bindings.iter().map(Binding::pod).any(|pod| {
            let is_owner = claim.controller.as_ref().is_some_and(|owner| *owner.uid == *pod.uid.text());
            let names_it = || pod.claim_names().any(|name| **name == *claim.name());
            is_owner || (*claim.namespace() == *pod.namespace && names_it())
        })
    }

    /// Pods that the scheduler holds although the informer does not report them.
    fn unknown_pods(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in self.queue.entries() {
            if self.known(&entry.pod).is_none_or(|pod| pod.resource_version != entry.pod.resource_version) {
                found.push(format!("pod {} is queued, and the known version differs", entry.pod.key()));
            }
        }
        for pod in self.unclaimed_pods.values().filter(|pod| self.profile_of(pod).is_some()) {
            found.push(format!("pod {} has a profile, but is unclaimed", pod.key()));
        }
        let pending: FxHashSet<&Uid> = self.pending.values().map(|pod| &pod.uid).collect();
        for uid in self.unconfirmed_patches.uids().filter(|uid| !pending.contains(uid)) {
            found.push(format!("pod {uid} has an unconfirmed patch, but is unknown"));
        }
        for pod in self.cache.assumed().filter(|pod| self.known(pod).is_none()) {
            found.push(format!("pod {} is assumed, but unknown", pod.key()));
        }
        for binding in self.bindings.iter() {
            let (pod, waits) = (binding.pod(), matches!(binding.stage, Stage::WaitingOnPermit(_)));
            let in_flight = self.queue.place(&pod.uid) == Some(Place::InFlight);
            let listed = self.bindings.waiting().get(&pod.uid).is_some();
            if in_flight != waits || listed != waits {
                found.push(format!("pod {}: waits {waits}, in flight {in_flight}, {listed}", pod.key()));
            }
        }
        let held = usize::from(self.preemptions.held.is_some());
        if self.queue.lengths()[4] != self.bindings.waiting().len() + held {
            found.push("pods are in flight without a binding".to_owned());
        }
        found
    }
}

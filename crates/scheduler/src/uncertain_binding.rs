//! Bindings whose outcome is unknown, and pods that turn out to be bound.

use std::sync::Arc;

use supercargo_framework::{Now, PodInfo, Uid};
use supercargo_timeline::Happening;

use crate::bindings::Stage;
use crate::effect::Effect;
use crate::input::PodRead;
use crate::scheduler::Scheduler;
use supercargo_runtime::failure::FailureKind;

impl Scheduler {
    /// Bind's outcome is unknown: the pod stays assumed until a read or the informer settles it.
    pub(crate) fn bind_uncertain(&mut self, now: Now, uid: &Uid, message: String) {
        let confirmed = self.cache.node_of(uid).filter(|_| self.cache.is_confirmed(uid)).cloned();
        if let Some(node) = confirmed {
            self.found_bound(now, uid, &node);
        } else if let Some(binding) = self.bindings.set_uncertain(uid, message) {
            let pod = binding.pod().key();
            self.effects.push(Effect::ReadPod { pod, uid: uid.clone() });
        }
    }

    /// The API server's answer about an uncertain binding.
    pub(crate) fn pod_read(&mut self, now: Now, uid: &Uid, read: PodRead) {
        let Some(binding) = self.bindings.get_mut(uid) else {
            return;
        };
        let Stage::Uncertain(uncertain) = &mut binding.stage else {
            return;
        };
        match read {
            PodRead::Exists(Some(node)) => self.found_bound(now, uid, &node),
            PodRead::Exists(None) => {
                let message = std::mem::take(&mut uncertain.message);
                self.bind_failed(now, uid, FailureKind::Internal(message));
            }
            PodRead::Gone => self.pod_is_gone(now, uid),
            PodRead::Failed => self.bindings.ask_later(now.monotonic, uid),
        }
    }

    /// The informer reports a pod with a node, which settles an uncertain binding.
    pub(crate) fn informer_confirms(&mut self, now: Now, pod: &PodInfo) {
        let stage = self.bindings.get(&pod.uid).map(|binding| &binding.stage);
        if let (Some(Stage::Uncertain(_)), Some(node)) = (stage, &pod.node_name) {
            self.found_bound(now, &pod.uid, node);
        }
    }

    /// The pod is on a node: the chosen one, or one that somebody else chose.
    fn found_bound(&mut self, now: Now, uid: &Uid, node: &Arc<str>) {
        let Some(binding) = self.bindings.get(uid) else {
            return;
        };
        if binding.node == *node {
            return self.succeed(now, uid);
        }
        let pod = Arc::clone(binding.pod());
        self.lose_race(now, uid);
        self.note(now, &pod, Happening::BoundElsewhere(node));
        // It counts on that node, and is not tried again, until the informer reports it.
        if self.known(&pod).is_some() && self.cache.node_of(uid).is_none() {
            let assumed = self.cache.assume(pod, Arc::clone(node));
            debug_assert!(assumed.is_ok(), "a pod that is on no node can be assumed");
        }
    }
}

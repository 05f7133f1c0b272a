//! A copy of the scheduler's state, for questions.

use std::sync::Arc;

use supercargo_framework::pod::PodKey;
use supercargo_framework::{Now, PodInfo};

use crate::cache::Cache;
use crate::fits::Fits;
use crate::scheduler::{BuildError, Options, Scheduler};
use crate::what_if::{Verb, WhatIf, WhatIfError};
use crate::why::{Why, WhyError};

/// A copy of a scheduler that answers questions. Nobody takes its effects, so it changes nothing
/// outside.
pub struct Fork(pub(crate) Scheduler);

impl From<Scheduler> for Fork {
    /// Ends the scheduler.
    fn from(scheduler: Scheduler) -> Self {
        Self(scheduler)
    }
}

impl Scheduler {
    /// Copies the state; nodes, pods and objects are shared. `options` must be those of this
    /// scheduler, with new plugins, as plugins keep state.
    ///
    /// Bindings and preemptions in progress stay behind: in the copy, their pods are assumed, and
    /// the victims are still there.
    pub fn fork(&self, options: Options) -> Result<Fork, BuildError> {
        let new = Self::new(options)?;
        Ok(Fork(Self {
            queue: self.queue.fork(&new.profiles, !new.extenders.is_empty()),
            cache: self.cache.clone(),
            objects: self.objects.clone(),
            pending: self.pending.clone(),
            unclaimed_pods: self.unclaimed_pods.clone(),
            unconfirmed_patches: self.unconfirmed_patches.clone(),
            hash_seed: self.hash_seed.clone(),
            next_start_node: self.next_start_node,
            preemptions: self.preemptions.fork(),
            ..new
        }))
    }
}

impl Fork {
    /// Copies the copy. See [`Scheduler::fork`].
    pub fn fork(&self, options: Options) -> Result<Self, BuildError> {
        self.0.fork(options)
    }

    /// The nodes and the pods on them.
    pub fn cache(&self) -> &Cache {
        self.0.cache()
    }

    /// The pod of this key, with or without a node.
    pub fn pod(&self, key: &PodKey) -> Option<&Arc<PodInfo>> {
        self.0.pod(key)
    }

    /// Why the pod has no node. The pod need not be known. Neither extenders nor PreEnqueue plugins
    /// are asked.
    pub fn why(&mut self, now: Now, pod: &Arc<PodInfo>) -> Result<Why, WhyError> {
        self.0.why(now, pod)
    }

    /// Where the pod would go now if it had no node. On its own node it does not count.
    pub fn why_there(&mut self, now: Now, pod: &Arc<PodInfo>) -> Result<Why, WhyError> {
        self.0.why_there(now, pod)
    }

    /// Places copies of the pod one after the other, at most `most`, as the scheduler would, but
    /// without preemption.
    ///
    /// Claims and volumes are not reserved, so a pod with either is refused.
    pub fn fits(self, now: Now, pod: &PodInfo, most: usize) -> Result<Fits, WhyError> {
        self.0.fits(now, pod, most)
    }

    /// Applies changes one after the other and lets the scheduler go on until nothing happens any
    /// more, for at most ten minutes of imagined time each.
    ///
    /// Controllers replace pods at once; a pod on a node is ready. PreBind succeeds, and extenders
    /// are not asked. The first profile schedules the pods that no profile is responsible for.
    pub fn what_if(self, now: Now, verbs: &[Verb]) -> Result<WhatIf, WhatIfError> {
        self.0.what_if(now, verbs)
    }
}

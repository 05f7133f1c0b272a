//! A copy of the scheduler's state, for questions.

use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::objects::Objects;
use supercargo_framework::pod::PodKey;
use supercargo_framework::signature::Signature;
use supercargo_framework::{Features, Now, PodInfo};
use supercargo_timeline::{Entry, History};

use crate::fits::Fits;
use crate::scheduler::{BuildError, Options, Scheduler};
use crate::what_if::{Verb, WhatIf, WhatIfError};
use crate::why::{Why, WhyError};
use supercargo_evaluation::cache::Cache;
use supercargo_queue::{Place, QueuedPod};

/// A copy of a scheduler that answers questions, with a clock of its own. Nobody takes its effects,
/// so it changes nothing outside.
pub struct Fork {
    pub(crate) scheduler: Scheduler,
    now: Now,
    stop: Box<dyn Fn() -> bool + Send>,
}

/// How long those who ask share a fork: forks then take at most one part in a hundred of the
/// owner's time. A fork costs the time in which it is made, and that in which the first change of
/// each node copies the node.
#[derive(Clone, Debug, Default)]
pub struct ForkPace {
    copied: u64,
}

impl ForkPace {
    const SHARE: u32 = 100;
    /// What the copy of a pod costs, roughly: it is in no cache of the processor.
    const COPY: Duration = Duration::from_nanos(150);
    /// Longer, an answer would be too old.
    const LONGEST: Duration = Duration::from_secs(5);

    /// How long a new fork is shared, by the time that it took and [`Cache::copied`] at that time.
    /// It will cost as much later as the last one did.
    pub fn share_for(&mut self, took: Duration, copied: u64) -> Duration {
        let since = copied.saturating_sub(std::mem::replace(&mut self.copied, copied));
        let later = Self::COPY * u32::try_from(since).unwrap_or(u32::MAX);
        ((took + later) * Self::SHARE).min(Self::LONGEST)
    }
}

impl Scheduler {
    /// Copies the state; pods and objects are shared. `options` must be those of this scheduler.
    ///
    /// Plugins may be the same ones if one thread uses both schedulers: what a plugin keeps follows
    /// the objects of the scheduler that calls it. On another thread the copy needs plugins of its
    /// own.
    ///
    /// Bindings and preemptions in progress stay behind: in the copy, their pods are assumed, and
    /// the victims are still there.
    pub fn fork(&self, now: Now, options: Options) -> Result<Fork, BuildError> {
        let new = Self::new(options)?;
        let mut queue = self.queue.fork(&new.profiles, !new.extenders.is_empty());
        for pod in self.in_attempt() {
            queue.done(pod.uid());
        }
        let scheduler = Self {
            queue,
            cache: self.cache.fork(),
            objects: self.objects.clone(),
            pending: self.pending.clone(),
            unclaimed_pods: self.unclaimed_pods.clone(),
            unconfirmed_patches: self.unconfirmed_patches.clone(),
            started_groups: self.started_groups.clone(),
            hash_seed: self.hash_seed.clone(),
            next_start_node: self.next_start_node,
            preemptions: self.preemptions.fork(),
            timeline: self.timeline.clone(),
            ..new
        };
        Ok(Fork::new(scheduler, now))
    }

    /// Whether a [fork](Self::fork) has all of the state: nothing in progress stays behind.
    pub fn is_settled(&self) -> bool {
        !self.draining
            && self.bindings.len() == 0
            && self.preemptions.len() == 0
            && self.preemptions.held.is_none()
            && self.preemptions.left_behind.is_empty()
            && self.unanswered_writes.is_empty()
    }
}

impl Fork {
    /// Turns a scheduler into a fork.
    pub fn new(scheduler: Scheduler, now: Now) -> Self {
        Self { scheduler, now, stop: Box::new(|| false) }
    }

    /// Makes [`fits`](Self::fits) and [`what_if`](Self::what_if) fail once `stop` returns `true`.
    #[must_use]
    pub fn stop_when(self, stop: impl Fn() -> bool + Send + 'static) -> Self {
        Self { stop: Box::new(stop), ..self }
    }

    /// Copies the copy. See [`Scheduler::fork`].
    pub fn fork(&self, options: Options) -> Result<Self, BuildError> {
        self.scheduler.fork(self.now, options)
    }

    /// The scheduler with this state, for the calls that follow in a record.
    pub fn into_scheduler(self) -> Scheduler {
        self.scheduler
    }

    /// The scheduler with this state.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The time of the state.
    pub fn now(&self) -> Now {
        self.now
    }

    /// The nodes and the pods on them.
    pub fn cache(&self) -> &Cache {
        self.scheduler.cache()
    }

    /// The pod of this key, with or without a node.
    pub fn pod(&self, key: &PodKey) -> Option<&Arc<PodInfo>> {
        self.scheduler.pod(key)
    }

    /// The pods without a node, of any scheduler, by name.
    pub fn pending(&self) -> Vec<Arc<PodInfo>> {
        let Scheduler { pending, unclaimed_pods, cache, .. } = &self.scheduler;
        let mut pods: Vec<_> = pending.values().chain(unclaimed_pods.values()).cloned().collect();
        pods.retain(|pod| cache.node_of(&pod.uid).is_none());
        pods.sort_by_key(|pod| pod.key());
        pods
    }

    /// What happened to the pods of this name, if the scheduler notes that.
    pub fn history(&self, pod: &PodKey) -> Option<History> {
        self.scheduler.history(pod)
    }

    /// What happened to all pods, the newest first, as far as the scheduler notes that.
    pub fn happenings(&self) -> impl Iterator<Item = Entry> {
        self.scheduler.timeline.newest().map(|note| note.entry())
    }

    /// The objects of kinds other than pods and nodes.
    pub fn objects(&self) -> &Objects {
        &self.scheduler.objects
    }

    /// The enabled features.
    pub fn features(&self) -> &Features {
        &self.scheduler.features
    }

    /// Every queued pod and its place, in any order.
    pub fn waiting(&self) -> impl Iterator<Item = (Place, &QueuedPod)> {
        self.scheduler.waiting()
    }

    /// The queued pods that are nominated for this node.
    pub fn nominated_on(&self, node: &str) -> Vec<Arc<PodInfo>> {
        self.scheduler.nominated_on(node)
    }

    /// The pod's signature under the profile that [`why`](Self::why) asks: pods with equal ones get
    /// equal answers. `None` if they may not.
    pub fn signature(&self, pod: &PodInfo) -> Option<Signature> {
        let profile = self.scheduler.answering_profile(pod);
        self.scheduler.profiles.get(profile).sign(&self.scheduler.context(self.now), pod)
    }

    /// Why the pod has no node. The pod need not be known. Neither extenders nor PreEnqueue plugins
    /// are asked.
    pub fn why(&mut self, pod: &Arc<PodInfo>) -> Result<Why, WhyError> {
        self.scheduler.why(self.now, pod)
    }

    /// Where the pod would go now if it had no node. On its own node it does not count.
    pub fn why_there(&mut self, pod: &Arc<PodInfo>) -> Result<Why, WhyError> {
        self.scheduler.why_there(self.now, pod)
    }

    /// Places copies of the pod one after the other, at most `most`, as the scheduler would, but
    /// without preemption.
    ///
    /// Each copy has claims of its own where the pod has, and shares the others. A pod whose copies
    /// would need volumes of their own is refused.
    pub fn fits(self, pod: &PodInfo, most: usize) -> Result<Fits, WhyError> {
        self.scheduler.fits(self.now, pod, most, &*self.stop)
    }

    /// Applies changes one after the other and lets the scheduler run until nothing happens any
    /// more, for at most ten minutes of simulated time each. The state is then the simulated one.
    /// Looks for the reasons of at most `reasons` pending pods.
    ///
    /// Controllers replace pods at once; a pod on a node is ready. PreBind succeeds, and extenders
    /// are not asked. The first profile schedules the pods that no profile is responsible for.
    pub fn what_if(&mut self, verbs: &[Verb], reasons: usize) -> Result<WhatIf, WhatIfError> {
        self.scheduler.what_if(&mut self.now, verbs, reasons, &*self.stop)
    }
}

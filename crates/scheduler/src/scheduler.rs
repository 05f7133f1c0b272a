//! The scheduler: one owner of all state, driven by inputs and time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use supercargo_framework::binding::ClusterView;
use supercargo_framework::context::Command;
use supercargo_framework::objects::{Object, Objects};
use supercargo_framework::pod::PodKey;
use supercargo_framework::signature::Signature;
use supercargo_framework::{Context, Feature, Features, NodeRecord, Now, PodInfo, Text, Uid};
use supercargo_timeline::Timeline;
use thiserror::Error;

use crate::bindings::Bindings;
use crate::effect::Effect;
use crate::preemptions::{Order, Preemptions};
use crate::tries::Tries;
use crate::unconfirmed_patches::UnconfirmedPatches;
use supercargo_evaluation::cache::Cache;
use supercargo_evaluation::extender::ExtenderSpec;
#[cfg(test)]
use supercargo_evaluation::tables::comparison::Comparison;
use supercargo_evaluation::tables::{Rule, TableStats, Tables};
use supercargo_framework::hash_seed::{HashSeed, SeededMap};
use supercargo_queue::{Place, QueueCx, QueueOptions, QueuedPod, SchedulingQueue};
use supercargo_runtime::observer::{Observation, Observer, Unobserved};
use supercargo_runtime::phase_timer::PhaseTimer;
use supercargo_runtime::plugin_calls::{CurrentPlugin, PluginCalls};
use supercargo_runtime::profile::{EVENT_KINDS, Profile, ProfileError, ProfileIndex, ProfileSpec, Profiles};

/// The configuration of a scheduler.
#[derive(Clone, Default)]
pub struct Options {
    /// The profiles; at least one.
    pub profiles: Vec<ProfileSpec>,
    /// Extenders, in the order they are called.
    pub extenders: Vec<ExtenderSpec>,
    /// The percentage of nodes to score, for profiles without their own. `None` means all nodes;
    /// upstream's default is adaptive. With a filtering extender, upstream's default applies.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Settings of the queue.
    pub queue: QueueOptions,
    /// Whether every pod is evaluated from scratch, without tables. For comparison.
    pub plain: bool,
    /// The memory limit of evaluation tables, in bytes; 0 selects a default.
    pub table_memory: usize,
    /// The memory limit of the [history](Scheduler::history) of pods, in bytes. With 0, it is off.
    pub timeline_memory: usize,
    /// The seed of hash tables whose keys strangers choose. Choose it at random; decisions do not
    /// depend on it.
    pub hash_seed: u64,
    /// The enabled features. `queue` and the plugins have their own settings for them.
    pub features: Features,
}

/// Why a scheduler cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    /// A profile is invalid.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// A scheduler: cache, queue, objects and bindings with a single owner.
///
/// It does nothing by itself. Pass inputs to [`handle`](Self::handle), run cycles with
/// [`schedule_one`](Self::schedule_one), and carry out the [effects](Self::take_effects). Call
/// [`handle`](Self::handle) again at the [next deadline](Self::next_deadline). The same calls at
/// the same times lead to the same decisions.
pub struct Scheduler {
    pub(crate) profiles: Profiles,
    pub(crate) extenders: Vec<ExtenderSpec>,
    pub(crate) percentage_of_nodes_to_score: Option<i32>,
    pub(crate) features: Features,
    pub(crate) cache: Cache,
    pub(crate) queue: SchedulingQueue,
    pub(crate) objects: Objects,
    /// The kinds whose events can move pods.
    pub(crate) registered_kinds: BTreeSet<Text>,
    /// Pods without a node that a profile is responsible for, as last reported.
    pub(crate) pending: SeededMap<PodKey, Arc<PodInfo>>,
    /// Pods without a node that no profile is responsible for.
    pub(crate) unclaimed_pods: SeededMap<PodKey, Arc<PodInfo>>,
    pub(crate) unconfirmed_patches: UnconfirmedPatches,
    /// PodGroups that have started, until the informer reports the condition.
    pub(crate) started_groups: FxHashSet<Uid>,
    pub(crate) hash_seed: HashSeed,
    pub(crate) bindings: Bindings,
    pub(crate) preemptions: Preemptions,
    /// The number of writes for a pod that have not been answered.
    pub(crate) unanswered_writes: FxHashMap<Uid, usize>,
    pub(crate) timeline: Timeline,
    pub(crate) effects: Vec<Effect>,
    pub(crate) observer: Box<dyn Observer>,
    pub(crate) current_plugin: CurrentPlugin,
    pub(crate) next_start_node: usize,
    /// The limit of what an attempt of a group tries.
    pub(crate) tries: Tries,
    /// `None` if every pod is evaluated from scratch.
    pub(crate) tables: Option<Tables>,
    /// Compares answers of tables with the plain path.
    #[cfg(test)]
    pub(crate) comparison: Option<Comparison>,
    pub(crate) draining: bool,
    /// How often its profiles were replaced.
    pub(crate) reconfigurations: u64,
    /// The report of a plugin's panic during the last call of the queue.
    pub(crate) plugin_panic: Option<String>,
}

impl Scheduler {
    /// A scheduler with an empty state.
    pub fn new(options: Options) -> Result<Self, BuildError> {
        let profiles = Profiles::new(&options.profiles)?;
        let hash_seed = HashSeed::new(options.hash_seed);
        let tables = || Tables::new(profiles.active_count(), options.table_memory, &hash_seed);
        let mut objects = Objects::new(hash_seed.clone());
        objects.set_composite_groups(options.features.enabled(Feature::CompositePodGroup));
        Ok(Self {
            registered_kinds: registered_kinds(&profiles, &options.extenders),
            queue: SchedulingQueue::new(options.queue, &profiles, !options.extenders.is_empty(), &hash_seed),
            tables: (!options.plain).then(tables),
            #[cfg(test)]
            comparison: None,
            profiles,
            extenders: options.extenders,
            percentage_of_nodes_to_score: options.percentage_of_nodes_to_score,
            features: options.features,
            cache: Cache::default(),
            objects,
            pending: hash_seed.map(),
            unclaimed_pods: hash_seed.map(),
            unconfirmed_patches: UnconfirmedPatches::default(),
            started_groups: FxHashSet::default(),
            timeline: Timeline::new(options.timeline_memory, hash_seed.clone()),
            hash_seed,
            bindings: Bindings::default(),
            preemptions: Preemptions::default(),
            unanswered_writes: FxHashMap::default(),
            effects: Vec::new(),
            observer: Box::new(Unobserved),
            current_plugin: CurrentPlugin::default(),
            next_start_node: 0,
            tries: Tries::default(),
            draining: false,
            reconfigurations: 0,
            plugin_panic: None,
        })
    }

    /// Sets the observer.
    pub fn with_observer(mut self, observer: Box<dyn Observer>) -> Self {
        self.observer = observer;
        self.report_profiles();
        self
    }

    /// Passes the profiles to the observer. To be called whenever they change.
    pub(crate) fn report_profiles(&mut self) {
        let profiles: Vec<_> = self.profiles.all().map(Profile::observed).collect();
        self.observer.profiles(&profiles);
    }

    /// The effects since the last call, in order. Carry them out before the next call of the
    /// scheduler.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The time until something is due without further input. Then handle [`Input::Tick`].
    ///
    /// [`Input::Tick`]: crate::Input::Tick
    pub fn next_deadline(&self, now: Now) -> Duration {
        let queue = self.queue.next_deadline(now);
        let bindings = self.bindings.next_deadline().map(|at| at.saturating_sub(now.monotonic));
        bindings.map_or(queue, |wait| wait.min(queue))
    }

    /// Whether [`schedule_one`](Self::schedule_one) has a pod to try.
    pub fn has_work(&self) -> bool {
        !self.is_held_up() && self.queue.has_poppable()
    }

    /// Whether no attempt may begin: there are to be none, one waits for its preemption, or the
    /// next pod waits for a write. As upstream, which waits within the attempt, others wait with
    /// it.
    pub(crate) fn is_held_up(&self) -> bool {
        let waits = |pod: &Arc<PodInfo>| self.unanswered_writes.contains_key(&pod.uid);
        self.draining
            || self.preemptions.held.is_some()
            || !self.unanswered_writes.is_empty() && self.queue.next_pods().any(waits)
    }

    /// The pod that [`schedule_one`](Self::schedule_one) tries next, if it has work; of a group,
    /// the first member.
    pub fn next_pod(&self) -> Option<&Arc<PodInfo>> {
        self.queue.peek()
    }

    /// Whether it takes no more pods, and no binding or preemption is in progress.
    pub fn is_drained(&self) -> bool {
        self.draining && self.bindings.len() == 0 && self.preemptions.len() == 0
    }

    /// The number of bindings in progress.
    pub fn bindings_in_flight(&self) -> usize {
        self.bindings.len()
    }

    /// Whether a profile serves this `schedulerName`.
    pub fn is_responsible_for(&self, scheduler_name: &str) -> bool {
        self.profiles.index_of(scheduler_name).is_some()
    }

    /// The pod's signature under its profile: pods with equal signatures get the same verdicts and
    /// raw scores. `None` if no profile is responsible or the evaluation cannot be cached.
    pub fn signature(&self, now: Now, pod: &PodInfo) -> Option<Signature> {
        self.profiles.get(self.profile_of(pod)?).sign(&self.context(now), pod)
    }

    /// The kinds to watch beside pods and nodes: those that plugins register for and those that
    /// they read. As plugins name them, sorted.
    pub fn resources(&self) -> Vec<Text> {
        self.registered_kinds.union(&self.profiles.read()).cloned().collect()
    }

    /// The objects of other kinds.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The pod's place in the queue; `None` if it is not queued.
    pub fn place(&self, uid: &Uid) -> Option<Place> {
        self.queue.place(uid)
    }

    /// A queued pod, with the history of its attempts.
    pub fn queued(&self, uid: &Uid) -> Option<&QueuedPod> {
        self.queue.get(uid)
    }

    /// Statistics of evaluation tables.
    pub fn table_stats(&self) -> TableStats {
        self.tables.as_ref().map(Tables::stats).unwrap_or_default()
    }

    /// How often a rule has invalidated cached answers.
    pub fn applied(&self, rule: Rule) -> u64 {
        self.tables.as_ref().map_or(0, |tables| tables.applied(rule))
    }

    /// Compares every answer of tables with the plain path.
    #[cfg(test)]
    pub(crate) fn compare_tables(&mut self) {
        self.comparison = Some(Comparison::default());
        if let Some(tables) = &mut self.tables {
            tables.expect_comparison();
        }
    }

    /// Switches a rule off, which makes decisions wrong. Shows that the rule is needed.
    #[cfg(test)]
    pub(crate) fn switch_off(&mut self, rule: Rule) {
        if let Some(tables) = &mut self.tables {
            tables.switch_off(rule);
        }
    }

    /// The queued pods that are nominated for this node.
    pub fn nominated_on(&self, node: &str) -> Vec<Arc<PodInfo>> {
        self.queue.nominated_on(node)
    }

    /// The number of pods in activeQ, backoffQ, unschedulableEntities, gated, and in flight.
    pub fn queue_lengths(&self) -> [usize; 5] {
        self.queue.lengths()
    }

    /// What plugins may read and command.
    pub(crate) fn context(&self, now: Now) -> Context<'_> {
        context(&self.cache, &self.objects, &self.bindings, now)
    }

    /// The calls of a pod's plugins; their first phase begins now.
    pub(crate) fn plugin_calls<'a>(&'a self, queued: &'a QueuedPod) -> PluginCalls<'a> {
        let watches = self.observer.watches_plugins();
        let timer = PhaseTimer::start(&*self.observer, queued.profile, &queued.pod, watches);
        PluginCalls::new(timer, &self.current_plugin)
    }

    /// Calls the queue with its context.
    pub(crate) fn with_queue<R>(
        &mut self,
        now: Now,
        call: impl FnOnce(&mut SchedulingQueue, &mut QueueCx<'_>) -> R,
    ) -> R {
        let observer = &*self.observer;
        let mut cx = QueueCx {
            now: self.queue.steady(now),
            profiles: &self.profiles,
            objects: &self.objects,
            preempting: self.preemptions.preempting(),
            observer,
            panic: None,
            woken: Vec::new(),
        };
        let result = call(&mut self.queue, &mut cx);
        self.plugin_panic = cx.panic.take().or_else(|| self.queue.sort_panic());
        if let Some(panic) = &self.plugin_panic {
            self.observer.observe(Observation::Anomaly(panic));
        }
        result
    }

    /// The pod without a node, as last reported.
    pub(crate) fn known(&self, pod: &PodInfo) -> Option<&Arc<PodInfo>> {
        self.pending.get(&pod.key()).filter(|known| known.uid == pod.uid)
    }

    pub(crate) fn anomaly(&mut self, text: &str) {
        self.observer.observe(Observation::Anomaly(text));
    }

    /// The profile of a pod; `None` when no profile is responsible.
    pub(crate) fn profile_of(&self, pod: &PodInfo) -> Option<ProfileIndex> {
        self.profiles.index_of(&pod.spec.scheduler_name)
    }

    fn add_pending(&mut self, group: Option<Arc<str>>, claim: Arc<Object>) {
        self.cache.note_object(&claim);
        if !self.objects.add_pending_of(group, Arc::clone(&claim)) {
            self.anomaly(&format!("{} {} already has an allocation", claim.resource, claim.key));
        }
    }

    /// Carries out the commands of a plugin's call.
    pub(crate) fn execute(&mut self, now: Now, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Activate(pods) => {
                    for key in pods {
                        if let Some(pod) = self.pending.get(&key).cloned() {
                            self.with_queue(now, |queue, cx| queue.activate(cx, &pod));
                        }
                    }
                }
                Command::Allow { pod, plugin } => {
                    if self.bindings.allow(&pod, &plugin) {
                        self.permitted(now, &pod);
                    }
                }
                Command::CancelBinding { pod, plugin, message } => {
                    self.cancel_binding(&pod, supercargo_framework::Status::error(message).by(plugin));
                }
                Command::Assume(object) => {
                    self.cache.note_object(&object);
                    if !self.objects.assume(Arc::clone(&object)) {
                        self.anomaly(&format!(
                            "{} {} changed before it was assumed",
                            object.resource, object.key
                        ));
                    }
                }
                Command::Restore(object) => {
                    self.cache.note_object(&object);
                    self.objects.restore(&object);
                }
                Command::AddPending(claim) => self.add_pending(None, claim),
                Command::SharePending { claim, group } => self.add_pending(Some(group), claim),
                Command::RemovePending(claim) => {
                    self.cache.note_object(&claim);
                    self.objects.remove_pending(&claim.uid);
                }
                Command::Write { resource, call, then, pod, retries } => {
                    if let Some(pod) = &pod {
                        *self.unanswered_writes.entry(pod.clone()).or_default() += 1;
                    }
                    self.effects.push(Effect::Write { resource, call, then, pod, retries });
                }
                Command::Preempt { preemptor, node, victims, plugin, asynchronous } => {
                    self.preempt(now, Order { preemptor, node, victims, plugin, asynchronous });
                }
                Command::Reject { pod, plugin, message } => {
                    let status = supercargo_framework::Status::unschedulable(message).by(plugin);
                    self.permit_rejected(now, &pod, status);
                }
            }
        }
    }
}

/// What plugins may read and command, from parts of the scheduler that tables do not borrow.
pub(crate) fn context<'a>(
    cache: &'a Cache,
    objects: &'a Objects,
    bindings: &'a Bindings,
    now: Now,
) -> Context<'a> {
    Context::new(cache.nodes(), objects, bindings.waiting(), now)
}

/// The kinds whose events can move pods.
pub(crate) fn registered_kinds(profiles: &Profiles, extenders: &[ExtenderSpec]) -> BTreeSet<Text> {
    let mut kinds = profiles.registered_kinds();
    if !extenders.is_empty() {
        // Extenders register for no events.
        kinds.extend(EVENT_KINDS);
    }
    kinds
}

/// The cluster as PreBind waits see it.
impl ClusterView for Scheduler {
    fn objects(&self) -> &Objects {
        &self.objects
    }

    fn node(&self, name: &str) -> Option<&NodeRecord> {
        self.cache.nodes().get(name).map(|info| &**info.node())
    }

    fn has_pod(&self, pod: &PodKey, uid: &Uid) -> bool {
        self.pending.get(pod).is_some_and(|known| known.uid == *uid) || self.cache.is_confirmed(uid)
    }
}

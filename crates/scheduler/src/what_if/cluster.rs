//! The modelled cluster: an API server that does at once what the scheduler requests, and
//! controllers that replace pods at once.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use supercargo_framework::binding::BindOutcome;
use supercargo_framework::node::HOSTNAME;
use supercargo_framework::objects::{Body, Object, ObjectBody as _, PodDisruptionBudget, Typed, resources};
use supercargo_framework::pod::PodKey;
use supercargo_framework::taint::{Taint, TaintEffect};
use supercargo_framework::volume::VolumeSource;
use supercargo_framework::{Labels, NodeRecord, Now, PodInfo, PodSpec, Status, Uid};
use supercargo_runtime::profile::ProfileIndex;

use super::{End, Pods, WhatIfError};
use crate::copies::{Copy, copy_of, made_again, replacement};
use crate::effect::{Effect, StatusPatch};
use crate::input::{Eviction, Input, Notification};
use crate::scheduler::Scheduler;
use crate::why::{CORDON, NODE_CONDITIONS, Why};
use supercargo_evaluation::cache::on_node;
use supercargo_evaluation::extender::NoCalls;

/// How long pods may take to come to rest, in simulated time.
const HORIZON: Duration = Duration::from_mins(10);
/// The simulation stops if no pod was bound or evicted for this time. Groups that do not
/// fit are tried again and again.
const CALM: Duration = Duration::from_mins(1);

/// A scheduler and the cluster around it.
pub(super) struct ModelCluster<'s> {
    scheduler: &'s mut Scheduler,
    now: &'s mut Now,
    stop: &'s dyn Fn() -> bool,
    versions: u64,
    /// The number of nodes and pods that were added.
    added: usize,
    /// When a pod was bound or evicted last, on the monotonic clock.
    progress: Duration,
    /// Nodes that were drained, and the pods that left them.
    pub(super) drained: FxHashSet<Arc<str>>,
    pub(super) evicted: FxHashSet<Uid>,
    /// Pods that do not end on a node or pending.
    pub(super) fates: FxHashMap<Uid, End>,
    pub(super) preempted: FxHashSet<Uid>,
    /// Pods that are gone as the change says.
    pub(super) expected: FxHashSet<Uid>,
    /// The number of pods that a drain leaves and a failure takes.
    pub(super) of_nodes: usize,
    pub(super) is_still: bool,
}

impl<'s> ModelCluster<'s> {
    /// The first profile schedules the pods that no profile is responsible for.
    pub(super) fn new(scheduler: &'s mut Scheduler, now: &'s mut Now, stop: &'s dyn Fn() -> bool) -> Self {
        let mut cluster = Self {
            scheduler,
            progress: now.monotonic,
            now,
            stop,
            versions: 0,
            added: 0,
            drained: FxHashSet::default(),
            evicted: FxHashSet::default(),
            fates: FxHashMap::default(),
            preempted: FxHashSet::default(),
            expected: FxHashSet::default(),
            of_nodes: 0,
            is_still: true,
        };
        let mut unclaimed: Vec<_> = cluster.scheduler.unclaimed_pods.values().cloned().collect();
        unclaimed.sort_by_key(|pod| pod.key());
        for pod in unclaimed {
            cluster.handle(Input::QueuedPod(Notification::Deleted(Arc::clone(&pod))));
            cluster.create(PodInfo::clone(&pod));
        }
        cluster
    }

    /// All unfinished pods.
    pub(super) fn pods(&self) -> Pods {
        let Scheduler { cache, pending, .. } = &*self.scheduler;
        // An assumed pod is in both.
        pending.values().chain(cache.pods()).map(|pod| (pod.uid.clone(), Arc::clone(pod))).collect()
    }

    pub(super) fn pod(&self, key: &PodKey) -> Result<Arc<PodInfo>, WhatIfError> {
        self.scheduler.pod(key).cloned().ok_or_else(|| WhatIfError::NoPod(key.clone()))
    }

    pub(super) fn node(&self, name: &Arc<str>) -> Result<Arc<NodeRecord>, WhatIfError> {
        let node = self.scheduler.cache.nodes().get(name);
        node.map(|info| Arc::clone(info.node())).ok_or_else(|| WhatIfError::NoNode(Arc::clone(name)))
    }

    pub(super) fn scheduler(&self) -> &Scheduler {
        self.scheduler
    }

    pub(super) fn why(&mut self, pod: &Arc<PodInfo>) -> Option<Why> {
        self.scheduler.why(*self.now, pod).ok()
    }

    /// Lets the scheduler run until nothing happens any more.
    pub(super) fn settle(&mut self) -> Result<(), WhatIfError> {
        self.progress = self.now.monotonic;
        let until = self.now.monotonic + HORIZON;
        loop {
            self.carry_out();
            if (self.stop)() {
                return Err(WhatIfError::Stopped);
            }
            if self.scheduler.has_work() && self.scheduler.schedule_one(*self.now, &mut NoCalls) {
                continue;
            }
            let [_, backing_off, ..] = self.scheduler.queue_lengths();
            let is_calm = self.now.monotonic >= self.progress + CALM;
            self.is_still = is_calm || backing_off == 0 && self.scheduler.bindings_in_flight() == 0;
            let wait = self.scheduler.next_deadline(*self.now).max(Duration::from_millis(1));
            if self.is_still || self.now.monotonic + wait > until {
                return Ok(());
            }
            let Now { wall, monotonic } = *self.now;
            *self.now = Now { wall: wall.plus(wait), monotonic: monotonic + wait };
            self.handle(Input::Tick);
        }
    }

    /// The effects are carried out once the caller lets the cluster settle.
    fn handle(&mut self, input: Input) {
        self.scheduler.handle(*self.now, input);
    }

    fn carry_out(&mut self) {
        loop {
            let effects = self.scheduler.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.carry_out_one(effect);
            }
        }
    }

    fn carry_out_one(&mut self, effect: Effect) {
        match effect {
            Effect::StartPreBind { pod, .. } => {
                self.scheduler.write_claims(*self.now, &pod);
                self.handle(Input::PreBound { pod: pod.uid.clone(), status: Status::success() });
            }
            Effect::Bind { pod, node, .. } => self.bind(&pod, &node),
            Effect::PatchPodStatus(patch) => self.patch(&patch),
            Effect::Evict { preemption, victims } => {
                let pods: Vec<_> =
                    victims.iter().filter_map(|it| self.scheduler.cache.pod(&it.uid).cloned()).collect();
                self.handle(Input::Evicted { preemption, outcomes: vec![Eviction::Deleted; victims.len()] });
                self.progress = self.now.monotonic;
                for pod in pods {
                    self.preempted.insert(pod.uid.clone());
                    self.evict(&pod);
                }
            }
            Effect::Write { call, then, pod, .. } => {
                self.scheduler.write_claim(*self.now, &call, then.is_some());
                if let Some(pod) = pod {
                    self.handle(Input::WriteEnded { pod, retry: false });
                }
            }
            // Nobody reads these, and nothing waits for them.
            Effect::CancelPreBind(_)
            | Effect::ReadPod { .. }
            | Effect::PatchGroupStatus(_)
            | Effect::RecordEvent(_) => {}
        }
    }

    fn bind(&mut self, pod: &Arc<PodInfo>, node: &Arc<str>) {
        self.handle(Input::Bound { pod: pod.uid.clone(), by: "".into(), outcome: BindOutcome::Bound });
        self.progress = self.now.monotonic;
        let Some(pending) = self.scheduler.pending.get(&pod.key()).cloned() else { return };
        let mut bound = PodInfo::clone(&on_node(&pending, node));
        bound.status.nominated_node_name = None;
        bound.status.start_time = Some(self.now.wall);
        self.place(Arc::new(bound));
        self.handle(Input::QueuedPod(Notification::Deleted(pending)));
    }

    /// A pod is on its node, and ready.
    fn place(&mut self, pod: Arc<PodInfo>) {
        self.handle(Input::AssignedPod(Notification::Added(Arc::clone(&pod))));
        self.count_for_budgets(&pod, 1);
    }

    /// A pod leaves its node.
    fn remove(&mut self, pod: &Arc<PodInfo>) {
        self.handle(Input::AssignedPod(Notification::Deleted(Arc::clone(pod))));
        self.count_for_budgets(pod, -1);
    }

    /// The budgets of a pod allow more or fewer evictions. Terminating pods do not count.
    fn count_for_budgets(&mut self, pod: &PodInfo, change: i32) {
        if pod.terminating {
            return;
        }
        let protect = self.budgets().filter(|budget| budget.selects(pod));
        for old in protect.map(|budget| Arc::clone(budget.object)).collect::<Vec<_>>() {
            let Some(budget) = PodDisruptionBudget::of(&old.body).cloned() else { continue };
            let allowed = budget.disruptions_allowed.saturating_sub(budget.missing_pods);
            let allowed = allowed.saturating_add(change);
            let body = Body::PodDisruptionBudget(PodDisruptionBudget {
                disruptions_allowed: allowed.max(0),
                missing_pods: allowed.saturating_neg().max(0),
                ..budget
            });
            let resource_version = self.version().as_str().into();
            let new = Arc::new(Object { body, resource_version, ..Object::clone(&old) });
            self.handle(Input::Object(Notification::Updated { old, new }));
        }
    }

    pub(super) fn budgets(&self) -> impl Iterator<Item = Typed<'_, PodDisruptionBudget>> {
        self.scheduler.objects.list(&resources::POD_DISRUPTION_BUDGET).filter_map(Typed::of)
    }

    fn patch(&mut self, patch: &StatusPatch) {
        let Some(old) = self.scheduler.pending.get(&patch.pod).cloned() else { return };
        let mut new = PodInfo::clone(&old);
        patch.apply(&mut new);
        new.resource_version = self.version().as_str().into();
        self.handle(Input::QueuedPod(Notification::Updated { old, new: Arc::new(new) }));
    }

    fn version(&mut self) -> String {
        self.versions += 1;
        format!("simulated-{}", self.versions)
    }

    /// A pod without a node comes.
    fn create(&mut self, mut pod: PodInfo) {
        if self.scheduler.profile_of(&pod).is_none() {
            let scheduler_name = Arc::clone(&self.scheduler.profiles.get(ProfileIndex(0)).scheduler_name);
            pod.spec = Arc::new(PodSpec { scheduler_name, ..PodSpec::clone(&pod.spec) });
        }
        pod.resource_version = self.version().as_str().into();
        self.handle(Input::QueuedPod(Notification::Added(Arc::new(pod))));
    }

    /// A pod goes, and nothing replaces it.
    pub(super) fn delete(&mut self, pod: &Arc<PodInfo>) {
        self.expected.insert(pod.uid.clone());
        self.scheduler.release_claims(*self.now, pod);
        if pod.is_assigned() {
            self.remove(pod);
        } else {
            self.handle(Input::QueuedPod(Notification::Deleted(Arc::clone(pod))));
        }
    }

    /// A pod leaves its node, and its controller replaces it.
    pub(super) fn evict(&mut self, pod: &Arc<PodInfo>) {
        self.remove(pod);
        self.replace(pod);
    }

    fn replace(&mut self, pod: &PodInfo) {
        self.fates.remove(&pod.uid);
        let claims = made_again(&self.scheduler.objects, pod, &pod.name, &pod.uid, |name| name.into());
        self.scheduler.release_claims(*self.now, pod);
        // Its controller has replaced it already.
        if pod.terminating {
            self.expected.insert(pod.uid.clone());
            return;
        }
        // The kubelet replaces its static pods itself.
        if pod.controller.is_none() || pod.is_controlled_by(&["Node"]) {
            return;
        }
        if pod.spec.volumes.iter().any(|volume| volume.source == VolumeSource::Ephemeral) {
            self.fates.insert(pod.uid.clone(), End::Unknown);
            return;
        }
        self.scheduler.add_claims(*self.now, claims);
        self.create(replacement(pod));
    }

    pub(super) fn add_pods(&mut self, like: &PodInfo, count: usize) {
        for _ in 0..count {
            self.added += 1;
            let Copy { pod, claims } = copy_of(&self.scheduler.objects, like, self.added);
            self.scheduler.add_claims(*self.now, claims);
            self.create(pod);
        }
    }

    /// The nodes come with the pods of DaemonSets that the present node has.
    pub(super) fn add_nodes(&mut self, like: &NodeRecord, count: usize) {
        let on_it = self.scheduler.cache.nodes().get(&like.name).map(|info| info.pods().to_vec());
        let mut of_node = on_it.unwrap_or_default();
        of_node.retain(|pod| pod.is_controlled_by(&["DaemonSet"]) && !pod.terminating);
        for _ in 0..count {
            let name = self.new_name(&like.name);
            let labels = like.labels.iter().map(|(key, value)| {
                let value = if **key == *HOSTNAME { &name } else { value };
                (Arc::clone(key), Arc::clone(value))
            });
            // A new node is well.
            let is_wanted = |taint: &&Taint| !taint.key.starts_with(NODE_CONDITIONS);
            let node = NodeRecord {
                uid: Arc::clone(&name),
                labels: labels.collect::<Labels>(),
                taints: like.taints.iter().filter(is_wanted).cloned().collect(),
                unschedulable: false,
                name,
                ..like.clone()
            };
            let node = Arc::new(node);
            self.handle(Input::Node(Notification::Added(Arc::clone(&node))));
            for pod in &of_node {
                let (uid, name) =
                    (format!("{}-on-{}", pod.uid, node.name), format!("{}-on-{}", pod.name, node.name));
                let copy = PodInfo { uid: uid.as_str().into(), name: name.into(), ..PodInfo::clone(pod) };
                self.expected.insert(copy.uid.clone());
                self.place(on_node(&copy, &node.name));
            }
        }
    }

    /// The name of another node like this one.
    fn new_name(&mut self, like: &str) -> Arc<str> {
        loop {
            self.added += 1;
            let name = format!("{like}-new-{}", self.added);
            if self.scheduler.cache.nodes().get(&name).is_none() {
                return name.into();
            }
        }
    }

    pub(super) fn cordon(&mut self, node: &Arc<NodeRecord>, unschedulable: bool) {
        let resource_version = self.version().into();
        let mut new = NodeRecord { unschedulable, resource_version, ..NodeRecord::clone(node) };
        // The node controller sets and removes this taint.
        let taint = || Taint { key: CORDON.into(), value: "".into(), effect: TaintEffect::NoSchedule };
        let others = node.taints.iter().filter(|taint| *taint.key != *CORDON).cloned();
        new.taints = others.chain(unschedulable.then(taint)).collect();
        self.handle(Input::Node(Notification::Updated { old: Arc::clone(node), new: Arc::new(new) }));
    }

    /// The nodes go with their pods, before anything is replaced.
    pub(super) fn fail(&mut self, nodes: &[Arc<NodeRecord>]) {
        let mut lost = Vec::new();
        for node in nodes {
            let info = self.scheduler.cache.nodes().get(&node.name);
            lost.extend(info.map(|info| info.pods().to_vec()).unwrap_or_default());
        }
        for pod in &lost {
            self.remove(pod);
        }
        for node in nodes {
            self.handle(Input::Node(Notification::Deleted(Arc::clone(node))));
        }
        for pod in &lost {
            if is_of_node(pod) {
                self.of_nodes += 1;
                self.expected.insert(pod.uid.clone());
                self.scheduler.release_claims(*self.now, pod);
            } else {
                self.replace(pod);
            }
        }
    }
}

/// Whether the pod belongs to its node (DaemonSet or static pod).
pub(super) fn is_of_node(pod: &PodInfo) -> bool {
    pod.is_controlled_by(&["DaemonSet", "Node"])
}

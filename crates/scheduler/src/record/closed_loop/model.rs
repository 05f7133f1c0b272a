//! The other scheduler, and a cluster that does at once what it requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::binding::{ApiCall, BindOutcome};
use supercargo_framework::{Now, PodInfo, ResourceVersion, Status, Uid};

use super::claims;
use crate::copies::replacement;
use crate::effect::{Effect, StatusPatch, VictimEviction};
use crate::input::{Eviction, Input, Notification};
use crate::record::{RecordedCall, Replaying, SchedulerCall};
use crate::scheduler::{Options, Scheduler};
use supercargo_evaluation::cache::on_node;
use supercargo_evaluation::extender::NoCalls;

/// The most attempts in a row of which none binds or evicts, for each pod without a node. Groups
/// that do not fit can be tried again at once, and for ever.
const MOST_ATTEMPTS: usize = 4;
/// The time between two moments in which that many attempts were made.
const PAUSE: Duration = Duration::from_secs(1);

/// An effect that waits for an answer, or for a notification.
pub(super) enum Request {
    PreBind(Arc<PodInfo>),
    Bind { pod: Arc<PodInfo>, node: Arc<str>, is_answered: bool, is_seen: [bool; 2] },
    Read(Uid),
    Evict { preemption: u64, victims: Vec<VictimEviction> },
    Write { pod: Option<Uid>, call: ApiCall, deletes: bool },
    Patch(StatusPatch),
}

impl Request {
    pub(super) fn of(effect: &Effect) -> Option<Self> {
        Some(match effect {
            Effect::StartPreBind { pod, .. } => Self::PreBind(Arc::clone(pod)),
            Effect::Bind { pod, node, .. } => {
                let (pod, node) = (Arc::clone(pod), Arc::clone(node));
                Self::Bind { pod, node, is_answered: false, is_seen: [false; 2] }
            }
            Effect::ReadPod { uid, .. } => Self::Read(uid.clone()),
            Effect::Evict { preemption, victims } => {
                Self::Evict { preemption: *preemption, victims: victims.clone() }
            }
            Effect::Write { pod, call, then, .. } => {
                Self::Write { pod: pod.clone(), call: call.clone(), deletes: then.is_some() }
            }
            Effect::PatchPodStatus(patch) => Self::Patch(patch.clone()),
            // Nobody reads these, and nothing waits for them.
            Effect::CancelPreBind(_) | Effect::PatchGroupStatus(_) | Effect::RecordEvent(_) => return None,
        })
    }

    /// Whether an input will tell that it is done.
    pub(super) fn has_answer(&self) -> bool {
        !matches!(self, Self::Write { pod: None, .. })
    }

    /// Whether nothing is left to do once a scheduler has this input.
    fn is_answered_by(&mut self, input: &Input) -> bool {
        match (self, input) {
            (Self::PreBind(pod), Input::PreBound { pod: uid, .. }) => pod.uid == *uid,
            (Self::Write { pod: Some(uid), .. }, Input::WriteEnded { pod, .. })
            | (Self::Read(uid), Input::PodRead { pod, .. }) => uid == pod,
            (Self::Bind { pod, is_answered, .. }, Input::Bound { pod: uid, outcome, .. })
                if pod.uid == *uid =>
            {
                *is_answered = true;
                *outcome != BindOutcome::Bound
            }
            // The informers of the two show it in any order.
            (Self::Bind { pod, is_seen, .. }, Input::AssignedPod(change)) if pod.uid == last(change).uid => {
                is_seen[0] = true;
                is_seen[1] || matches!(change, Notification::Deleted(_))
            }
            (Self::Bind { pod, is_seen, .. }, Input::QueuedPod(Notification::Deleted(gone)))
                if pod.uid == gone.uid =>
            {
                is_seen[1] = true;
                is_seen[0]
            }
            (Self::Evict { preemption, .. }, Input::Evicted { preemption: number, .. }) => {
                preemption == number
            }
            (Self::Patch(patch), Input::QueuedPod(change) | Input::AssignedPod(change)) => {
                last(change).uid == patch.uid
            }
            _ => false,
        }
    }
}

/// Drops the requests that this input answers. An answer to a write is that to one write only.
pub(super) fn answer(requests: &mut Vec<Request>, input: &Input) {
    let is_of_one = matches!(input, Input::WriteEnded { .. });
    let mut answered = false;
    requests.retain_mut(|request| {
        let is_last = is_of_one && answered || !request.is_answered_by(input);
        answered |= !is_last;
        is_last
    });
}

/// The last known state of a pod.
fn last(change: &Notification<PodInfo>) -> &Arc<PodInfo> {
    match change {
        Notification::Added(pod) | Notification::Updated { new: pod, .. } | Notification::Deleted(pod) => pod,
    }
}

/// The other scheduler, its cluster, and what it must know of the recorded one.
pub(super) struct Model {
    pub(super) scheduler: Scheduler,
    now: Now,
    versions: u64,
    /// Pods that this scheduler has bound, or that have lost their node, since this was read.
    pub(super) moved: Vec<(Uid, Option<Arc<str>>, Now)>,
    /// Pods that this scheduler has evicted.
    pub(super) evicted: BTreeSet<Uid>,
    /// Pods that the recorded scheduler has bound, or evicted.
    pub(super) bound_as_recorded: BTreeSet<Uid>,
    pub(super) evicted_as_recorded: BTreeSet<Uid>,
    /// Pods that only the recorded scheduler has evicted, by their controller: the record has
    /// another pod for each.
    spared: BTreeMap<Arc<str>, Vec<Uid>>,
    /// The spared pod, by the recorded pod that replaces it.
    replaced: BTreeMap<Uid, Uid>,
    /// Pods whose binding was not known to the end at the first difference: the record knows it.
    awaited: BTreeSet<Uid>,
}

impl Model {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        Self {
            scheduler,
            now: Now::default(),
            versions: 0,
            moved: Vec::new(),
            evicted: BTreeSet::new(),
            bound_as_recorded: BTreeSet::new(),
            evicted_as_recorded: BTreeSet::new(),
            spared: BTreeMap::new(),
            replaced: BTreeMap::new(),
            awaited: BTreeSet::new(),
        }
    }

    /// Makes a recorded call, and returns the effects.
    pub(super) fn make(
        &mut self,
        call: RecordedCall,
        reconfigure: &mut impl FnMut(&str) -> Option<Options>,
    ) -> Vec<Effect> {
        self.now = call.now;
        match call.call {
            SchedulerCall::Handle(input) => self.scheduler.handle(self.now, *input),
            SchedulerCall::ScheduleOne(answers) => {
                self.scheduler.schedule_one(self.now, &mut Replaying(answers.into_iter()));
            }
            SchedulerCall::Reconfigure(text) => {
                if let Some(options) = reconfigure(&text) {
                    // The recorded scheduler has accepted it.
                    let _ = self.scheduler.reconfigure(self.now, options);
                }
            }
            SchedulerCall::Begin(..) | SchedulerCall::Remember(_) => {}
        }
        let effects = self.scheduler.take_effects();
        let evicted = effects.iter().filter_map(|effect| match effect {
            Effect::Evict { victims, .. } => Some(victims),
            _ => None,
        });
        self.evicted.extend(evicted.flatten().map(|victim| victim.uid.clone()));
        effects
    }

    /// Whether something is due before this time for this scheduler, but not for the recorded one.
    pub(super) fn is_due_before(&self, next: Now, recorded: &Scheduler) -> bool {
        let own = self.scheduler.next_deadline(self.now);
        own < recorded.next_deadline(self.now) && self.now.monotonic + own < next.monotonic
    }

    /// Lets time pass until a recorded call, which `recorded` has already got. The modelled cluster
    /// then gets what the recorded scheduler has not caused.
    pub(super) fn follow(&mut self, recorded: &Scheduler, call: RecordedCall) {
        self.pass_until(call.now);
        if let SchedulerCall::Handle(input) = call.call {
            self.take(recorded, *input);
        }
        self.settle();
    }

    fn pass_until(&mut self, until: Now) {
        loop {
            let shortest = if self.scheduler.has_work() { PAUSE } else { Duration::from_millis(1) };
            let wait = self.scheduler.next_deadline(self.now).max(shortest);
            if self.now.monotonic + wait >= until.monotonic {
                break;
            }
            let Now { wall, monotonic } = self.now;
            self.now = Now { wall: wall.plus(wait), monotonic: monotonic + wait };
            self.handle(Input::Tick);
            self.settle();
        }
        self.now = until;
    }

    pub(super) fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input);
    }

    /// Carries out all effects, and runs cycles until none is left.
    pub(super) fn settle(&mut self) {
        let mut attempts = 0;
        loop {
            if self.carry_out_all() {
                attempts = 0;
            }
            let most = MOST_ATTEMPTS * self.scheduler.pending.len().max(1);
            let may_try = attempts < most && self.scheduler.has_work();
            if !may_try || !self.scheduler.schedule_one(self.now, &mut NoCalls) {
                return;
            }
            attempts += 1;
        }
    }

    /// Whether a pod was bound or evicted.
    fn carry_out_all(&mut self) -> bool {
        let mut has_changed = false;
        loop {
            let effects = self.scheduler.take_effects();
            if effects.is_empty() {
                return has_changed;
            }
            for request in effects.iter().filter_map(Request::of) {
                has_changed |= matches!(request, Request::Bind { .. } | Request::Evict { .. });
                if let Request::Bind { pod, node, .. } = &request {
                    self.moved.push((pod.uid.clone(), Some(Arc::clone(node)), self.now));
                }
                self.carry_out(request);
            }
        }
    }

    pub(super) fn carry_out(&mut self, request: Request) {
        match request {
            Request::PreBind(pod) => {
                self.scheduler.write_claims(self.now, &pod);
                self.handle(Input::PreBound { pod: pod.uid.clone(), status: Status::success() });
            }
            Request::Bind { pod, node, is_answered, .. } => self.bind(&pod, &node, is_answered),
            Request::Read(pod) => {
                self.awaited.insert(pod);
            }
            Request::Evict { preemption, victims } => self.evict_all(preemption, &victims),
            Request::Write { pod, call, deletes } => {
                self.scheduler.write_claim(self.now, &call, deletes);
                if let Some(pod) = pod {
                    self.handle(Input::WriteEnded { pod, retry: false });
                }
            }
            Request::Patch(patch) => self.patch(&patch),
        }
    }

    fn bind(&mut self, pod: &Arc<PodInfo>, node: &Arc<str>, is_answered: bool) {
        if !is_answered {
            let outcome = BindOutcome::Bound;
            self.handle(Input::Bound { pod: pod.uid.clone(), by: "".into(), outcome });
        }
        let pending = self.pending(pod);
        if self.assigned(&pod.uid).is_none() {
            let Some(known) = pending.clone().or_else(|| self.scheduler.cache.pod(&pod.uid).cloned()) else {
                self.awaited.insert(pod.uid.clone());
                return;
            };
            let mut bound = PodInfo::clone(&on_node(&known, node));
            bound.status.nominated_node_name = None;
            self.handle(Input::AssignedPod(Notification::Added(Arc::new(bound))));
        }
        if let Some(pending) = pending {
            self.handle(Input::QueuedPod(Notification::Deleted(pending)));
        }
    }

    fn patch(&mut self, patch: &StatusPatch) {
        let known = self.scheduler.pending.get(&patch.pod).filter(|pod| pod.uid == patch.uid).cloned();
        let Some(old) = known else { return };
        let mut new = PodInfo::clone(&old);
        patch.apply(&mut new);
        new.resource_version = self.version();
        self.handle(Input::QueuedPod(Notification::Updated { old, new: Arc::new(new) }));
    }

    fn evict_all(&mut self, preemption: u64, victims: &[VictimEviction]) {
        self.evicted.extend(victims.iter().map(|victim| victim.uid.clone()));
        self.handle(Input::Evicted { preemption, outcomes: vec![Eviction::Deleted; victims.len()] });
        for victim in victims {
            self.replace(&victim.uid);
        }
    }

    /// A pod leaves its node, and its controller replaces it. The record may do both already.
    fn replace(&mut self, uid: &Uid) {
        let Some(pod) = self.assigned(uid) else { return };
        self.remove(&pod);
        if self.evicted_as_recorded.contains(&pod.uid) || pod.terminating {
            return;
        }
        self.moved.push((uid.clone(), None, self.now));
        if pod.controller.is_none() {
            return;
        }
        let new = PodInfo { resource_version: self.version(), ..replacement(&pod) };
        self.handle(Input::QueuedPod(Notification::Added(Arc::new(new))));
    }

    /// A pod leaves its node.
    fn remove(&mut self, pod: &Arc<PodInfo>) {
        self.scheduler.give_devices_back(self.now, pod);
        self.handle(Input::AssignedPod(Notification::Deleted(Arc::clone(pod))));
    }

    fn version(&mut self) -> ResourceVersion {
        self.versions += 1;
        format!("modelled-{}", self.versions).as_str().into()
    }

    /// A pod with a node, which is more than assumed.
    fn assigned(&self, uid: &Uid) -> Option<Arc<PodInfo>> {
        let cache = &self.scheduler.cache;
        cache.pod(uid).filter(|_| cache.is_confirmed(uid)).cloned()
    }

    /// The same pod without a node.
    fn pending(&self, pod: &PodInfo) -> Option<Arc<PodInfo>> {
        let Scheduler { pending, unclaimed_pods, .. } = &self.scheduler;
        let key = pod.key();
        let known = pending.get(&key).or_else(|| unclaimed_pods.get(&key));
        known.filter(|known| known.uid == pod.uid).cloned()
    }

    /// An input of the recorded scheduler.
    fn take(&mut self, recorded: &Scheduler, input: Input) {
        match input {
            Input::AssignedPod(change) | Input::QueuedPod(change) if self.is_replacement(&change) => {
                self.take_replacement(&change);
            }
            Input::AssignedPod(Notification::Added(pod)) => self.add_assigned(pod),
            Input::QueuedPod(Notification::Added(pod)) => {
                if self.scheduler.cache.pod(&pod.uid).is_none() && self.pending(&pod).is_none() {
                    self.handle(Input::QueuedPod(Notification::Added(pod)));
                }
            }
            Input::AssignedPod(Notification::Updated { old, new })
            | Input::QueuedPod(Notification::Updated { old, new }) => {
                if old.uid != new.uid {
                    self.delete(&old);
                }
                self.update(&new);
            }
            Input::AssignedPod(Notification::Deleted(pod)) => self.delete_or_spare(&pod),
            // It was bound, and the cache has it.
            Input::QueuedPod(Notification::Deleted(pod)) if recorded.cache.pod(&pod.uid).is_some() => {
                if !self.bound_as_recorded.contains(&pod.uid) {
                    self.handle(Input::QueuedPod(Notification::Deleted(pod)));
                }
            }
            Input::QueuedPod(Notification::Deleted(pod)) => self.delete(&pod),
            Input::Node(Notification::Deleted(node)) => {
                let info = self.scheduler.cache.nodes().get(&node.name);
                let pods = info.map(|info| info.pods().to_vec()).unwrap_or_default();
                let is_here = |pod: &Arc<PodInfo>| recorded.cache.node_of(&pod.uid) == Some(&node.name);
                self.handle(Input::Node(Notification::Deleted(Arc::clone(&node))));
                // The record has the fate of the others.
                for pod in pods.iter().filter(|pod| !is_here(pod)) {
                    self.replace(&pod.uid);
                }
            }
            Input::Object(change) if claims::is_foreign(self, &change) => {}
            Input::Object(Notification::Updated { old, new }) => {
                let new = claims::merged(self, &old, new);
                let known = self.scheduler.objects.from_api(&new.resource, &new.key).cloned();
                let old = known.unwrap_or(old);
                self.handle(Input::Object(Notification::Updated { old, new }));
            }
            input @ (Input::Node(_) | Input::Object(_) | Input::Tick | Input::Drain) => self.handle(input),
            input @ Input::PodRead { .. } if self.is_awaited(&input) => self.handle(input),
            // Answers to the recorded scheduler.
            Input::Written(_)
            | Input::WriteEnded { .. }
            | Input::BindingReport(_)
            | Input::PreBound { .. }
            | Input::Bound { .. }
            | Input::PodRead { .. }
            | Input::Evicted { .. } => {}
        }
    }

    /// Whether this answers a question from before the first difference.
    fn is_awaited(&self, input: &Input) -> bool {
        matches!(input, Input::PodRead { pod, .. } if self.awaited.contains(pod))
    }

    /// Whether the pod replaces one that only the recorded scheduler has evicted.
    fn is_replacement(&mut self, change: &Notification<PodInfo>) -> bool {
        let pod = last(change);
        if self.replaced.contains_key(&pod.uid) {
            return true;
        }
        let Notification::Added(_) = change else { return false };
        if self.scheduler.cache.pod(&pod.uid).is_some() || self.pending(pod).is_some() {
            return false;
        }
        let owner = pod.controller.as_ref().map(|owner| Arc::clone(&owner.uid));
        let spared = owner.and_then(|owner| self.spared.get_mut(&owner)).and_then(Vec::pop);
        let Some(spared) = spared else { return false };
        self.replaced.insert(pod.uid.clone(), spared);
        true
    }

    fn take_replacement(&mut self, change: &Notification<PodInfo>) {
        let Notification::Deleted(pod) = change else { return };
        // It also leaves the queue when it is bound.
        if pod.node_name.is_none() && self.bound_as_recorded.contains(&pod.uid) {
            return;
        }
        let spared = self.replaced.remove(&pod.uid);
        if let Some(spared) = spared.and_then(|uid| self.assigned(&uid)) {
            self.remove(&spared);
        }
    }

    /// A pod with a node, which the recorded scheduler has chosen or somebody else.
    fn add_assigned(&mut self, pod: Arc<PodInfo>) {
        let is_known = self.scheduler.cache.pod(&pod.uid).is_some();
        let was_awaited = self.awaited.remove(&pod.uid);
        if was_awaited || !is_known && !self.bound_as_recorded.contains(&pod.uid) {
            let pending = self.pending(&pod);
            if was_awaited {
                self.moved.push((pod.uid.clone(), pod.node_name.clone(), self.now));
            }
            self.handle(Input::AssignedPod(Notification::Added(pod)));
            if let Some(pending) = pending {
                self.handle(Input::QueuedPod(Notification::Deleted(pending)));
            }
        }
    }

    /// Takes everything over but what schedulers write.
    fn update(&mut self, new: &Arc<PodInfo>) {
        let cache = &self.scheduler.cache;
        let pending = self.pending(new);
        // A pod that is being bound has no node yet.
        let node_name = if pending.is_some() { None } else { cache.node_of(&new.uid).cloned() };
        let Some(old) = pending.or_else(|| cache.pod(&new.uid).cloned()) else { return };
        let spared = self.evicted_as_recorded.contains(&new.uid) && !self.evicted.contains(&new.uid);
        let mut status = new.status.clone();
        status.nominated_node_name.clone_from(&old.status.nominated_node_name);
        status.pod_scheduled.clone_from(&old.status.pod_scheduled);
        status.disruption_target.clone_from(&old.status.disruption_target);
        let updated = Arc::new(PodInfo {
            status_requests: node_name.as_ref().and(new.status_requests.clone()),
            terminating: new.terminating && !spared,
            node_name,
            status,
            ..(**new).clone()
        });
        let is_assigned = updated.is_assigned();
        let change = Notification::Updated { old, new: updated };
        self.handle(if is_assigned { Input::AssignedPod(change) } else { Input::QueuedPod(change) });
    }

    fn delete_or_spare(&mut self, pod: &Arc<PodInfo>) {
        let is_spared = self.evicted_as_recorded.contains(&pod.uid) && !self.evicted.contains(&pod.uid);
        match &pod.controller {
            Some(owner) if is_spared && self.assigned(&pod.uid).is_some() => {
                self.spared.entry(Arc::clone(&owner.uid)).or_default().push(pod.uid.clone());
            }
            // Without a controller, nothing in the record shows when it would have ended.
            None if is_spared => {}
            _ => self.delete(pod),
        }
    }

    /// A pod ends, wherever it is.
    fn delete(&mut self, pod: &Arc<PodInfo>) {
        self.awaited.remove(&pod.uid);
        if let Some(assigned) = self.assigned(&pod.uid) {
            self.remove(&assigned);
        }
        if let Some(pending) = self.pending(pod) {
            self.handle(Input::QueuedPod(Notification::Deleted(pending)));
        }
    }
}

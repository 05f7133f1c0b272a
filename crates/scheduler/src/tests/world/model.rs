//! A scheduler in a cluster, and a model of the state that it must have.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use supercargo_framework::binding::ApiCall;
use supercargo_framework::context::Command;
use supercargo_framework::event::EventRegistration;
use supercargo_framework::objects::Object;
use supercargo_framework::plugin::{Permit, PreFlight};
use supercargo_framework::{ActionType, EventResource, NodeRecord, Now, Plugin, PodInfo, Text, Uid};

use super::api::{Api, Change};
use crate::record::{ClosedLoop, Comparer, Recorded, RecordedCall, StepLog, replay_with, restore};
use crate::tests::fake::Fake;
use crate::tests::test_bed::{WALL, all_plugins, configured_plugins, options};
use crate::{Effect, Input, NoCalls, Notification, Options, Scheduler, StatusPatch, VictimEviction};

/// The log of a record.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl StepLog for Log {
    fn push(&mut self, step: RecordedCall) {
        self.0.lock().unwrap().extend(step.to_line().unwrap());
    }
}

/// A cluster with a scheduler.
pub(super) struct World {
    pub(super) api: Api,
    recorded: Recorded<Log>,
    log: Log,
    pub(super) now: Now,
    /// The pods that the informer has reported.
    pub(super) pods: BTreeMap<Arc<str>, Arc<PodInfo>>,
    nodes: BTreeMap<Arc<str>, Arc<NodeRecord>>,
    /// Pods that the model expects to be assumed, with their nodes.
    claims: BTreeMap<Uid, Arc<str>>,
    /// Calls without an answer yet.
    pub(super) binds: Vec<(Uid, Arc<str>)>,
    pub(super) reads: Vec<Uid>,
    pub(super) pre_binds: Vec<Uid>,
    pub(super) patches: Vec<StatusPatch>,
    pub(super) evictions: Vec<(u64, Vec<VictimEviction>)>,
    /// Claims as PostFilter writes them, and the pods that wait for it.
    pub(super) writes: Vec<(Value, Uid)>,
}

const GATEKEEPER: Text = Text::Static("Gatekeeper");

fn gatekeeper() -> Arc<dyn Plugin> {
    let permit = |cx: &supercargo_framework::Context<'_>, pod: &PodInfo| {
        for waiting in cx.waiting_pods().iter() {
            let uid = waiting.uid.clone();
            if pod.labels.get("releases").is_some() {
                cx.command(Command::Allow { pod: uid, plugin: GATEKEEPER });
            } else if pod.labels.get("refuses").is_some() {
                cx.command(Command::Reject { pod: uid, plugin: GATEKEEPER, message: "refused".into() });
            }
        }
        if pod.labels.get("waits").is_some() {
            return Permit::Wait(Duration::from_secs(20));
        }
        Permit::Allow
    };
    let pre_flight = |pod: &PodInfo| match pod.labels.get("prepares") {
        Some(_) => PreFlight::Work { allow_parallel: true, work: Box::new(()) },
        None => PreFlight::Skip { allow_parallel: true },
    };
    // What it rejects is tried again when a node changes.
    let events = || vec![EventRegistration::always(EventResource::Node, ActionType::UPDATE)];
    Fake::new("Gatekeeper").permit(permit).pre_flight(pre_flight).events(events).build()
}

fn scheduler() -> Scheduler {
    Scheduler::new(options(all_plugins(vec![gatekeeper()]))).unwrap()
}

/// The same configuration again, or one that serves no pods.
fn reloaded(serves: bool) -> Options {
    let mut options = options(all_plugins(vec![gatekeeper()]));
    if !serves {
        options.profiles[0].scheduler_name = "another".to_owned();
    }
    options
}

/// Another configuration: pods go to the fullest node, and preempt nobody.
fn picky() -> Options {
    let fit = serde_json::json!({ "scoringStrategy": { "type": "MostAllocated", "resources": [{ "name": "cpu" }] } });
    let args = |name: &str| if name == "NodeResourcesFit" { fit.clone() } else { Value::Null };
    options(configured_plugins(args, vec![gatekeeper()]))
}

impl World {
    pub(super) fn new() -> Self {
        let log = Log::default();
        let now = Now { wall: WALL, monotonic: Duration::ZERO };
        Self {
            api: Api::default(),
            recorded: Recorded::new(now, scheduler(), "true".to_owned(), log.clone()),
            log,
            now,
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            claims: BTreeMap::new(),
            binds: Vec::new(),
            reads: Vec::new(),
            pre_binds: Vec::new(),
            patches: Vec::new(),
            evictions: Vec::new(),
            writes: Vec::new(),
        }
    }

    pub(super) fn scheduler(&self) -> &Scheduler {
        self.recorded.scheduler()
    }

    pub(super) fn handle(&mut self, input: Input) {
        let effects = self.recorded.handle(self.now, input);
        self.take(effects);
        self.forget_silently();
    }

    /// No effect reports a failed pod without a profile, nor one whose node was taken. The check of
    /// the cache still ensures that neither counts on a node.
    fn forget_silently(&mut self) {
        let scheduler = self.recorded.scheduler();
        let is_other = |uid: &Uid| scheduler.unclaimed_pods.values().any(|pod| pod.uid == *uid);
        self.claims.retain(|uid, _| scheduler.queued(uid).is_none() && !is_other(uid));
    }

    /// Reloads the configuration.
    pub(super) fn reload(&mut self, serves: bool) {
        let effects = self.recorded.reconfigure(self.now, reloaded(serves), serves.to_string()).unwrap();
        self.take(effects);
    }

    pub(super) fn cycle(&mut self) -> bool {
        let had_work = self.scheduler().has_work();
        let effects = self.recorded.schedule_one(self.now, &mut NoCalls);
        self.take(effects);
        self.forget_silently();
        let before: Vec<_> = self.claims.keys().cloned().collect();
        let bindings = self.recorded.scheduler().bindings.iter();
        self.claims.extend(bindings.map(|b| (b.pod().uid.clone(), Arc::clone(&b.node))));
        let new = self.claims.iter().find(|(uid, _)| !before.contains(uid));
        if let Some((uid, node)) = new.map(|(uid, node)| (uid.clone(), Arc::clone(node))) {
            // Deleted or terminating pods keep their bindings, but are no longer assumed.
            let known = self.pods.values().find(|pod| pod.uid == uid);
            if known.is_none_or(|pod| pod.terminating || pod.is_assigned()) {
                self.claims.remove(&uid);
            } else {
                self.check_capacity(&node);
            }
        }
        self.claims.retain(|uid, _| {
            let known = self.pods.values().find(|pod| pod.uid == *uid);
            known.is_some_and(|pod| !pod.terminating && !pod.is_assigned())
        });
        had_work
    }

    /// Checks that a pod that was just assumed fits its node.
    fn check_capacity(&self, node: &str) {
        let info = self.scheduler().cache().nodes().get(node).expect("pods are placed on nodes that exist");
        let (requested, allocatable) = (info.requested(), info.allocatable());
        assert!(requested.milli_cpu <= allocatable.milli_cpu, "{node} is overcommitted");
        assert!(info.pods().len() as i64 <= allocatable.allowed_pod_number, "{node} has too many pods");
    }

    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::StartPreBind { pod, .. } => self.pre_binds.push(pod.uid.clone()),
                Effect::Bind { pod, node, .. } => {
                    assert!(self.binds.iter().all(|(uid, _)| *uid != pod.uid), "{} is bound twice", pod.uid);
                    let seen = self.pods.values().find(|seen| seen.uid == pod.uid);
                    assert!(seen.is_none_or(|seen| !seen.is_assigned()), "{} has a node", pod.uid);
                    self.binds.push((pod.uid.clone(), node));
                }
                Effect::ReadPod { uid, .. } => self.reads.push(uid),
                Effect::PatchPodStatus(patch) => self.patches.push(patch),
                Effect::Evict { preemption, victims } => self.evictions.push((preemption, victims)),
                Effect::RecordEvent(event) if event.reason == *"FailedScheduling" => {
                    self.claims.remove(&event.uid);
                }
                Effect::Write { call: ApiCall::Request { body, .. }, pod: Some(pod), .. } => {
                    self.writes.push((body, pod));
                }
                Effect::Write { .. }
                | Effect::PatchGroupStatus(_)
                | Effect::CancelPreBind(_)
                | Effect::RecordEvent(_) => {}
            }
        }
    }

    /// The informer delivers the next change.
    pub(super) fn deliver(&mut self) -> bool {
        match self.api.watch.pop_front() {
            None => return false,
            Some(Change::Node { old, new }) => self.tell_node(old, new),
            Some(Change::Pod { old, new }) => self.tell_pod(old, new),
            Some(Change::Object { old, new }) => self.tell_object(old, new),
        }
        true
    }

    pub(super) fn tell_node(&mut self, old: Option<Arc<NodeRecord>>, new: Option<Arc<NodeRecord>>) {
        if let Some(gone) = old.as_ref().filter(|_| new.is_none()) {
            self.nodes.remove(&gone.name);
        }
        if let Some(new) = &new {
            self.nodes.insert(Arc::clone(&new.name), Arc::clone(new));
        }
        if let Some(notification) = notification(old, new) {
            self.handle(Input::Node(notification));
        }
    }

    pub(super) fn tell_object(&mut self, old: Option<Arc<Object>>, new: Option<Arc<Object>>) {
        if let Some(notification) = notification(old, new) {
            self.handle(Input::Object(notification));
        }
    }

    /// The number of claims whose allocation a binding is about to write.
    pub(super) fn allocations_in_flight(&self) -> usize {
        self.scheduler().objects().list_pending().count()
    }

    /// One registration serves both handlers: first that of assigned pods, then that of the others.
    pub(super) fn tell_pod(&mut self, old: Option<Arc<PodInfo>>, new: Option<Arc<PodInfo>>) {
        self.account(old.as_ref(), new.as_ref());
        let assigned = |pod: &Option<Arc<PodInfo>>| pod.clone().filter(|pod| pod.is_assigned());
        let waiting = |pod: &Option<Arc<PodInfo>>| pod.clone().filter(|pod| !pod.is_assigned());
        if let Some(notification) = notification(assigned(&old), assigned(&new)) {
            self.handle(Input::AssignedPod(notification));
        }
        if let Some(notification) = notification(waiting(&old), waiting(&new)) {
            self.handle(Input::QueuedPod(notification));
        }
    }

    fn account(&mut self, old: Option<&Arc<PodInfo>>, new: Option<&Arc<PodInfo>>) {
        if let Some(old) = old.filter(|old| new.is_none_or(|new| new.uid != old.uid)) {
            self.claims.remove(&old.uid);
            self.pods.remove(&old.name);
        }
        if let Some(new) = new {
            let began_to_terminate = new.terminating && old.is_some_and(|old| !old.terminating);
            if new.is_assigned() || began_to_terminate {
                self.claims.remove(&new.uid);
            }
            self.pods.insert(Arc::clone(&new.name), Arc::clone(new));
        }
    }

    /// The server reports the pod on this node, or on none.
    pub(super) fn claim(&mut self, uid: &Uid, node: Option<&Arc<str>>) {
        let Some(claim) = self.claims.get_mut(uid) else {
            return;
        };
        match node {
            Some(node) => *claim = Arc::clone(node),
            None => drop(self.claims.remove(uid)),
        }
    }

    /// The invariants after every step.
    pub(super) fn check(&self) {
        let scheduler = self.scheduler();
        assert_eq!(scheduler.inconsistencies(), Vec::<String>::new());
        let waiting = self.pods.values().filter(|pod| !pod.is_assigned());
        let known = scheduler.pending.values().chain(scheduler.unclaimed_pods.values());
        let known: BTreeMap<_, _> = known.map(|pod| (pod.uid.clone(), pod)).collect();
        let seen: BTreeMap<_, _> = waiting.map(|pod| (pod.uid.clone(), pod)).collect();
        assert_eq!(known, seen, "the scheduler knows the reported pods");
        for (uid, pod) in seen {
            let places = [
                scheduler.queued(&uid).is_some(),
                scheduler.bindings.get(&uid).is_some(),
                self.claims.contains_key(&uid) && scheduler.bindings.get(&uid).is_none(),
            ];
            let places = places.into_iter().filter(|here| *here).count();
            let excused = pod.terminating || scheduler.profile_of(pod).is_none();
            assert!(places == 1 || places == 0 && excused, "{uid} is in {places} places");
        }
        self.check_cache();
    }

    /// The cache equals the model: nodes, and the pods and sums on each.
    fn check_cache(&self) {
        let mut expected: BTreeMap<Arc<str>, (Vec<Uid>, i128)> = BTreeMap::new();
        let assigned = self.pods.values().filter(|pod| pod.is_assigned());
        let bound = assigned.map(|pod| (pod, pod.node_name.clone().unwrap()));
        let claimed = self.claims.iter().map(|(uid, node)| {
            let pod = self.pods.values().find(|pod| pod.uid == *uid);
            (pod.expect("only known pods have claims"), Arc::clone(node))
        });
        for (pod, node) in bound.chain(claimed) {
            let (uids, cpu) = expected.entry(node).or_default();
            uids.push(pod.uid.clone());
            *cpu += i128::from(pod.requests().resource.milli_cpu);
        }
        let mut cache = self.scheduler().cache().fork();
        let nodes = cache.refreshed();
        assert_eq!(nodes.len(), self.nodes.len());
        for (name, record) in &self.nodes {
            let info = nodes.get(name).expect("every node is in the cache");
            assert_eq!(info.node(), record);
            let mut uids: Vec<_> = info.pods().iter().map(|pod| pod.uid.clone()).collect();
            uids.sort();
            let mut expected = expected.remove(name).unwrap_or_default();
            expected.0.sort();
            let cpu = i64::try_from(expected.1).unwrap_or(i64::MAX);
            assert_eq!((uids, info.requested().milli_cpu), (expected.0, cpu), "on {name}");
        }
    }

    /// A scheduler that takes a capture of the state has the same state.
    pub(super) fn check_capture(&self) {
        let capture = |scheduler: &Scheduler| {
            let mut lines = Vec::new();
            let mut fork = scheduler.fork(self.now, reloaded(true)).unwrap();
            let done = fork.capture("true".to_owned(), |call| {
                lines.extend(call.to_line().unwrap());
                ControlFlow::<()>::Continue(())
            });
            assert!(done.is_continue());
            String::from_utf8(lines).unwrap()
        };
        let captured = capture(self.recorded.scheduler());
        let mut restored = None;
        let configure = |serves: &str| Ok(reloaded(serves == "true"));
        let read = restore(&mut restored, captured.as_bytes(), configure, None).unwrap();
        assert_eq!((read.steps, read.now), (captured.lines().count(), self.now));
        let restored = restored.unwrap();
        assert_eq!(capture(&restored), captured);
        self.check_answers(&restored);
    }

    /// Another scheduler answers as this one.
    fn check_answers(&self, other: &Scheduler) {
        let fork = |scheduler: &Scheduler| scheduler.fork(self.now, reloaded(true)).unwrap();
        let (mut here, mut there) = (fork(self.scheduler()), fork(other));
        for pod in here.pending() {
            let known = there.pod(&pod.key()).expect("every pod is in the capture");
            let (own, other) = (here.why_there(&pod), there.why_there(&Arc::clone(known)));
            assert_eq!(format!("{own:?}"), format!("{other:?}"), "about {}", pod.key());
        }
        for node in self.nodes.keys() {
            assert_eq!(here.nominated_on(node), there.nominated_on(node), "on {node}");
        }
    }

    /// The same calls to another scheduler have the same effects, and another scheduler of the same
    /// configuration makes the same decisions.
    pub(super) fn check_replay(&self) {
        let log = self.log.0.lock().unwrap();
        let configure = |serves: &str| Ok(reloaded(serves == "true"));
        let mut comparer = Comparer::new(reloaded(true)).unwrap();
        let mut before = |scheduler: &mut Scheduler, step: &RecordedCall| comparer.before(scheduler, step);
        replay_with(&mut None, &log[..], configure, &mut before).expect("a record replays");
        let comparison = comparer.comparison;
        assert_eq!(comparison.differing(), 0, "{:?}", comparison.differences);
        Self::check_model(&log);
    }

    /// With the same configuration, a modelled run is the record; with another one, its state is
    /// consistent.
    fn check_model(log: &[u8]) {
        let configure = |serves: &str| Ok(reloaded(serves == "true"));
        let mut same =
            ClosedLoop::new(reloaded(true), |serves: &str| Some(reloaded(serves == "true"))).unwrap();
        let mut scheduler = None;
        replay_with(&mut scheduler, log, configure, &mut same).expect("a record replays");
        let same = same.end(&scheduler.expect("it begins")).unwrap();
        assert_eq!((same.diverged, same.outcomes), (None, Vec::new()));
        let mut other = ClosedLoop::new(picky(), |_: &str| None).unwrap();
        replay_with(&mut None, log, configure, &mut other).expect("a record replays");
        assert_eq!(other.inconsistencies(), Vec::<String>::new());
    }
}

fn notification<T>(old: Option<Arc<T>>, new: Option<Arc<T>>) -> Option<Notification<T>> {
    Some(match (old, new) {
        (None, None) => return None,
        (None, Some(new)) => Notification::Added(new),
        (Some(old), Some(new)) => Notification::Updated { old, new },
        (Some(old), None) => Notification::Deleted(old),
    })
}

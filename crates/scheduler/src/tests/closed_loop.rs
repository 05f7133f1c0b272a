//! Modelled runs beside a record.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_framework::binding::{ApiError, BindOutcome, Certainty};
use supercargo_framework::objects::{Body, ClaimConsumer, Object};
use supercargo_framework::pod::OwnerRef;
use supercargo_framework::testing::{PodBuilder, node, pod};
use supercargo_framework::{Features, Now, PodInfo, Status};

use super::devices::{claim_named, claiming_named, class, requesting, slice, written};
use super::test_bed::{WALL, all_plugins, configured_plugins, in_tree, options};
use crate::record::{
    ClosedLoop, ClosedLoopError, ModelledPod, ModelledRun, Placement, Recorded, RecordedCall, StepLog,
    replay_with,
};
use crate::{Effect, Eviction, ExtenderSpec, Input, NoCalls, Notification, Options, PluginLists, Scheduler};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl StepLog for Log {
    fn push(&mut self, step: RecordedCall) {
        self.0.lock().unwrap().extend(step.to_line().unwrap());
    }
}

/// A recorded run in which every request is carried out at once.
struct Run {
    recorded: Recorded<Log>,
    log: Log,
    now: Now,
    plugins: PluginLists,
    pods: Vec<Arc<PodInfo>>,
}

impl Run {
    fn new(plugins: PluginLists) -> Self {
        let (log, now) = (Log::default(), Now { wall: WALL, monotonic: Duration::ZERO });
        let scheduler = Scheduler::new(options(plugins.clone())).unwrap();
        let recorded = Recorded::new(now, scheduler, "text".to_owned(), log.clone());
        Self { recorded, log, now, plugins, pods: Vec::new() }
    }

    fn nodes(mut self, nodes: &[(&str, &str)]) -> Self {
        for (name, cpu) in nodes {
            let node = Arc::new(node(name).allocatable("cpu", cpu).build());
            self.handle(Input::Node(Notification::Added(node)));
        }
        self
    }

    /// The pod comes, and all that can be tried is tried.
    fn pod(mut self, pod: PodBuilder) -> Self {
        let pod = Arc::new(pod.build());
        self.pods.push(Arc::clone(&pod));
        self.handle(Input::QueuedPod(Notification::Added(pod)));
        self.cycles();
        self
    }

    fn wait(mut self, seconds: u64) -> Self {
        let time = Duration::from_secs(seconds);
        self.now = Now { wall: self.now.wall.plus(time), monotonic: self.now.monotonic + time };
        self.handle(Input::Tick);
        self.cycles();
        self
    }

    fn delete(mut self, name: &str) -> Self {
        let place = self.pods.iter().position(|pod| *pod.name == *name).unwrap();
        let pod = self.pods.remove(place);
        let is_assigned = pod.is_assigned();
        let gone = Notification::Deleted(pod);
        self.handle(if is_assigned { Input::AssignedPod(gone) } else { Input::QueuedPod(gone) });
        self.cycles();
        self
    }

    fn cycles(&mut self) {
        while self.recorded.scheduler().has_work() {
            let effects = self.recorded.schedule_one(self.now, &mut NoCalls);
            self.carry_out(effects);
        }
    }

    fn handle(&mut self, input: Input) {
        let effects = self.recorded.handle(self.now, input);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Bind { pod, node, .. } => {
                    let place = self.pods.iter().position(|known| known.uid == pod.uid).unwrap();
                    let old = Arc::clone(&self.pods[place]);
                    let new = Arc::new(PodInfo { node_name: Some(node), ..PodInfo::clone(&old) });
                    self.pods[place] = Arc::clone(&new);
                    let (pod, by) = (new.uid.clone(), "DefaultBinder".into());
                    self.handle(Input::Bound { pod, by, outcome: BindOutcome::Bound });
                    self.handle(Input::AssignedPod(Notification::Added(new)));
                    self.handle(Input::QueuedPod(Notification::Deleted(old)));
                }
                Effect::StartPreBind { pod, .. } => {
                    self.write_claim(&pod);
                    self.handle(Input::PreBound { pod: pod.uid.clone(), status: Status::success() });
                }
                Effect::PatchPodStatus(patch) => {
                    let Some(place) = self.pods.iter().position(|known| known.uid == patch.uid) else {
                        continue;
                    };
                    let old = Arc::clone(&self.pods[place]);
                    if old.is_assigned() {
                        continue;
                    }
                    let mut new = PodInfo::clone(&old);
                    patch.apply(&mut new);
                    self.pods[place] = Arc::new(new);
                    let new = Arc::clone(&self.pods[place]);
                    self.handle(Input::QueuedPod(Notification::Updated { old, new }));
                }
                Effect::Evict { preemption, victims } => {
                    let outcomes = vec![Eviction::Deleted; victims.len()];
                    self.handle(Input::Evicted { preemption, outcomes });
                    for victim in victims {
                        let place = self.pods.iter().position(|pod| pod.uid == victim.uid).unwrap();
                        let gone = self.pods.remove(place);
                        self.handle(Input::AssignedPod(Notification::Deleted(gone)));
                    }
                }
                _ => {}
            }
        }
    }

    /// The pod's claim gets its devices. One for extended resources is created.
    fn write_claim(&mut self, pod: &PodInfo) {
        let objects = self.recorded.scheduler().objects();
        let pending: Vec<_> = objects.list_pending().collect();
        assert_eq!(pending.len(), 1, "claims of one pod");
        let mut new = written(pending[0], 2, self.now.wall).unwrap();
        let old = objects.from_api(&new.resource, &new.key).cloned();
        if let Body::ResourceClaim(claim) = &mut new.body {
            claim.reserved_for =
                [ClaimConsumer::of_pod(Arc::clone(&pod.name), (*pod.uid.text()).into())].into();
        }
        let new = Arc::new(new);
        self.handle(Input::Object(match old {
            Some(old) => Notification::Updated { old, new },
            None => Notification::Added(new),
        }));
    }

    fn object(mut self, object: Object) -> Self {
        self.handle(Input::Object(Notification::Added(Arc::new(object))));
        self
    }

    /// The run with these options, or with the recorded ones again.
    fn with(self, options: Options) -> ModelledRun {
        self.try_with(options).unwrap()
    }

    fn try_with(self, other: Options) -> Result<ModelledRun, ClosedLoopError> {
        let record = self.log.0.lock().unwrap().clone();
        let mut run = ClosedLoop::new(other, |_: &str| None).unwrap();
        let mut scheduler = None;
        let configure = |_: &str| Ok(options(self.plugins.clone()));
        replay_with(&mut scheduler, &record[..], configure, &mut run).unwrap();
        assert_eq!(run.inconsistencies(), Vec::<String>::new());
        run.end(&scheduler.unwrap())
    }
}

fn args_of(kind: &str) -> impl Fn(&str) -> Value {
    let resources = json!([{ "name": "cpu", "weight": 1 }]);
    let fit = json!({ "scoringStrategy": { "type": kind, "resources": resources } });
    move |name| if name == "NodeResourcesFit" { fit.clone() } else { Value::Null }
}

/// Without preemption.
fn strategy(kind: &str) -> PluginLists {
    configured_plugins(args_of(kind), Vec::new())
}

/// Spreads pods; the model packs them.
fn spread() -> Run {
    Run::new(strategy("LeastAllocated")).nodes(&[("a", "8"), ("b", "8")])
}

fn packed() -> Options {
    options(strategy("MostAllocated"))
}

fn cpu(name: &str, amount: &str) -> PodBuilder {
    pod(name).request("cpu", amount)
}

fn owned(pod: PodBuilder) -> PodBuilder {
    let [api_version, kind, name, uid] = ["apps/v1", "ReplicaSet", "web", "web"].map(Arc::from);
    pod.with(|pod| pod.controller = Some(Arc::new(OwnerRef { api_version, kind, name, uid })))
}

/// The node of a pod: as recorded, and in the model.
fn nodes(run: &ModelledRun, name: &str) -> (String, String) {
    let found = run.outcomes.iter().find(|it| *it.pod.name == *name);
    let ModelledPod { recorded, modelled, .. } = found.unwrap_or_else(|| panic!("{name} in {run:#?}"));
    let node =
        |it: &Option<_>| it.as_ref().map_or_else(|| "-".to_owned(), |it: &Placement| it.node.to_string());
    (node(recorded), node(modelled))
}

fn pair(recorded: &str, modelled: &str) -> (String, String) {
    (recorded.to_owned(), modelled.to_owned())
}

#[test]
fn the_recorded_configuration_reproduces_the_record() {
    let run = || {
        spread().pod(cpu("p", "2")).pod(cpu("huge", "64")).pod(cpu("q", "2")).wait(60).delete("p").wait(30)
    };
    let same = run().with(options(strategy("LeastAllocated")));
    assert_eq!((same.diverged, same.outcomes.len(), same.placed), (None, 0, (2, 2)));
    let other = run().with(packed());
    assert!(other.diverged.is_some() && !other.outcomes.is_empty());
}

#[test]
fn decisions_of_the_model_stand() {
    // As recorded, the last one finds no node with room.
    let run = spread().pod(cpu("p", "4")).pod(cpu("q", "4")).pod(cpu("wide", "8")).wait(60);
    let run = run.with(packed());
    assert_eq!(nodes(&run, "q"), pair("b", "a"));
    assert_eq!(nodes(&run, "wide"), pair("-", "b"));
    assert_eq!((run.pods, run.placed, run.outcomes.len()), (3, (2, 3), 2));
    assert_eq!(run.used_nodes, (2, 2));
    let cpu = run.usage.iter().find(|usage| &*usage.resource == "cpu").unwrap();
    assert_eq!(cpu.last, (0.5, 1.0));
}

#[test]
fn a_pod_that_ends_in_the_record_ends_in_the_model() {
    let run = spread().pod(cpu("p", "4")).pod(cpu("q", "4")).wait(5).delete("q").pod(cpu("next", "4"));
    let run = run.with(packed());
    assert_eq!(nodes(&run, "q"), pair("b", "a"));
    // Both find the room of the pod that has ended.
    assert_eq!(nodes(&run, "next"), pair("b", "a"));
    assert_eq!((run.placed, run.used_nodes), ((3, 3), (2, 1)));
}

#[test]
fn a_pod_waits_for_less_or_more_time() {
    // As recorded, it waits until another one ends.
    let run =
        spread().pod(cpu("p", "4")).pod(cpu("q", "4")).pod(cpu("wide", "8")).wait(60).delete("q").wait(30);
    let run = run.with(packed());
    let wide = run.outcomes.iter().find(|it| &*it.pod.name == "wide").unwrap();
    let (longer, shorter) = wide.wait_difference();
    assert!(longer.is_none() && shorter.is_some_and(|shorter| shorter >= Duration::from_mins(1)), "{wide:?}");
}

#[test]
fn a_victim_of_the_record_is_spared_with_its_replacement() {
    let all = |kind: &str| in_tree(&Features::default(), |_| true, args_of(kind), Vec::new());
    let run = Run::new(all("LeastAllocated")).nodes(&[("a", "8"), ("b", "8")]);
    let run = run.pod(owned(cpu("p", "4"))).pod(owned(cpu("q", "4"))).pod(cpu("vip", "8").priority(9));
    // The controller replaces the victim, which finds no room.
    let run = run.wait(15).pod(owned(cpu("again", "5"))).wait(15).with(options(all("MostAllocated")));
    assert_eq!(run.evicted, (1, 0), "{run:#?}");
    assert_eq!(nodes(&run, "q"), pair("b", "a"));
    // The model has the victim instead.
    assert_eq!(run.placed, (3, 3));
    let again = run.outcomes.iter().find(|it| &*it.pod.name == "again");
    assert!(again.is_none(), "{again:?}");
}

#[test]
fn what_the_model_evicts_is_not_placed_until_it_is_bound_again() {
    let preempting = || options(all_plugins(Vec::new()));
    let run = |p: PodBuilder| {
        let run = Run::new(strategy("LeastAllocated")).nodes(&[("a", "8")]).pod(p);
        run.wait(7).pod(cpu("vip", "8").priority(9))
    };
    for p in [cpu("p", "4"), owned(cpu("p", "4"))] {
        let run = run(p).wait(30).with(preempting());
        assert_eq!((nodes(&run, "p"), nodes(&run, "vip")), (pair("a", "-"), pair("-", "a")));
        assert_eq!((run.placed, run.evicted), ((1, 1), (0, 1)));
    }
    // Its time without a node counts, and not the time on its first one.
    let run = run(owned(cpu("p", "4"))).wait(60).delete("vip").wait(30).with(preempting());
    let p = run.outcomes.iter().find(|it| &*it.pod.name == "p").unwrap();
    assert!((60..=70).contains(&p.wait_difference().0.unwrap().as_secs()), "{p:?}");
}

/// In the record, nothing is evicted, so that `w` never gets a device.
#[test]
fn a_pod_that_only_the_model_evicts_gives_its_devices_to_others() {
    for extended in [false, true] {
        let claim = |name: &str| claim_named(name, 1, 1, None);
        let no_preemption =
            || in_tree(&Features::default(), |it| it != "DefaultPreemption", |_| Value::Null, Vec::new());
        let run = Run::new(no_preemption()).nodes(&[("n0", "8")]).object(class(true)).object(slice(0, 1));
        let run = run.object(claim("of-p")).object(claim("of-w"));
        let p = owned(cpu("p", "8"));
        let p = if extended { requesting(p) } else { claiming_named(p, "of-p") };
        let run = run.pod(p).pod(cpu("vip", "8").priority(9)).pod(claiming_named(pod("w"), "of-w")).wait(60);
        let run = run.with(options(all_plugins(Vec::new())));
        assert_eq!(nodes(&run, "p"), pair("n0", "-"), "extended: {extended}");
        assert_eq!((nodes(&run, "vip"), nodes(&run, "w")), (pair("-", "n0"), pair("-", "n0")));
    }
}

/// The scheduler reads a pod from the API server if it does not know whether it was bound.
#[test]
fn a_binding_whose_answer_is_uncertain_counts_once_the_pod_has_its_node() {
    let mut run = spread();
    let p = Arc::new(cpu("p", "2").build());
    run.handle(Input::QueuedPod(Notification::Added(Arc::clone(&p))));
    let effects = run.recorded.schedule_one(run.now, &mut NoCalls);
    let bound_to = effects.iter().find_map(|effect| match effect {
        Effect::Bind { node, .. } => Some(Arc::clone(node)),
        _ => None,
    });
    let new = Arc::new(PodInfo { node_name: bound_to, ..PodInfo::clone(&p) });
    let error = ApiError { certainty: Certainty::Unknown, message: "timeout".to_owned() };
    let outcome = BindOutcome::Failed(error);
    run.handle(Input::Bound { pod: p.uid.clone(), by: "DefaultBinder".into(), outcome });
    // The model packs, which differs from here on.
    let run = run.pod(cpu("q", "2")).wait(5);
    let finish = |mut run: Run| {
        run.handle(Input::AssignedPod(Notification::Added(Arc::clone(&new))));
        run.handle(Input::QueuedPod(Notification::Deleted(Arc::clone(&p))));
        run
    };
    let run = finish(run).with(packed());
    assert_eq!((run.placed, nodes(&run, "q")), ((2, 2), pair("b", "a")));
}

#[test]
fn a_model_cannot_ask_extenders() {
    let extender = ExtenderSpec { name: "x".into(), filters: true, ..ExtenderSpec::default() };
    let other = Options { extenders: vec![extender], ..packed() };
    assert_eq!(spread().pod(cpu("p", "1")).try_with(other).unwrap_err(), ClosedLoopError::Extenders);
}

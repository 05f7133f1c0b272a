//! Modelled runs beside a record.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_framework::binding::BindOutcome;
use supercargo_framework::pod::OwnerRef;
use supercargo_framework::testing::{PodBuilder, node, pod};
use supercargo_framework::{Features, Now, PodInfo};

use super::test_bed::{WALL, configured_plugins, in_tree, options};
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

fn strategy(kind: &str) -> PluginLists {
    let resources = json!([{ "name": "cpu", "weight": 1 }]);
    let fit = json!({ "scoringStrategy": { "type": kind, "resources": resources } });
    let args = |name: &str| if name == "NodeResourcesFit" { fit.clone() } else { Value::Null };
    configured_plugins(args, Vec::new())
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
    let all = |kind: &str| {
        let resources = json!([{ "name": "cpu", "weight": 1 }]);
        let fit = json!({ "scoringStrategy": { "type": kind, "resources": resources } });
        let args = move |name: &str| if name == "NodeResourcesFit" { fit.clone() } else { Value::Null };
        in_tree(&Features::default(), |_| true, args, Vec::new())
    };
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
fn a_model_cannot_ask_extenders() {
    let extender = ExtenderSpec { name: "x".into(), filters: true, ..ExtenderSpec::default() };
    let other = Options { extenders: vec![extender], ..packed() };
    assert_eq!(spread().pod(cpu("p", "1")).try_with(other).unwrap_err(), ClosedLoopError::Extenders);
}

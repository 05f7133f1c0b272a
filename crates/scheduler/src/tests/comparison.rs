//! Records replayed with another configuration.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_framework::Now;
use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, pod};

use super::test_bed::{WALL, all_plugins, configured_plugins, options, plugins};
use crate::record::{
    Companion, Comparer, Comparison, Decision, Reason, Recorded, RecordedCall, Replayed, StepLog, replay_with,
};
use crate::{ExtenderSpec, Input, NoCalls, Notification, Options, PluginLists, Scheduler};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl StepLog for Log {
    fn push(&mut self, step: RecordedCall) {
        self.0.lock().unwrap().extend(step.to_line().unwrap());
    }
}

/// A run in which pods stay where they are bound, and those that pick a zone are tried twice.
pub(super) fn record(plugins: PluginLists, nodes: Vec<NodeBuilder>, pods: Vec<PodBuilder>) -> Vec<u8> {
    let log = Log::default();
    let now = |seconds| {
        let monotonic = Duration::from_secs(seconds);
        Now { wall: WALL.plus(monotonic), monotonic }
    };
    let scheduler = Scheduler::new(options(plugins)).unwrap();
    let mut recorded = Recorded::new(now(0), scheduler, String::new(), log.clone());
    for node in nodes {
        recorded.handle(now(0), Input::Node(Notification::Added(Arc::new(node.build()))));
    }
    for pod in pods {
        recorded.handle(now(1), Input::QueuedPod(Notification::Added(Arc::new(pod.build()))));
        recorded.schedule_one(now(2), &mut NoCalls);
    }
    // A full node wakes those that wait for its zone.
    let late = node("z").allocatable("cpu", "0").label("zone", "nowhere").build();
    recorded.handle(now(60), Input::Node(Notification::Added(Arc::new(late))));
    recorded.handle(now(120), Input::Tick);
    while recorded.scheduler().has_work() {
        recorded.schedule_one(now(121), &mut NoCalls);
    }
    let log = log.0.lock().unwrap();
    log.clone()
}

fn compare(record: &[u8], plugins: PluginLists, other: Options) -> Comparison {
    let mut comparer = Comparer::new(other).unwrap();
    let mut before = |scheduler: &mut Scheduler, step: &RecordedCall| comparer.before(scheduler, step);
    let replayed = replayed(record, plugins, &mut before);
    assert_eq!(comparer.comparison.steps, replayed.steps - 1, "all but the begin");
    comparer.comparison
}

pub(super) fn replayed(record: &[u8], plugins: PluginLists, companion: &mut impl Companion) -> Replayed {
    let mut own = Some(options(plugins));
    let configure = |text: &str| own.take().ok_or_else(|| text.to_owned());
    replay_with(&mut None, record, configure, companion).unwrap()
}

fn strategy(kind: &str) -> PluginLists {
    let resources = json!([{ "name": "cpu", "weight": 1 }]);
    let fit = json!({ "scoringStrategy": { "type": kind, "resources": resources } });
    let args = |name: &str| if name == "NodeResourcesFit" { fit.clone() } else { Value::Null };
    configured_plugins(args, Vec::new())
}

pub(super) fn two_nodes() -> Vec<NodeBuilder> {
    ["a", "b"].map(|name| node(name).allocatable("cpu", "8").label("zone", name)).into()
}

pub(super) fn cpu(name: &str, amount: &str) -> PodBuilder {
    pod(name).request("cpu", amount)
}

#[test]
fn the_same_configuration_decides_the_same() {
    let pods = vec![cpu("p", "3"), cpu("q", "3"), cpu("huge", "64"), cpu("vip", "8").priority(9)];
    let record = record(all_plugins(Vec::new()), two_nodes(), pods);
    let same = compare(&record, all_plugins(Vec::new()), options(all_plugins(Vec::new())));
    assert!(same.attempts >= 4, "{}", same.attempts);
    assert_eq!((same.differing(), same.differences.len()), (0, 0), "{:?}", same.differences);
}

#[test]
fn another_strategy_moves_pods_and_names_the_plugin() {
    let record = record(strategy("LeastAllocated"), two_nodes(), vec![cpu("p", "2"), cpu("q", "2")]);
    let packed = compare(&record, strategy("LeastAllocated"), options(strategy("MostAllocated")));
    assert_eq!((packed.attempts, packed.moved, packed.differing()), (2, 1, 1));
    let [q] = &packed.differences[..] else { panic!("{:?}", packed.differences) };
    assert_eq!((q.pod.to_string(), q.attempts), ("default/q".to_owned(), 1));
    assert_eq!((&q.recorded, &q.other), (&Decision::Node("b".into()), &Decision::Node("a".into())));
    match &q.reason {
        Reason::Scores { plugin, lead } => {
            assert_eq!(&**plugin, "NodeResourcesFit");
            assert!(lead.0 < 0 && lead.1 > 0, "{lead:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_of_one_configuration_are_named() {
    // A selector that only NodeAffinity knows of.
    let picky = || cpu("picky", "1").node_selector("zone", "nowhere");
    let without = || {
        let mut lists = plugins(Vec::new());
        lists.filter.retain(|plugin| plugin.name() != "NodeAffinity");
        lists.pre_filter.retain(|plugin| plugin.name() != "NodeAffinity");
        lists
    };
    let strict = record(plugins(Vec::new()), two_nodes(), vec![picky()]);
    let gained = compare(&strict, plugins(Vec::new()), options(without()));
    assert_eq!((gained.gained, gained.differing()), (gained.attempts, gained.attempts));
    let [first] = &gained.differences[..] else { panic!("{:?}", gained.differences) };
    assert_eq!(first.attempts, gained.attempts, "attempts that end alike are one difference");
    assert!(first.attempts > 1 && matches!(first.recorded, Decision::Pending(_)));
    match &first.reason {
        Reason::RefusedByRecorded(node, refusal) => {
            assert_eq!((&**node, &*refusal.plugin), ("a", "NodeAffinity"));
        }
        other => panic!("{other:?}"),
    }

    let loose = record(without(), two_nodes(), vec![picky()]);
    let lost = compare(&loose, without(), options(plugins(Vec::new())));
    assert_eq!((lost.attempts, lost.lost), (1, 1));
    match &lost.differences[0].reason {
        Reason::RefusedByOther(node, refusal) => {
            assert_eq!((&**node, &*refusal.plugin), ("a", "NodeAffinity"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn preemption_and_profiles_differ() {
    let pods = || vec![cpu("low-a", "8"), cpu("low-b", "8"), cpu("vip", "8").priority(9)];
    let recorded = record(plugins(Vec::new()), two_nodes(), pods());
    let with_preemption = compare(&recorded, plugins(Vec::new()), options(all_plugins(Vec::new())));
    assert_eq!(with_preemption.preempts, with_preemption.differences[0].attempts);
    assert_eq!(with_preemption.differences[0].other, Decision::Preempts("a".into()));

    let mut other = options(plugins(Vec::new()));
    other.profiles[0].scheduler_name = "another".to_owned();
    let unserved = compare(&recorded, plugins(Vec::new()), other);
    assert_eq!(unserved.lost, 2);
    assert!(matches!(unserved.differences[0].reason, Reason::NoProfile));
}

#[test]
fn attempts_with_extenders_are_not_compared() {
    let recorded = record(plugins(Vec::new()), two_nodes(), vec![cpu("p", "1")]);
    let extender = ExtenderSpec { name: "x".into(), filters: true, ..ExtenderSpec::default() };
    let other = Options { extenders: vec![extender], ..options(plugins(Vec::new())) };
    let compared = compare(&recorded, plugins(Vec::new()), other);
    assert_eq!((compared.attempts, compared.extended, compared.differing()), (0, 1, 0));
}

#[test]
fn kinds_that_only_the_other_configuration_reads_are_named() {
    let comparer = Comparer::new(options(all_plugins(Vec::new()))).unwrap();
    let scheduler = Scheduler::new(options(plugins(Vec::new()))).unwrap();
    let kinds: Vec<String> = comparer.unrecorded_kinds(&scheduler).iter().map(ToString::to_string).collect();
    assert!(kinds.iter().any(|kind| kind == "policy/PodDisruptionBudget"), "{kinds:?}");
    let all = Scheduler::new(options(all_plugins(Vec::new()))).unwrap();
    assert!(comparer.unrecorded_kinds(&all).is_empty());
}

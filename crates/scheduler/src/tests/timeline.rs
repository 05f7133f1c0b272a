//! What happened to pods.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use supercargo_framework::binding::BindOutcome;
use supercargo_framework::plugin::Permit;
use supercargo_framework::pod::PodKey;
use supercargo_framework::testing::{PodBuilder, node, pod};
use supercargo_framework::{Now, PodInfo};

use super::fake::Fake;
use super::test_bed::{TestBed, WALL, all_plugins, options, plugins};
use crate::record::{Recorded, RecordedCall, StepLog, replay_with};
use crate::{Eviction, Happening, Input, NoCalls, Notification, Options, Scheduler};

const LIMIT: usize = 1 << 20;

fn key(name: &str) -> PodKey {
    pod(name).build().key()
}

/// The entries of a pod, without what they share with all others.
fn history(scheduler: &Scheduler, name: &str) -> Vec<String> {
    let entries = scheduler.history(&key(name)).unwrap().entries;
    entries.iter().map(|entry| short(&entry.what)).collect()
}

fn short(what: &Happening) -> String {
    match what {
        Happening::Failed(message, attempt) => {
            format!("failed {}: {}", attempt.number, message.split(". ").next().unwrap())
        }
        Happening::Chosen(node, attempt) => format!("chose {node} in {}", attempt.number),
        Happening::Bound(node) => format!("bound to {node}"),
        Happening::Woken(cause) => format!("woken: {cause}"),
        Happening::Preempts(node, pods) => format!("preempts {pods} on {node}"),
        Happening::PreemptedBy { namespace, name } => format!("evicted for {namespace}/{name}"),
        other => format!("{other:?}"),
    }
}

fn queued(pod: PodBuilder) -> Input {
    Input::QueuedPod(Notification::Added(Arc::new(pod.build())))
}

fn bound(name: &str) -> Input {
    Input::Bound { pod: name.into(), by: "DefaultBinder".into(), outcome: BindOutcome::Bound }
}

#[test]
fn a_gated_pod_is_followed_to_its_node() {
    let permit = |_: &supercargo_framework::Context<'_>, _: &PodInfo| Permit::Wait(Duration::from_secs(9));
    let slow = Fake::new("Slow").permit(permit).build();
    let options = Options { timeline_memory: LIMIT, ..options(plugins(vec![slow])) };
    let mut bed = TestBed::of(options);
    bed.handle(queued(pod("p").gate("quota").resource_version("1")));
    let update = |version: &str, gated: bool| {
        let pod = pod("p").resource_version(version);
        Arc::new(if gated { pod.gate("quota") } else { pod }.build())
    };
    bed.handle(Input::QueuedPod(Notification::Updated { old: update("1", true), new: update("2", false) }));
    bed.cycle();
    bed.handle(Input::Node(Notification::Added(Arc::new(node("n1").build()))));
    bed.now.monotonic += Duration::from_mins(10);
    bed.now.wall = WALL.plus(bed.now.monotonic);
    bed.handle(Input::Tick);
    bed.cycle();
    bed.handle(Input::QueuedPod(Notification::Deleted(update("2", false))));
    assert_eq!(
        history(&bed.scheduler, "p")[..6],
        [
            "Added",
            "Gated(\"SchedulingGates\")",
            "Released",
            "failed 1: no nodes available to schedule pods",
            "chose n1 in 2",
            "Waits(\"Slow\")",
        ]
    );
    assert!(history(&bed.scheduler, "p").contains(&"Deleted".to_owned()));
    assert_eq!(history(&bed.scheduler, "q"), Vec::<String>::new());
    assert!(TestBed::new().scheduler.history(&key("p")).is_none(), "it is off by default");
}

#[test]
fn a_pod_that_another_scheduler_binds_is_on_that_node() {
    let options = Options { timeline_memory: LIMIT, ..options(plugins(Vec::new())) };
    let mut bed = TestBed::of(options);
    for name in ["n1", "n2"] {
        bed.handle(Input::Node(Notification::Added(Arc::new(node(name).build()))));
    }
    for (name, end) in [("p", "Ended"), ("q", "Deleted")] {
        bed.handle(queued(pod(name).resource_version("1")));
        bed.cycle();
        let on_n2 = pod(name).resource_version("2").node("n2");
        bed.handle(Input::AssignedPod(Notification::Added(Arc::new(on_n2.clone().build()))));
        bed.handle(Input::QueuedPod(Notification::Deleted(Arc::new(pod(name).build()))));
        let on_n2 = if end == "Deleted" { on_n2.terminating() } else { on_n2 };
        bed.handle(Input::AssignedPod(Notification::Deleted(Arc::new(on_n2.build()))));
        let history = history(&bed.scheduler, name);
        assert_eq!(history, ["Added", "chose n1 in 1", "BoundElsewhere(\"n2\")", end]);
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl StepLog for Log {
    fn push(&mut self, step: RecordedCall) {
        self.0.lock().unwrap().extend(step.to_line().unwrap());
    }
}

#[test]
fn a_replay_of_a_record_tells_what_woke_a_pod() {
    let with_log = || Options { timeline_memory: LIMIT, ..options(all_plugins(Vec::new())) };
    let log = Log::default();
    let scheduler = Scheduler::new(with_log()).unwrap();
    let mut recorded = Recorded::new(Now::default(), scheduler, String::new(), log.clone());
    let mut seconds = 0;
    let mut now = || {
        seconds += 30;
        let monotonic = Duration::from_secs(seconds);
        Now { wall: WALL.plus(monotonic), monotonic }
    };
    let small = node("n1").allocatable("cpu", "4").build();
    recorded.handle(now(), Input::Node(Notification::Added(Arc::new(small))));
    recorded.handle(now(), queued(pod("low").request("cpu", "4")));
    recorded.schedule_one(now(), &mut NoCalls);
    recorded.handle(now(), bound("low"));
    let low = Arc::new(pod("low").request("cpu", "4").resource_version("2").node("n1").build());
    recorded.handle(now(), Input::AssignedPod(Notification::Added(Arc::clone(&low))));
    recorded.handle(now(), queued(pod("vip").priority(7).request("cpu", "4")));
    recorded.schedule_one(now(), &mut NoCalls);
    recorded.handle(now(), Input::Evicted { preemption: 1, outcomes: vec![Eviction::Deleted] });
    recorded.handle(now(), Input::AssignedPod(Notification::Deleted(low)));
    recorded.handle(now(), Input::Tick);
    recorded.schedule_one(now(), &mut NoCalls);
    recorded.handle(now(), bound("vip"));

    assert_eq!(
        history(recorded.scheduler(), "low"),
        ["Added", "chose n1 in 1", "bound to n1", "evicted for default/vip", "Ended"]
    );
    let expected = [
        "Added",
        "preempts 1 on n1",
        "failed 1: 0/1 nodes are available: 1 Insufficient cpu",
        "woken: pod default/low left n1",
        "chose n1 in 2",
        "bound to n1",
    ];
    assert_eq!(history(recorded.scheduler(), "vip"), expected);

    let mut scheduler = None;
    let log = log.0.lock().unwrap();
    replay_with(
        &mut scheduler,
        &log[..],
        |_: &str| Ok(with_log()),
        &mut |_: &mut Scheduler, _: &RecordedCall| {},
    )
    .unwrap();
    let scheduler = scheduler.unwrap();
    assert_eq!(history(&scheduler, "vip"), expected, "a replay notes the same");
    let fork = scheduler.fork(Now::default(), with_log()).unwrap();
    assert_eq!(fork.history(&key("vip")), scheduler.history(&key("vip")));
}

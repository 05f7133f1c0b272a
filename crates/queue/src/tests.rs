//! Tests of the queue without a scheduler.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rustc_hash::FxHashSet;
use supercargo_framework::event::Change;
use supercargo_framework::objects::Objects;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::testing::{PodBuilder, node, pod};
use supercargo_framework::{ActionType, ClusterEvent, EventResource, Features, Now, PodInfo, Timestamp, Uid};

use super::queueing_strategy::QueueingStrategy;
use super::{
    Backoff, Place, Popped, PreCheck, QueueCx, QueueOptions, QueuedGroup, QueuedPod, SchedulingQueue,
};
use supercargo_framework::hash_seed::HashSeed;
use supercargo_runtime::diagnosis::FitError;
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::observer::{Entity, Observation, Observer, Point, QueueName, Unobserved};
use supercargo_runtime::profile::{ProfileIndex, ProfileSpec, Profiles};

mod groups;
mod marks;

impl SchedulingQueue {
    /// The pods that an event moves, by the hints of each pod. The index must find the same.
    pub(crate) fn movable_one_by_one(
        &self,
        cx: &QueueCx<'_>,
        event: &ClusterEvent,
        change: &Change,
        pre_check: PreCheck,
    ) -> Vec<(Uid, QueueingStrategy)> {
        let mut cx = QueueCx { observer: &Unobserved, panic: None, woken: Vec::new(), ..*cx };
        let changed = change.new_pod().or(change.old_pod());
        let is_candidate = |pod: &PodInfo| match pre_check {
            PreCheck::All => true,
            PreCheck::Others => changed.is_none_or(|changed| changed.uid != pod.uid),
            PreCheck::MaxPriority(max) => pod.priority <= max,
        };
        let waiting = self.unschedulable.uids().map(|uid| &self.entries[uid]);
        let candidates = waiting.filter(|entry| {
            is_candidate(&entry.pod) && !self.hints.is_held(entry.gating_plugin.as_ref(), event)
        });
        let mut strategy = |entry: &QueuedPod| match self.groups.members(entry.uid()) {
            None => self.hints.strategy(&mut cx, entry, event, change),
            Some(members) => {
                let strategies = members.iter().map(|it| self.hints.strategy(&mut cx, it, event, change));
                strategies.max().unwrap_or(QueueingStrategy::Skip)
            }
        };
        let asked = candidates.map(|entry| (entry.uid().clone(), strategy(entry)));
        asked.filter(|(_, strategy)| *strategy != QueueingStrategy::Skip).collect()
    }
}

/// Counts calls of hints, and pods that enter unschedulableEntities; lists the queues that pods
/// enter.
#[derive(Default)]
struct Counted {
    /// With the cause; a star marks those that count as entities.
    incoming: RefCell<Vec<String>>,
    hints: Cell<usize>,
    /// Runs of PreEnqueue.
    pre_enqueue: Cell<usize>,
    unschedulable: Cell<usize>,
}

impl Observer for Counted {
    fn observe(&self, observation: Observation<'_>) {
        if let Observation::QueueIncoming { queue, event, entity, is_entity } = &observation {
            let star = if *is_entity { "*" } else { "" };
            let of_group = match entity {
                Entity::Pod => String::new(),
                Entity::Group(pods) => format!(", {pods} pods"),
            };
            self.incoming.borrow_mut().push(format!("{queue:?} by {event}{star}{of_group}"));
        }
        let count = match observation {
            Observation::Hint { .. } => &self.hints,
            Observation::ExtensionPoint { point: Point::PreEnqueue, .. } => &self.pre_enqueue,
            Observation::QueueIncoming { queue: QueueName::Unschedulable, .. } => &self.unschedulable,
            _ => return,
        };
        count.set(count.get() + 1);
    }
}

struct TestBed {
    queue: SchedulingQueue,
    profiles: Profiles,
    now: Now,
    counted: Counted,
    /// The pods that DefaultPreemption holds.
    preempting: FxHashSet<Uid>,
    objects: Objects,
}

impl TestBed {
    fn new(options: QueueOptions) -> Self {
        let registry = supercargo_plugins::registry();
        let build =
            |name| registry.get(name).unwrap()(&serde_json::Value::Null, &Features::default()).unwrap();
        let plugins = supercargo_plugins::DEFAULT_PLUGINS.iter();
        let plugins =
            plugins.filter(|p| options.groups || p.name != supercargo_plugins::gang_scheduling::NAME);
        let plugins = plugins.map(|p| (build(p.name), p.weight));
        let profiles = Profiles::new(&[ProfileSpec {
            scheduler_name: "supercargo".to_owned(),
            percentage_of_nodes_to_score: None,
            plugins: supercargo_runtime::profile::PluginLists::multi_point(plugins),
        }])
        .unwrap();
        let now = Now { wall: Timestamp(1_000_000_000), monotonic: Duration::ZERO };
        let queue = SchedulingQueue::new(options, &profiles, false, &HashSeed::new(1));
        Self {
            queue,
            profiles,
            now,
            counted: Counted::default(),
            preempting: FxHashSet::default(),
            objects: Objects::default(),
        }
    }

    fn with<R>(&mut self, call: impl FnOnce(&mut SchedulingQueue, &mut QueueCx<'_>) -> R) -> R {
        let mut cx = QueueCx {
            now: self.now,
            profiles: &self.profiles,
            objects: &self.objects,
            preempting: &self.preempting,
            observer: &self.counted,
            panic: None,
            woken: Vec::new(),
        };
        let result = call(&mut self.queue, &mut cx);
        assert_eq!(self.queue.inconsistencies(), Vec::<String>::new());
        result
    }

    fn add(&mut self, pod: PodBuilder) {
        self.with(|queue, cx| queue.add(cx, Arc::new(pod.build()), ProfileIndex(0)));
    }

    fn pop(&mut self) -> QueuedPod {
        match self.with(SchedulingQueue::pop) {
            Some(Popped::Pod(pod)) => pod,
            other => panic!("{other:?}"),
        }
    }

    fn pop_group(&mut self) -> QueuedGroup {
        match self.with(SchedulingQueue::pop) {
            Some(Popped::Group(group)) => group,
            other => panic!("{other:?}"),
        }
    }

    fn update(&mut self, old: PodBuilder, new: PodBuilder) {
        let (old, new) = (Arc::new(old.build()), Arc::new(new.build()));
        self.with(|queue, cx| queue.update(cx, &old, &new, ProfileIndex(0)));
    }

    fn node_event(&mut self, action: ActionType) {
        let node = node("n").allocatable("cpu", "64").allocatable("example.com/fpga", "64");
        let node = Some(Arc::new(node.build()));
        let change = Change::Node { old: None, new: node };
        let event = ClusterEvent::new(EventResource::Node, action);
        self.with(|queue, cx| queue.move_all(cx, &event, &change, PreCheck::All));
    }

    fn delete(&mut self, pod: PodBuilder) {
        let change = Change::Pod { old: Some(Arc::new(pod.build())), new: None };
        let event = ClusterEvent::new(EventResource::AssignedPod, ActionType::DELETE);
        self.with(|queue, cx| queue.move_all(cx, &event, &change, PreCheck::All));
    }

    fn fail(&mut self, mut entry: QueuedPod, rejected_by: Option<&'static str>) {
        entry.blame(match rejected_by {
            Some(plugin) => {
                let status = supercargo_framework::Status::unschedulable("no").by(plugin);
                FailureKind::Fit(Box::new(FitError::of_one_node(None, status)))
            }
            None => FailureKind::Internal(String::new()),
        });
        self.with(|queue, cx| queue.add_unschedulable(cx, entry));
    }

    fn place(&self, uid: &str) -> Option<Place> {
        self.queue.place(&uid.into())
    }
}

const FIT: Option<&str> = Some("NodeResourcesFit");

#[test]
fn an_update_in_flight_counts_when_the_attempt_fails() {
    let cases: [(&str, PodBuilder, Place); 2] = [
        ("it asks for less", pod("a").request("cpu", "1"), Place::Backoff),
        ("a label", pod("a").request("cpu", "2").label("x", "y"), Place::Unschedulable),
    ];
    for (name, new, expected) in cases {
        let mut bed = TestBed::new(QueueOptions::default());
        bed.add(pod("a").request("cpu", "2"));
        let entry = bed.pop();
        bed.update(pod("a").request("cpu", "2"), new.resource_version("2"));
        assert_eq!(bed.queue.lengths(), [0, 0, 0, 0, 1], "{name}: the queues do not change");
        bed.fail(entry, FIT);
        assert_eq!(bed.place("a"), Some(expected), "{name}");
    }
}

#[test]
fn only_registered_events_with_pods_in_flight_are_kept() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.node_event(ActionType::ADD);
    assert_eq!(bed.queue.in_flight.event_count(), 0);
    bed.add(pod("a"));
    let entry = bed.pop();
    bed.node_event(ActionType::UPDATE_NODE_CONDITION);
    assert_eq!(bed.queue.in_flight.event_count(), 0, "no plugin registers for conditions");
    bed.node_event(ActionType::ADD);
    assert_eq!(bed.queue.in_flight.event_count(), 1);
    bed.fail(entry, FIT);
    assert_eq!((bed.queue.in_flight.event_count(), bed.place("a")), (0, Some(Place::Backoff)));
}

#[test]
fn a_plugin_that_registers_new_nodes_gets_no_taint_updates() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.add(pod("a"));
    let entry = bed.pop();
    bed.fail(entry, FIT);
    bed.node_event(ActionType::UPDATE_NODE_TAINT);
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    bed.node_event(ActionType::ADD);
    assert_eq!(bed.place("a"), Some(Place::Backoff));
}

#[test]
fn a_failure_after_done_requeues_the_pod_with_backoff() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.add(pod("a"));
    let entry = bed.pop();
    bed.with(|queue, _| queue.done(&"a".into()));
    bed.fail(entry, FIT);
    assert_eq!(bed.place("a"), Some(Place::Backoff));
}

#[test]
fn a_pod_that_is_queued_already_is_not_queued_again() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.add(pod("a"));
    let entry = bed.pop();
    bed.with(|queue, _| queue.done(&"a".into()));
    bed.add(pod("a"));
    bed.fail(entry, FIT);
    assert_eq!(bed.queue.lengths(), [1, 0, 0, 0, 0]);
}

#[test]
fn without_backoff_pods_are_active_at_once() {
    let backoff = Backoff { max: Duration::ZERO, ..Backoff::default() };
    let mut bed = TestBed::new(QueueOptions { backoff, ..QueueOptions::default() });
    bed.add(pod("a"));
    let entry = bed.pop();
    bed.fail(entry, None);
    assert_eq!(bed.place("a"), Some(Place::Active));
}

#[test]
fn activate_takes_a_pod_out_of_either_backoff() {
    for rejected_by in [FIT, None] {
        let mut bed = TestBed::new(QueueOptions::default());
        bed.add(pod("a"));
        let entry = bed.pop();
        bed.node_event(ActionType::ADD);
        bed.fail(entry, rejected_by);
        assert_eq!(bed.place("a"), Some(Place::Backoff));
        bed.with(|queue, cx| queue.activate(cx, &Arc::new(pod("a").build())));
        assert_eq!(bed.place("a"), Some(Place::Active));
        bed.with(|queue, cx| queue.activate(cx, &Arc::new(pod("a").build())));
        bed.with(|queue, cx| queue.activate(cx, &Arc::new(pod("stranger").build())));
        assert_eq!(bed.queue.lengths(), [1, 0, 0, 0, 0]);
    }
}

#[test]
fn a_held_pod_that_its_own_update_does_not_free_is_not_counted() {
    let mut bed = TestBed::new(QueueOptions::default());
    let asks = |cpu: &str| pod("a").request("cpu", cpu);
    bed.add(asks("2"));
    let entry = bed.pop();
    bed.preempting.insert("a".into());
    bed.fail(entry, FIT);
    assert_eq!((bed.place("a"), bed.counted.unschedulable.get()), (Some(Place::Unschedulable), 1));
    bed.update(asks("2"), asks("1").resource_version("2"));
    bed.with(|queue, cx| queue.activate(cx, &Arc::new(pod("a").build())));
    assert_eq!((bed.place("a"), bed.counted.unschedulable.get()), (Some(Place::Gated), 1), "it stays");
    bed.delete(pod("b").node("n").request("cpu", "1"));
    assert_eq!((bed.place("a"), bed.counted.unschedulable.get()), (Some(Place::Gated), 2));
    bed.preempting.clear();
    bed.with(|queue, cx| queue.activate(cx, &Arc::new(pod("a").build())));
    let entry = bed.pop();
    bed.fail(entry, FIT);
    assert_eq!((bed.place("a"), bed.counted.unschedulable.get()), (Some(Place::Unschedulable), 3));
}

#[test]
fn an_activation_in_flight_concerns_that_pod_only() {
    let mut bed = TestBed::new(QueueOptions::default());
    for name in ["a", "b"] {
        bed.add(pod(name));
    }
    let (a, b) = (bed.pop(), bed.pop());
    bed.with(|queue, cx| queue.activate(cx, &Arc::new(pod("b").build())));
    bed.fail(a, FIT);
    bed.fail(b, FIT);
    assert_eq!((bed.place("a"), bed.place("b")), (Some(Place::Unschedulable), Some(Place::Backoff)));
}

#[test]
fn a_flush_of_overdue_pods_counts_for_pods_in_flight() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.add(pod("a"));
    let a = bed.pop();
    bed.fail(a, FIT);
    bed.with(SchedulingQueue::tick);
    bed.add(pod("b"));
    let b = bed.pop();
    let wait = Duration::from_secs(400);
    bed.now = Now { wall: bed.now.wall.plus(wait), monotonic: wait };
    bed.with(SchedulingQueue::tick);
    bed.fail(b, FIT);
    assert_eq!((bed.place("a"), bed.place("b")), (Some(Place::Active), Some(Place::Backoff)));
}

#[test]
fn a_flush_asks_pre_enqueue_again_every_five_minutes() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.preempting.insert("a".into());
    bed.add(pod("a"));
    let pass = |bed: &mut TestBed, seconds: u64| {
        for _ in 0..seconds / 10 {
            let later = Duration::from_secs(10);
            bed.now = Now { wall: bed.now.wall.plus(later), monotonic: bed.now.monotonic + later };
            bed.with(SchedulingQueue::tick);
        }
        (bed.place("a"), bed.counted.incoming.take().len())
    };
    assert_eq!(pass(&mut bed, 290), (Some(Place::Gated), 1), "it was added");
    assert_eq!(pass(&mut bed, 290), (Some(Place::Gated), 1), "it was flushed, and is held");
    assert!(!bed.queue.get(&"a".into()).unwrap().flushed, "what wakes it next is no flush");
    bed.preempting.clear();
    assert_eq!(pass(&mut bed, 100), (Some(Place::Active), 1), "it was flushed");
    assert!(bed.queue.get(&"a".into()).unwrap().flushed);
}

#[test]
fn a_pod_that_a_hint_sends_straight_to_a_queue_is_no_new_entity() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.add(pod("a"));
    let entry = bed.pop();
    bed.fail(entry, FIT);
    bed.node_event(ActionType::ADD);
    let entry = bed.pop();
    bed.fail(entry, None);
    assert_eq!(
        bed.counted.incoming.take(),
        [
            "Active by UnscheduledPodAdd*",
            "Unschedulable by ScheduleAttemptFailure",
            "Backoff by NodeAdd",
            "Active by PopFromBackoffQ*",
            "Backoff by ScheduleAttemptFailure",
        ]
    );
    bed.with(|queue, cx| queue.activate(cx, &Arc::new(pod("a").build())));
    assert_eq!(bed.counted.incoming.take(), ["Active by ForceActivate*"]);
}

/// Otherwise a write that fails each time would be tried again as fast as the server answers.
#[test]
fn a_retry_after_backoff_waits_though_no_other_pod_does() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.add(pod("a"));
    let entry = bed.pop();
    bed.fail(entry, FIT);
    bed.with(|queue, cx| queue.retry_after_backoff(cx, &"a".into()));
    assert_eq!(bed.place("a"), Some(Place::Backoff));
    assert!(bed.with(SchedulingQueue::pop).is_none());
}

/// Upstream keeps one list of events for all pods in flight, and hints compare no UIDs.
#[test]
fn an_own_update_in_flight_counts_for_all_pods_in_flight() {
    let mut bed = TestBed::new(QueueOptions::default());
    for name in ["a", "b"] {
        bed.add(pod(name).request("cpu", "2"));
    }
    let (_, b) = (bed.pop(), bed.pop());
    bed.update(pod("a").request("cpu", "2"), pod("a").request("cpu", "1").resource_version("2"));
    bed.fail(b, FIT);
    assert_eq!(bed.place("b"), Some(Place::Backoff));
}

#[test]
fn the_nomination_of_a_gated_pod_counts() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.add(pod("a").gate("g").nominated("n1").priority(7));
    assert_eq!(bed.place("a"), Some(Place::Gated));
    assert_eq!(bed.queue.nominated_on("n1")[0].priority, 7);
    bed.with(|queue, cx| queue.delete(cx, &"a".into()));
    assert!(bed.queue.nominator.is_empty());
}

#[test]
fn nominations_follow_the_pods_in_the_queue() {
    let mut bed = TestBed::new(QueueOptions::default());
    let names = |bed: &TestBed| -> Vec<Uid> {
        bed.queue.nominated_on("n1").iter().map(|pod: &Arc<PodInfo>| pod.uid.clone()).collect()
    };
    bed.add(pod("a").nominated("n1"));
    bed.add(pod("b"));
    assert_eq!(names(&bed), ["a".into()]);
    bed.queue.nominator.add(&pod("b").build(), &Nomination::Override(Some("n1".into())));
    assert_eq!(names(&bed), ["a".into(), "b".into()]);
    bed.update(pod("a").nominated("n1"), pod("a").resource_version("2"));
    bed.update(pod("b"), pod("b").resource_version("2"));
    assert_eq!(names(&bed), ["b".into()], "a nomination without a status is kept");
    bed.with(|queue, cx| queue.delete(cx, &"b".into()));
    assert!(bed.queue.nominator.is_empty());
    bed.queue.nominator.add(&pod("c").build(), &Nomination::Override(Some("".into())));
    assert!(bed.queue.nominator.is_empty(), "a nomination needs a name");
}

#[test]
fn only_the_name_of_a_nominated_pod_in_flight_is_known() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.add(pod("a").nominated("n1").priority(7).request("cpu", "2"));
    assert_eq!(bed.queue.nominated_on("n1")[0].priority, 7);
    bed.pop();
    let [a] = &bed.queue.nominated_on("n1")[..] else { panic!("it is still nominated") };
    assert_eq!((&a.uid, a.priority, a.requests().resource.milli_cpu), (&"a".into(), 0, 0));
}

#[test]
fn ten_thousand_pods_come_and_go_quickly() {
    let mut bed = TestBed::new(QueueOptions::default());
    let observer = &mut Unobserved;
    let mut cx = QueueCx {
        now: bed.now,
        profiles: &bed.profiles,
        objects: &Objects::default(),
        preempting: &FxHashSet::default(),
        observer,
        panic: None,
        woken: Vec::new(),
    };
    for i in 0..10_000 {
        bed.queue.add(&mut cx, Arc::new(pod(&format!("p{i}")).build()), ProfileIndex(0));
    }
    for _ in 0..10_000 {
        let Some(Popped::Pod(mut entry)) = bed.queue.pop(&mut cx) else { panic!("pods are queued") };
        let status = supercargo_framework::Status::unschedulable("no").by("NodeResourcesFit");
        entry.blame(FailureKind::Fit(Box::new(FitError::of_one_node(None, status))));
        bed.queue.add_unschedulable(&mut cx, entry);
        // The cost of calls after every step must not depend on the number of waiting pods.
        std::hint::black_box((bed.queue.lengths(), bed.queue.next_deadline(bed.now)));
    }
    assert_eq!(bed.queue.lengths(), [0, 0, 10_000, 0, 0]);
    bed.node_event(ActionType::ADD);
    assert_eq!(bed.queue.lengths(), [0, 10_000, 0, 0, 0]);
}

fn template(name: &str, milli_cpu: u64) -> PodBuilder {
    pod(name).request("cpu", &format!("{milli_cpu}m")).request("example.com/gpu", "1")
}

/// A bed with `pods` pods of each template, in turn, that NodeResourcesFit rejected. Templates
/// differ in the CPU that they request. All request a GPU, too.
fn rejected(templates: u64, pods: u64) -> TestBed {
    let mut bed = TestBed::new(QueueOptions::default());
    let template = |i: u64| template("t", 1 + i).build().spec;
    let specs: Vec<_> = (0..templates).map(template).collect();
    for i in 0..pods {
        for (template, spec) in specs.iter().enumerate() {
            let name = format!("{i:04}-{template}");
            let pod = PodInfo { spec: Arc::clone(spec), ..pod(&name).label("index", &name).build() };
            bed.with(|queue, cx| queue.add(cx, Arc::new(pod), ProfileIndex(0)));
            let entry = bed.pop();
            bed.fail(entry, FIT);
        }
    }
    bed.counted.hints.set(0);
    bed
}

#[test]
fn an_event_asks_hints_once_per_template() {
    let mut bed = rejected(3, 20);
    bed.node_event(ActionType::ADD);
    assert_eq!(
        (bed.counted.hints.get(), bed.queue.lengths()),
        (3, [0, 0, 60, 0, 0]),
        "a node without GPUs helps none"
    );
    bed.node_event(ActionType::DELETE);
    assert_eq!(bed.counted.hints.get(), 3, "the plugin does not register for deleted nodes");
}

#[test]
fn hints_are_not_asked_about_pods_that_request_more_than_a_node_offers() {
    // The node has 64 CPUs, and 64 of another resource.
    for resource in ["cpu", "example.com/gpu"] {
        let mut bed = TestBed::new(QueueOptions::default());
        for amount in 0..1000 {
            bed.add(pod(&format!("p{amount}")).request(resource, &format!("{}", 65 + amount / 100)));
            let entry = bed.pop();
            bed.fail(entry, FIT);
        }
        bed.node_event(ActionType::ADD);
        assert_eq!((bed.counted.hints.get(), bed.queue.lengths()[2]), (0, 1000), "{resource}");
    }
}

/// Amounts of all resources, often as much as others have.
fn amounts() -> impl Strategy<Value = [String; 5]> {
    prop::array::uniform5(
        prop_oneof![0..4_u32, 60..70_u32, 0..1000_u32].prop_map(|amount| amount.to_string()),
    )
}

const RESOURCES: [&str; 5] = ["cpu", "memory", "ephemeral-storage", "example.com/gpu", "example.com/fpga"];

proptest! {
    /// `move_all` compares the pods that it moves with those that hints queue one by one.
    #[test]
    fn an_event_moves_every_pod_that_fits(
        requests in prop::collection::vec(amounts(), 1..30), old in amounts(), new in amounts(),
    ) {
        let mut bed = TestBed::new(QueueOptions::default());
        for (i, requests) in requests.iter().enumerate() {
            let pod = pod(&format!("p{i}"));
            bed.add(RESOURCES.iter().zip(requests).fold(pod, |pod, (name, amount)| pod.request(name, amount)));
            let entry = bed.pop();
            bed.fail(entry, FIT);
        }
        let offering = |amounts: &[String; 5]| {
            let offered = RESOURCES.iter().zip(amounts);
            Some(Arc::new(offered.fold(node("n"), |node, (name, amount)| node.allocatable(name, amount)).build()))
        };
        for (old, action) in [(offering(&old), ActionType::UPDATE_NODE_ALLOCATABLE), (None, ActionType::ADD)] {
            let event = ClusterEvent::new(EventResource::Node, action);
            let change = Change::Node { old, new: offering(&new) };
            bed.with(|queue, cx| queue.move_all(cx, &event, &change, PreCheck::All));
        }
    }
}

#[test]
fn pods_of_all_templates_move_in_order_of_arrival() {
    let mut bed = rejected(3, 4);
    let node = node("n").allocatable("cpu", "2m").allocatable("example.com/gpu", "1");
    let change = Change::Node { old: None, new: Some(Arc::new(node.build())) };
    let event = ClusterEvent::new(EventResource::Node, ActionType::ADD);
    bed.now.wall = bed.now.wall.plus(Duration::from_mins(1));
    bed.with(|queue, cx| queue.move_all(cx, &event, &change, PreCheck::All));
    let moved: Vec<_> = (0..8).map(|_| bed.pop().pod.name.to_string()).collect();
    let expected: Vec<_> = (0..8).map(|i| format!("{:04}-{}", i / 2, i % 2)).collect();
    assert_eq!((moved, bed.queue.lengths()[2]), (expected, 4));
}

#[test]
fn an_updated_pod_changes_its_class() {
    let mut bed = rejected(1, 3);
    let asks = |cpu: u64| template("0001-0", cpu).label("index", "0001-0");
    bed.update(asks(1), asks(2).resource_version("2"));
    bed.counted.hints.set(0);
    bed.node_event(ActionType::ADD);
    assert_eq!(bed.counted.hints.get(), 2);
    bed.with(|queue, cx| queue.delete(cx, &"0001-0".into()));
    bed.node_event(ActionType::ADD);
    assert_eq!(bed.counted.hints.get(), 3);
}

/// A pod that a process marked because it stalled with it.
fn marked(name: &str) -> PodBuilder {
    pod(name).with(|pod: &mut PodInfo| {
        let mark = crate::stall::condition(pod, Duration::from_mins(1), Timestamp(1_000_000_000));
        pod.status.pod_scheduled = Some(mark);
    })
}

#[test]
fn a_pod_with_which_a_scheduler_stalled_is_delayed_and_then_last() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.add(marked("a").priority(9));
    assert_eq!((bed.place("a"), bed.queue.has_poppable()), (Some(Place::Backoff), false));
    bed.now.wall = bed.now.wall.plus(Duration::from_mins(5) + Duration::from_secs(2));
    bed.add(pod("b"));
    bed.with(SchedulingQueue::tick);
    assert_eq!(bed.place("a"), Some(Place::Active));
    assert_eq!(bed.queue.peek().map(|pod| &*pod.name), Some("b"));
    assert_eq!([bed.pop(), bed.pop()].map(|entry| entry.pod.name.to_string()), ["b", "a"]);
}

#[test]
fn a_waiting_pod_is_delayed_when_the_leader_marks_it() {
    let mut bed = TestBed::new(QueueOptions::default());
    bed.add(pod("a"));
    bed.add(pod("b"));
    bed.update(pod("a"), marked("a").resource_version("2"));
    assert_eq!((bed.place("a"), bed.pop().pod.name.to_string()), (Some(Place::Backoff), "b".to_owned()));
    assert!(bed.queue.peek().is_none());
    bed.update(marked("a").resource_version("2"), marked("a").resource_version("3").label("x", "y"));
    assert_eq!(
        bed.queue.get(&"a".into()).unwrap().backoff_until,
        Some(bed.now.wall.plus(Duration::from_mins(5)))
    );
}

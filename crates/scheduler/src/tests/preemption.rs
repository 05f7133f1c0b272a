//! Preemption from the command to the deletion of the last victim.

use std::time::Duration;

use supercargo_framework::event::{EventRegistration, QueueingHint};
use supercargo_framework::features::{Feature, Features};
use supercargo_framework::plugin::{Permit, PreFlight};
use supercargo_framework::testing::{PodBuilder, node, pod};
use supercargo_framework::{ActionType, EventResource, Plugin, Status};

use super::fake::Fake;
use super::test_bed::{TestBed, all_plugins, in_tree, options, patched};
use crate::{Effect, Eviction, Input, Notification, Place};

/// The event of a preemptor's failed attempt, with one victim.
const FAILED: &str = "high Warning FailedScheduling Scheduling: 0/1 nodes are available: 1 Insufficient cpu. \
                      preemption: found a potential placement for pod on node n1, preempting 1 victims";
const NOMINATED: &str = "high patch False Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: found \
                         a potential placement for pod on node n1, preempting 1 victims nominated \"n1\"";

fn bed(more: Vec<Fake>) -> TestBed {
    let more = more.into_iter().map(Fake::build).collect();
    let mut bed = TestBed::of(options(all_plugins(more)));
    bed.node(node("n1").allocatable("cpu", "4"));
    bed
}

fn cpus(name: &str, cpus: u32) -> PodBuilder {
    pod(name).request("cpu", &cpus.to_string())
}

fn high() -> PodBuilder {
    cpus("high", 4).priority(10)
}

/// A bed with victims on its only node, after `high` has preempted them.
fn ordered(victims: &[PodBuilder]) -> TestBed {
    let mut bed = bed(vec![]);
    for victim in victims {
        bed.assigned(victim.clone().node("n1"));
    }
    bed.pod(high());
    bed.cycle();
    bed
}

/// The victims `a`, `b` and `c`; `c` is deleted last.
fn three() -> [PodBuilder; 3] {
    [cpus("a", 1).priority(3), cpus("b", 1).priority(2), cpus("c", 2).priority(1)]
}

impl TestBed {
    fn evicted(&mut self, preemption: u64, outcomes: &[Eviction]) {
        self.handle(Input::Evicted { preemption, outcomes: outcomes.to_vec() });
    }

    /// The pod begins to terminate.
    fn terminates(&mut self, pod: PodBuilder) {
        let old = pod.clone().build().into();
        let new = pod.resource_version("2").terminating().build().into();
        self.handle(Input::AssignedPod(Notification::Updated { old, new }));
    }

    fn is_held(&self) -> bool {
        self.scheduler.preemptions.preempting().contains(&"high".into())
    }
}

#[test]
fn a_victim_is_deleted_and_the_preemptor_nominated() {
    let mut bed = ordered(&[cpus("low", 4)]);
    assert_eq!(bed.effect_lines(), ["evict low for 1", FAILED, NOMINATED]);
    assert_eq!(bed.place("high"), Some(Place::Unschedulable));
    assert!(bed.is_held());
    bed.evicted(1, &[Eviction::Deleted]);
    assert_eq!(bed.effect_lines(), ["low Normal Preempted Preempting: Preempted by pod high on node n1"]);
    assert!(!bed.is_held());
    bed.delete_assigned(cpus("low", 4).node("n1"));
    bed.cycle();
    assert_eq!(bed.effect_lines(), ["high bind to n1"]);
}

#[test]
fn an_eviction_has_a_condition_and_the_victims_uid() {
    let evict = |victim: PodBuilder| {
        let mut bed = ordered(&[victim]);
        match bed.effects().remove(0) {
            Effect::Evict { victims, .. } => victims[0].clone(),
            other => panic!("{other:?}"),
        }
    };
    let victim = evict(cpus("low", 4).with(|pod| pod.generation = 7));
    assert_eq!((&*victim.pod.name, &*victim.uid.text()), ("low", "low"));
    let condition = victim.condition.unwrap();
    assert_eq!((&*condition.status, &*condition.reason), ("True", "PreemptionByScheduler"));
    assert_eq!(&*condition.message, "supercargo: preempting to accommodate a higher priority pod");
    assert_eq!(condition.observed_generation, Some(7));
    assert!(condition.last_transition.is_some());
    let evicted = evict(cpus("low", 4).disrupted("Evicted", "")).condition.unwrap();
    assert_eq!(evicted.last_transition, None, "it was already true");
    assert_eq!(&*evicted.reason, "PreemptionByScheduler");
}

#[test]
fn a_victim_that_has_its_condition_is_not_patched_again() {
    let message = "supercargo: preempting to accommodate a higher priority pod";
    for (reason, message, is_patched) in [
        ("PreemptionByScheduler", message, false),
        ("PreemptionByScheduler", "another: preempting to accommodate a higher priority pod", true),
        ("EvictionByEvictionAPI", message, true),
    ] {
        let mut bed = ordered(&[cpus("low", 4).disrupted(reason, message)]);
        let Effect::Evict { victims, .. } = bed.effects().remove(0) else { panic!("no eviction") };
        assert_eq!(victims[0].condition.is_some(), is_patched, "{reason} {message}");
    }
}

#[test]
fn all_victims_but_the_last_are_deleted_in_parallel() {
    let mut bed = ordered(&three());
    assert_eq!(bed.effect_lines()[0], "evict a b for 1");
    bed.evicted(1, &[Eviction::Deleted, Eviction::Gone]);
    assert_eq!(
        bed.effect_lines(),
        ["a Normal Preempted Preempting: Preempted by pod high on node n1", "evict c for 1"]
    );
    assert!(bed.is_held());
    bed.evicted(1, &[Eviction::Deleted]);
    assert_eq!(bed.effect_lines(), ["c Normal Preempted Preempting: Preempted by pod high on node n1"]);
    assert!(!bed.is_held());
}

#[test]
fn the_preemptor_is_held_until_the_last_victim_leaves() {
    let [a, b, c] = three();
    let mut bed = ordered(&three());
    bed.delete_assigned(a.node("n1"));
    assert_eq!(bed.place("high"), Some(Place::Gated));
    bed.pass_seconds(400);
    assert_eq!(bed.place("high"), Some(Place::Gated), "a timeout does not help");
    bed.evicted(1, &[Eviction::Deleted, Eviction::Deleted]);
    assert_eq!(bed.place("high"), Some(Place::Gated));
    bed.terminates(c.clone().node("n1"));
    assert!(!bed.is_held(), "the answer need not arrive");
    assert_eq!(bed.place("high"), Some(Place::Gated), "no resources are free yet");
    bed.delete_assigned(b.node("n1"));
    assert_eq!(bed.place("high"), Some(Place::Active));
    bed.delete_assigned(c.node("n1"));
    bed.effect_lines();
    bed.cycle();
    assert_eq!(bed.effect_lines(), ["high bind to n1"]);
    bed.evicted(1, &[Eviction::Deleted]);
    assert_eq!(bed.scheduler.preemptions.len(), 0);
}

#[test]
fn a_last_victim_that_is_leaving_does_not_hold_the_preemptor() {
    type Leave = fn(&mut TestBed, PodBuilder);
    let cases: [(&str, Leave); 2] = [
        ("gone", |bed, last| bed.delete_assigned(last.node("n1"))),
        ("terminating", |bed, last| bed.terminates(last.node("n1"))),
    ];
    for (name, leave) in cases {
        let [a, _, c] = three();
        let mut bed = ordered(&three());
        leave(&mut bed, c);
        assert!(bed.is_held(), "{name}: other victims are left");
        bed.evicted(1, &[Eviction::Deleted, Eviction::Deleted]);
        assert!(!bed.is_held(), "{name}");
        assert!(name == "gone" || !bed.scheduler.has_work(), "{name}: no resources are free yet");
        bed.delete_assigned(a.node("n1"));
        assert!(bed.scheduler.has_work(), "{name}");
    }
}

#[test]
fn a_preemptor_held_when_its_last_victim_left_is_released() {
    let mut bed = ordered(&three());
    for victim in three() {
        bed.delete_assigned(victim.node("n1"));
    }
    assert_eq!(bed.place("high"), Some(Place::Gated));
    bed.evicted(1, &[Eviction::Gone, Eviction::Gone]);
    assert_eq!(bed.place("high"), Some(Place::Gated), "the last request is in flight");
    bed.evicted(1, &[Eviction::Gone]);
    assert_eq!(bed.place("high"), Some(Place::Active));
}

#[test]
fn a_preemptor_still_held_is_released_when_all_victims_are_gone() {
    let mut bed = bed(vec![indifferent()]);
    bed.assigned(pod("low").node("n1"));
    bed.pod(pod("high").priority(10));
    bed.cycle();
    // Events during the deletion lead to PreEnqueue, which holds the pod.
    bed.node(node("n2").unschedulable());
    assert_eq!(bed.place("high"), Some(Place::Gated));
    bed.evicted(1, &[Eviction::Deleted]);
    assert_eq!(bed.place("high"), Some(Place::Gated), "it waits for low");
    bed.delete_assigned(pod("low").node("n1"));
    assert_eq!(bed.place("high"), Some(Place::Active), "nothing else would release it");
}

#[test]
fn a_held_preemptor_waits_until_its_victims_are_gone() {
    let [a, ..] = three();
    let mut bed = ordered(&three());
    bed.delete_assigned(a.node("n1"));
    bed.evicted(1, &[Eviction::Deleted, Eviction::Deleted]);
    bed.evicted(1, &[Eviction::Deleted]);
    assert_eq!(bed.place("high"), Some(Place::Gated), "it waits for b and c");
}

#[test]
fn a_failed_eviction_requeues_the_preemptor_at_once() {
    let broke = || Eviction::Failed("it broke".to_owned());
    let mut bed = ordered(&three());
    bed.effect_lines();
    bed.evicted(1, &[broke(), Eviction::Deleted]);
    let reported = bed.effect_lines();
    assert_eq!(reported, ["b Normal Preempted Preempting: Preempted by pod high on node n1"], "c is spared");
    assert_eq!((bed.place("high"), bed.is_held()), (Some(Place::Active), false));
    assert!(bed.observed().iter().any(|line| line == "anomaly: cannot preempt pod default/a: it broke"));

    let mut bed = ordered(&[cpus("low", 4)]);
    bed.evicted(1, &[broke()]);
    assert_eq!(bed.place("high"), Some(Place::Active));

    let mut bed = ordered(&[cpus("low", 4)]);
    bed.delete(high());
    bed.evicted(1, &[broke()]);
    assert_eq!((bed.place("high"), bed.is_held()), (None, false), "it was deleted");
}

#[test]
fn an_answer_to_an_older_preemption_does_not_end_a_newer_one() {
    let low = || cpus("low", 4).node("n1");
    let mut bed = ordered(&[cpus("low", 4)]);
    bed.delete_assigned(low());
    // Another pod takes the resources at once.
    bed.assigned(cpus("quick", 4).node("n1"));
    bed.effect_lines();
    bed.cycle();
    assert_eq!(bed.effect_lines()[0], "evict quick for 2");
    bed.evicted(1, &[Eviction::Gone]);
    assert!(bed.is_held());
    bed.evicted(2, &[Eviction::Deleted]);
    assert!(!bed.is_held());
    bed.evicted(2, &[Eviction::Deleted]);
    assert_eq!(bed.scheduler.preemptions.len(), 0, "an unexpected answer changes nothing");
}

#[test]
fn terminating_victims_cost_no_request() {
    let mut bed = ordered(&[cpus("low", 4).terminating()]);
    assert_eq!(bed.effect_lines(), [FAILED, NOMINATED]);
    assert!(!bed.is_held());
    assert!(bed.observed().contains(&"preempts 1".to_owned()), "but they count");
    let mut bed = ordered(&[cpus("a", 2).terminating(), cpus("b", 2)]);
    assert_eq!(bed.effect_lines()[0], "evict b for 1");
    assert!(bed.observed().contains(&"preempts 2".to_owned()));
}

fn holder() -> Fake {
    let permit = |_: &supercargo_framework::Context<'_>, pod: &supercargo_framework::PodInfo| match pod
        .labels
        .get("waits")
    {
        Some(_) => Permit::Wait(Duration::from_mins(1)),
        None => Permit::Allow,
    };
    let flight = |pod: &supercargo_framework::PodInfo| match pod.labels.get("prepares") {
        Some(_) => PreFlight::Work { allow_parallel: false, work: Box::new(()) },
        None => PreFlight::Skip { allow_parallel: true },
    };
    Fake::new("Holder").permit(permit).pre_flight(flight).events(Vec::new)
}

/// A bed in which `low` is at the stage that its label names, after `high` has been tried.
fn on_its_way(label: &str) -> TestBed {
    let mut bed = bed(vec![holder()]);
    bed.pod(cpus("low", 4).label(label, ""));
    bed.cycle();
    bed.pod(high());
    bed.effect_lines();
    bed.cycle();
    bed
}

const IN_MEMORY: &str =
    "low Normal Preempted Preempting: Preempted by pod high on node n1 (in kube-scheduler memory).";

#[test]
fn a_victim_on_permit_is_rejected() {
    let mut bed = on_its_way("waits");
    let why = "waiting on permit for pod: preempted";
    assert_eq!(
        bed.effect_lines(),
        [
            IN_MEMORY.to_owned(),
            format!("low Warning FailedScheduling Scheduling: {why}"),
            format!("low patch False SchedulerError: {why} nominated \"\""),
            FAILED.to_owned(),
            NOMINATED.to_owned(),
        ]
    );
    assert_eq!((bed.place("low"), bed.node_of("low")), (Some(Place::Backoff), None));
    bed.cycle();
    assert_eq!(bed.effect_lines(), ["high bind to n1"], "no victim is left");
}

#[test]
fn a_victim_in_prebind_is_cancelled() {
    let mut bed = on_its_way("prepares");
    assert_eq!(bed.effect_lines(), [IN_MEMORY, "low cancel", FAILED, NOMINATED]);
    assert!(!bed.is_held());
    bed.pre_bound("low", Status::error("context canceled").by("Holder"));
    let why = "running PreBind plugin \"Holder\": preempted by DefaultPreemption";
    assert_eq!(bed.effect_lines()[1], format!("low patch False SchedulerError: {why} nominated \"\""));
    bed.cycle();
    assert_eq!(bed.effect_lines(), ["high bind to n1"]);
}

/// A plugin for which `high` needs an empty node, and which learns nothing from deleted pods.
fn indifferent() -> Fake {
    Fake::new("Indifferent")
        .filter(|_, pod, node| match (&*pod.name, node.pods().is_empty()) {
            ("high", false) => Status::unschedulable("it is not alone"),
            _ => Status::success(),
        })
        .events(|| {
            let add = EventRegistration::always(EventResource::Node, ActionType::ADD);
            let delete = EventRegistration::hinted(EventResource::AssignedPod, ActionType::DELETE, |_, _| {
                Ok(QueueingHint::Skip)
            });
            vec![add, delete]
        })
}

#[test]
fn a_preemptor_is_tried_again_when_its_cancelled_victim_is_gone() {
    for (label, place_before) in [("waits", Place::Backoff), ("prepares", Place::Unschedulable)] {
        let mut bed = bed(vec![holder(), indifferent()]);
        bed.pod(pod("low").label(label, ""));
        bed.cycle();
        bed.pod(pod("high").priority(10));
        bed.cycle();
        assert_eq!(bed.place("high"), Some(place_before), "{label}");
        if label == "prepares" {
            bed.pre_bound("low", Status::error("context canceled").by("Holder"));
            assert_eq!(bed.place("high"), Some(Place::Active), "no event of a plugin would wake it");
        }
        bed.effect_lines();
        bed.cycle();
        assert_eq!(bed.effect_lines(), ["high bind to n1"], "{label}");
    }
}

#[test]
fn a_victim_in_bind_is_deleted() {
    let mut bed = on_its_way("binds");
    assert_eq!(bed.effect_lines(), ["evict low for 1", FAILED, NOMINATED]);
    assert!(bed.is_held());
    bed.update(cpus("low", 4).label("binds", ""), cpus("low", 4).resource_version("2").terminating());
    assert!(!bed.is_held(), "its deletion is seen before its binding");
}

#[test]
fn lower_priority_pods_lose_their_nomination() {
    let keeps = |name: &str, priority| pod(name).priority(priority).nominated("n1");
    let mut bed = bed(vec![]);
    bed.assigned(cpus("low", 4).node("n1"));
    bed.pod(high());
    bed.pod(keeps("lower", 9));
    bed.pod(keeps("equal", 10));
    bed.pod(keeps("elsewhere", 9).nominated("n2"));
    bed.cycle();
    assert_eq!(bed.effect_lines(), ["lower patch nominated \"\"", "evict low for 1", FAILED, NOMINATED]);
}

fn synchronous(victims: &[PodBuilder]) -> TestBed {
    let features = Features::default().with(Feature::SchedulerAsyncPreemption, false);
    let no_more = Vec::<std::sync::Arc<dyn Plugin>>::new();
    let mut bed = TestBed::of(options(in_tree(&features, |_| true, |_| serde_json::Value::Null, no_more)));
    bed.node(node("n1").allocatable("cpu", "4"));
    for victim in victims {
        bed.assigned(victim.clone().node("n1"));
    }
    bed.pod(high());
    bed.pod(cpus("other", 4));
    bed.cycle();
    bed
}

#[test]
fn a_synchronous_attempt_ends_when_its_victims_are_deleted() {
    let mut bed = synchronous(&three());
    assert_eq!(bed.effect_lines(), ["evict a b c for 1"]);
    assert_eq!(bed.place("high"), Some(Place::InFlight));
    assert!(!bed.scheduler.has_work() && !bed.cycle(), "no other pod is tried meanwhile");
    bed.evicted(1, &[Eviction::Deleted, Eviction::Deleted, Eviction::Gone]);
    let preempted = |name| format!("{name} Normal Preempted Preempting: Preempted by pod high on node n1");
    let [failed, nominated] = [FAILED, NOMINATED].map(|text| text.replace("1 victims", "3 victims"));
    assert_eq!(bed.effect_lines(), [preempted("a"), preempted("b"), failed, nominated]);
    assert_eq!(bed.place("high"), Some(Place::Unschedulable));
    assert!(bed.cycle(), "now other pods are tried");
}

#[test]
fn a_failed_synchronous_preemption_is_in_the_message() {
    let mut bed = synchronous(&[cpus("low", 4)]);
    bed.effect_lines();
    bed.evicted(1, &[Eviction::Failed("it broke".to_owned())]);
    let text = "0/1 nodes are available: 1 Insufficient cpu. preemption: it broke";
    assert_eq!(bed.effect_lines()[1], format!("high patch False Unschedulable: {text}"));
}

#[test]
fn events_during_a_synchronous_preemption_are_not_lost() {
    let mut bed = synchronous(&[cpus("low", 4)]);
    bed.delete_assigned(cpus("low", 4).node("n1"));
    bed.evicted(1, &[Eviction::Deleted]);
    assert_eq!(bed.place("high"), Some(Place::Backoff), "the victim's deletion was recorded");
    let mut bed = synchronous(&[cpus("low", 4)]);
    bed.delete(high());
    bed.evicted(1, &[Eviction::Deleted]);
    assert_eq!(bed.place("high"), None);
    assert!(bed.scheduler.has_work());
}

#[test]
fn a_scheduler_is_not_drained_while_victims_are_being_deleted() {
    let mut bed = ordered(&three());
    bed.handle(Input::Drain);
    assert!(!bed.scheduler.is_drained());
    bed.evicted(1, &[Eviction::Deleted, Eviction::Deleted]);
    bed.evicted(1, &[Eviction::Deleted]);
    assert!(bed.scheduler.is_drained());
}

#[test]
fn a_nomination_holds_against_lower_priority_pods() {
    let mut bed = ordered(&[cpus("low", 4)]);
    let effects = bed.effects();
    bed.update(high(), patched(high(), &effects));
    bed.evicted(1, &[Eviction::Deleted]);
    bed.pod(cpus("late", 1));
    bed.cycle();
    bed.delete_assigned(cpus("low", 4).node("n1"));
    bed.effect_lines();
    while bed.cycle() {}
    let reported = bed.effect_lines();
    assert_eq!(reported[0], "high bind to n1");
    assert!(reported.iter().all(|line| !line.starts_with("late bind")), "{reported:?}");
}

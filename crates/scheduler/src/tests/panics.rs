//! Panics of plugins: the attempt fails, and the message names the plugin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use supercargo_framework::binding::{BindOutcome, Certainty};
use supercargo_framework::event::EventRegistration;
use supercargo_framework::plugin::Permit;
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{ActionType, EventResource, Status};

use super::fake::{Fake, Log};
use super::test_bed::{TestBed, failed, options, plugins};
use crate::{Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec, Place, PluginLists};

#[test]
fn a_panic_in_a_cycle_is_a_failure_that_names_the_plugin() {
    let cases: Vec<(&str, Fake)> = vec![
        ("PreFilter", Fake::new("P").pre_filter(|_| panic!("oh"))),
        ("Filter", Fake::new("P").filter(|_, _, _| panic!("oh"))),
        ("PreScore", Fake::new("P").pre_score(|_| panic!("oh"))),
        ("Score", Fake::new("P").score(|_| panic!("oh"))),
        ("Reserve", Fake::new("P").reserve(|_, _| panic!("oh"))),
        ("Permit", Fake::new("P").permit(|_, _| panic!("oh"))),
        ("PreBindPreFlight", Fake::new("P").pre_flight(|_| panic!("oh"))),
        (
            "PostFilter",
            Fake::new("P").filter(|_, _, _| Status::unschedulable("no")).post_filter(|_, _| panic!("oh")),
        ),
    ];
    for (point, plugin) in cases {
        let log = Log::default();
        let lines = log.clone();
        let reserver = Fake::new("R").unreserve(move |_, _, _| lines.add("unreserve"));
        let mut bed = TestBed::with(vec![reserver.build(), plugin.build()]);
        bed.node(node("n1"));
        bed.node(node("n2"));
        bed.pod(pod("a"));
        assert!(bed.cycle());
        let message = format!("plugin \"P\" panicked in {point}: oh");
        assert_eq!(bed.effect_lines()[1], format!("a patch False SchedulerError: {message}"));
        assert_eq!((bed.place("a"), bed.node_of("a")), (Some(Place::Backoff), None));
        assert!(bed.observed().contains(&format!("anomaly: {message}")));
        let reserved = ["Reserve", "Permit", "PreBindPreFlight"].contains(&point);
        assert_eq!(log.take().len(), usize::from(reserved), "{point}");
        assert!(!bed.scheduler.has_work());
    }
}

#[test]
fn unreserve_sees_what_reserve_wrote_before_a_panic() {
    let log = Log::default();
    let lines = log.clone();
    let plugin = Fake::new("R")
        .reserve(|state, _| {
            state.write(7_u64);
            Status::success()
        })
        .unreserve(move |_, state, _| lines.add(format!("{:?}", state.read::<u64>())));
    let panics = Fake::new("P").permit(|_, _| panic!("oh"));
    let mut bed = TestBed::with(vec![plugin.build(), panics.build()]);
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    assert_eq!(log.take(), ["Some(7)"]);
}

#[test]
fn a_panic_in_unreserve_or_postbind_does_not_skip_other_plugins() {
    let log = Log::default();
    let recorder = |name: &'static str| {
        let (undone, bound) = (log.clone(), log.clone());
        Fake::new(name)
            .unreserve(move |_, _, _| undone.add(format!("{name} unreserve")))
            .post_bind(move |_| bound.add(format!("{name} bound")))
            .build()
    };
    let panics = || {
        Fake::new("P").unreserve(|_, _, _| panic!("oh")).post_bind(|_| panic!("oh")).events(Vec::new).build()
    };
    let mut bed = TestBed::with(vec![recorder("A"), panics(), recorder("B")]);
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    bed.bound("a", failed(Certainty::Refused, "no"));
    assert_eq!(log.take(), ["B unreserve", "A unreserve"]);
    assert_eq!(bed.node_of("a"), None);
    bed.pass_seconds(2);
    bed.cycle();
    bed.bound("a", BindOutcome::Bound);
    assert_eq!(log.take(), ["A bound", "B bound"]);
    let anomalies: Vec<_> = bed.observed().into_iter().filter(|line| line.starts_with("anomaly")).collect();
    assert_eq!(
        anomalies,
        ["anomaly: plugin \"P\" panicked in Unreserve: oh", "anomaly: plugin \"P\" panicked in PostBind: oh"]
    );
}

#[test]
fn a_panic_in_a_hint_queues_the_pod_and_is_reported() {
    let hint = |_: &_, _: &_| panic!("oh");
    let plugin = Fake::new("P")
        .permit(|cx, _| {
            // An event during the attempt.
            cx.command(supercargo_framework::context::Command::Activate(Vec::new()));
            Permit::Wait(Duration::from_secs(1))
        })
        .events(move || vec![EventRegistration::hinted(EventResource::Node, ActionType::ADD, hint)]);
    let mut bed = TestBed::with(vec![plugin.build()]);
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    bed.node(node("n2"));
    bed.effect_lines();
    bed.pass_seconds(1);
    let message = "plugin \"P\" panicked in QueueingHint: oh";
    assert_eq!(bed.effect_lines()[1], format!("a patch False SchedulerError: {message} nominated \"\""));
    assert_eq!(bed.place("a"), Some(Place::Backoff));
    bed.pass_seconds(2);
    assert!(bed.observed().contains(&format!("anomaly: {message}")));
}

#[test]
fn a_panic_in_preenqueue_holds_the_pod_and_is_reported() {
    let armed = Arc::new(AtomicBool::new(false));
    let panics = Arc::clone(&armed);
    let plugin = Fake::new("P")
        .pre_enqueue(move |_| {
            assert!(!panics.load(Ordering::Relaxed), "oh");
            Status::success()
        })
        .filter(|_, _, _| Status::error("broken"));
    let mut bed = TestBed::with(vec![plugin.build()]);
    bed.node(node("n1"));
    bed.pod(pod("a"));
    armed.store(true, Ordering::Relaxed);
    bed.cycle();
    let message = "plugin \"P\" panicked in PreEnqueue: oh";
    assert_eq!(bed.effect_lines()[1], format!("a patch False SchedulerError: {message}"));
    assert_eq!(bed.place("a"), Some(Place::Gated));
    armed.store(false, Ordering::Relaxed);
    bed.node(node("n2"));
    assert_ne!(bed.place("a"), Some(Place::Gated));
}

#[test]
fn a_panic_in_queuesort_leaves_the_queue_consistent() {
    let armed = Arc::new(AtomicBool::new(false));
    let panics = Arc::clone(&armed);
    let sort = Fake::new("P")
        .less(move |a, b| {
            assert!(!panics.load(Ordering::Relaxed), "oh");
            a.priority > b.priority
        })
        .build();
    let lists = PluginLists { queue_sort: vec![sort], ..plugins(Vec::new()) };
    let mut bed = TestBed::of(options(lists));
    bed.node(node("n1"));
    for (i, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        bed.pod(pod(name).priority(i as i32));
    }
    armed.store(true, Ordering::Relaxed);
    bed.pod(pod("f"));
    assert_eq!(bed.scheduler.queue_lengths()[0], 6);
    bed.cycle();
    assert_eq!(bed.effect_lines()[1], "e patch False SchedulerError: plugin \"P\" panicked in QueueSort: oh");
    armed.store(false, Ordering::Relaxed);
    while bed.cycle() {}
    assert_eq!(bed.effect_lines().len(), 5, "the others are bound");
}

struct Panics;

impl Calls for Panics {
    fn ask(&mut self, _: &ExtenderSpec, _: ExtenderQuestion<'_>) -> Result<ExtenderAnswer, String> {
        panic!("oh")
    }
}

#[test]
fn a_panic_in_an_extender_call_names_no_plugin() {
    let spec = ExtenderSpec { name: "x".into(), filters: true, ..ExtenderSpec::default() };
    let mut bed = TestBed::extended(vec![spec]);
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle_with(&mut Panics);
    assert_eq!(bed.effect_lines()[1], "a patch False SchedulerError: the scheduling cycle panicked: oh");
}

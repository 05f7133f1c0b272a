//! Configuration changes while pods wait or are being bound.

use std::sync::Arc;

use supercargo_framework::binding::{BindOutcome, Certainty};
use supercargo_framework::objects::Members;
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{Plugin, Status};

use super::fake::{Fake, Log};
use super::test_bed::{TestBed, big, failed, options, plugins};
use crate::{Options, Place};

/// The usual plugins and one that rejects every pod.
fn refusing() -> Options {
    let refuser = Fake::new("Refuser").filter(|_, _, _| Status::unschedulable("not here")).build();
    options(plugins(vec![refuser]))
}

fn usual() -> Options {
    options(plugins(Vec::new()))
}

fn serving(scheduler_name: &str) -> Options {
    let mut options = usual();
    options.profiles[0].scheduler_name = scheduler_name.to_owned();
    options
}

#[test]
fn pods_are_retried_with_new_plugins_and_keep_their_history() {
    let mut bed = TestBed::of(refusing());
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    let first = bed.queued("a").initial_attempt;
    bed.effect_lines();
    bed.reconfigure(usual()).unwrap();
    assert_eq!(bed.place("a"), Some(Place::Backoff), "a reload ends no backoff");
    assert_eq!((bed.queued("a").attempts, bed.queued("a").initial_attempt), (1, first));
    bed.pass_seconds(2);
    assert!(bed.cycle());
    assert_eq!(bed.effect_lines(), ["a bind to n1"]);
}

#[test]
fn cached_answers_of_old_plugins_are_dropped() {
    let mut bed = TestBed::of(usual());
    bed.node(node("n1"));
    bed.node(node("n2"));
    bed.pod(pod("a"));
    bed.cycle();
    bed.bound("a", BindOutcome::Bound);
    bed.effect_lines();
    let not_n1 = Fake::new("NotN1").filter(|_, _, node| match &**node.name() {
        "n1" => Status::unschedulable("not here"),
        _ => Status::success(),
    });
    bed.reconfigure(options(plugins(vec![not_n1.build()]))).unwrap();
    for name in ["b", "c", "d"] {
        bed.pod(pod(name));
        bed.cycle();
    }
    assert_eq!(bed.effect_lines(), ["b bind to n2", "c bind to n2", "d bind to n2"]);
}

#[test]
fn pods_leave_the_queue_without_a_profile_and_return_with_one() {
    let mut bed = TestBed::of(usual());
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.pod(pod("b").scheduler("another"));
    assert_eq!((bed.place("a"), bed.place("b")), (Some(Place::Active), None));
    bed.reconfigure(serving("another")).unwrap();
    assert_eq!((bed.place("a"), bed.place("b")), (None, Some(Place::Active)));
    // Updates of unclaimed pods are not lost.
    bed.update(pod("a"), pod("a").resource_version("2").gate("g"));
    bed.reconfigure(usual()).unwrap();
    assert_eq!((bed.place("a"), bed.place("b")), (Some(Place::Gated), None));
    bed.delete(pod("b").scheduler("another"));
    bed.reconfigure(serving("another")).unwrap();
    assert_eq!(bed.place("b"), None, "it was deleted");
}

#[test]
fn bindings_end_under_the_profile_that_started_them() {
    let log = Log::default();
    let recorder = |name: &'static str| -> Arc<dyn Plugin> {
        let (bound, undone) = (log.clone(), log.clone());
        Fake::new(name)
            .post_bind(move |pod| bound.add(format!("{name} bound {}", pod.name)))
            .unreserve(move |_, _, pod| undone.add(format!("{name} undid {}", pod.name)))
            .build()
    };
    let mut bed = TestBed::of(options(plugins(vec![recorder("Old")])));
    bed.node(node("n1"));
    for name in ["a", "b"] {
        bed.pod(pod(name));
        bed.cycle();
    }
    bed.reconfigure(options(plugins(vec![recorder("New")]))).unwrap();
    // A second change while the bindings are in progress.
    bed.reconfigure(options(plugins(vec![recorder("Newest")]))).unwrap();
    bed.bound("a", BindOutcome::Bound);
    bed.bound("b", failed(Certainty::Refused, "no"));
    assert_eq!(log.take(), ["Old bound a", "Old undid b"]);
    bed.pass_seconds(5);
    bed.cycle();
    bed.bound("b", BindOutcome::Bound);
    assert_eq!(log.take(), ["Newest bound b"]);
}

#[test]
fn a_pod_that_fails_without_its_profile_is_unclaimed() {
    let mut bed = TestBed::of(usual());
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    bed.reconfigure(serving("another")).unwrap();
    bed.effect_lines();
    bed.bound("a", failed(Certainty::Refused, "no"));
    assert_eq!((bed.place("a"), bed.effect_lines()), (None, Vec::new()));
    bed.reconfigure(usual()).unwrap();
    assert_eq!(bed.place("a"), Some(Place::Active));
}

#[test]
fn a_pod_that_is_unclaimed_leaves_its_group() {
    let mut bed = TestBed::of(usual());
    bed.node(node("n1"));
    bed.pod(pod("a").group("g"));
    bed.cycle();
    let members = |bed: &TestBed| bed.scheduler.objects().members().get("default/g").map(Members::all);
    assert_eq!(members(&bed), Some(1));
    bed.reconfigure(serving("another")).unwrap();
    bed.bound("a", failed(Certainty::Refused, "no"));
    assert_eq!(members(&bed).unwrap_or_default(), 0);
}

#[test]
fn an_invalid_configuration_changes_nothing() {
    let mut bed = TestBed::of(usual());
    bed.node(node("n1"));
    bed.pod(big("a"));
    bed.cycle();
    let none = Options { profiles: Vec::new(), ..Options::default() };
    assert!(bed.reconfigure(none).is_err());
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    assert!(bed.scheduler.is_responsible_for("supercargo"));
}

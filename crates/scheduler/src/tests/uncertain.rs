//! Bindings whose outcome is unknown.

use std::time::Duration;

use supercargo_framework::binding::{BindOutcome, Certainty};
use supercargo_framework::testing::{PodBuilder, node, pod};

use super::fake::{Fake, Log};
use super::test_bed::{TestBed, failed};
use crate::{Place, PodRead};

fn a() -> PodBuilder {
    pod("a").request("cpu", "4")
}

/// The pod `a` was sent to n1, and the answer is lost.
fn uncertain(log: &Log) -> TestBed {
    let given_back = log.clone();
    let plugin = Fake::new("R").unreserve(move |_, _, _| given_back.add("unreserve")).events(Vec::new);
    let mut bed = TestBed::with(vec![plugin.build()]);
    bed.node(node("n1"));
    bed.pod(a());
    bed.cycle();
    assert_eq!(bed.effect_lines(), ["a bind to n1"]);
    bed.bound("a", failed(Certainty::Unknown, "timeout"));
    assert_eq!(bed.effect_lines(), ["a read"]);
    assert!(bed.is_assumed("a"), "it counts until the outcome is known");
    bed.node(node("n2"));
    bed
}

#[test]
fn a_read_finds_the_pod_bound() {
    let log = Log::default();
    let mut bed = uncertain(&log);
    bed.read("a", PodRead::Exists(Some("n1".into())));
    assert_eq!(bed.effect_lines(), ["a Normal Scheduled Binding: Successfully assigned default/a to n1"]);
    assert!(bed.is_assumed("a") && log.take().is_empty());
}

#[test]
fn a_read_finds_the_pod_on_another_node() {
    let log = Log::default();
    let mut bed = uncertain(&log);
    bed.pod(pod("b").request("cpu", "4").node_selector("nowhere", ""));
    bed.observed();
    bed.read("a", PodRead::Exists(Some("n2".into())));
    assert!(bed.effect_lines().is_empty());
    assert_eq!((log.take(), bed.observed()), (vec!["unreserve".to_owned()], vec!["lost race".to_owned()]));
    assert_eq!((bed.node_of("a"), bed.is_assumed("a")), (Some("n2"), true), "it counts there now");
    bed.update(a(), a().label("x", "y").resource_version("2"));
    assert_eq!(bed.place("a"), None, "it is not tried again");
    bed.confirm(a(), "n2");
    assert!(!bed.is_assumed("a"));
}

#[test]
fn a_read_finds_the_pod_unbound() {
    let log = Log::default();
    let mut bed = uncertain(&log);
    bed.read("a", PodRead::Exists(None));
    let message = "running Bind plugin \"DefaultBinder\": timeout";
    assert_eq!(bed.effect_lines()[1], format!("a patch False SchedulerError: {message}"));
    assert_eq!((bed.place("a"), bed.node_of("a")), (Some(Place::Backoff), None));
    assert_eq!(log.take(), ["unreserve"]);
}

#[test]
fn a_read_finds_the_pod_gone() {
    let log = Log::default();
    let mut bed = uncertain(&log);
    bed.read("a", PodRead::Gone);
    assert!(bed.effect_lines().is_empty());
    assert_eq!((log.take(), bed.node_of("a")), (vec!["unreserve".to_owned()], None));
    bed.delete(a());
    assert_eq!(bed.place("a"), None);
}

#[test]
fn failed_reads_are_retried_with_growing_pauses() {
    let mut bed = uncertain(&Log::default());
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        bed.read("a", PodRead::Failed);
        assert!(bed.scheduler.next_deadline(bed.now) <= Duration::from_secs(seconds));
        bed.pass(Duration::from_millis(seconds * 1_000 - 1));
        assert!(bed.effect_lines().is_empty());
        bed.pass(Duration::from_millis(1));
        assert_eq!(bed.effect_lines(), ["a read"]);
        bed.pass_seconds(60);
        assert!(bed.effect_lines().is_empty(), "one read at a time");
    }
    bed.read("a", PodRead::Exists(Some("n1".into())));
    assert_eq!(bed.effect_lines().len(), 1);
}

#[test]
fn the_informer_may_settle_a_binding_before_the_read() {
    for (node, reported) in [("n1", 1), ("n2", 0)] {
        let log = Log::default();
        let mut bed = uncertain(&log);
        bed.confirm(a(), node);
        assert_eq!(bed.effect_lines().len(), reported);
        assert_eq!(log.take().len(), 1 - reported);
        assert_eq!((bed.node_of("a"), bed.is_assumed("a")), (Some(node), false));
        assert_eq!(bed.scheduler.bindings_in_flight(), 0);
        bed.read("a", PodRead::Exists(Some(node.into())));
        assert!(bed.effect_lines().is_empty());
    }
}

#[test]
fn the_informer_may_report_the_pod_before_bind_fails() {
    for (on, reported) in [("n1", 1), ("n2", 0)] {
        let mut bed = TestBed::new();
        bed.node(node("n1"));
        bed.pod(a());
        bed.cycle();
        bed.node(node("n2"));
        bed.effect_lines();
        bed.confirm(a(), on);
        assert!(bed.effect_lines().is_empty(), "Bind has not ended");
        bed.bound("a", failed(Certainty::Conflict, "conflict"));
        assert_eq!(bed.effect_lines().len(), reported, "no read is needed");
        assert_eq!((bed.node_of("a"), bed.scheduler.bindings_in_flight()), (Some(on), 0));
    }
}

#[test]
fn a_refused_binding_that_the_informer_saw_is_not_retried() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    bed.pod(a());
    bed.cycle();
    bed.effect_lines();
    // Handlers are notified one after the other, and the answer arrives in between.
    bed.assigned(a().resource_version("9").node("n1"));
    bed.bound("a", failed(Certainty::Refused, "no"));
    bed.delete(a());
    assert!(bed.effect_lines().is_empty());
    assert_eq!((bed.place("a"), bed.node_of("a")), (None, Some("n1")));
}

#[test]
fn a_pod_deleted_while_its_binding_is_uncertain_stops_counting() {
    let log = Log::default();
    let mut bed = uncertain(&log);
    bed.delete(a());
    assert_eq!(bed.node_of("a"), None);
    bed.read("a", PodRead::Gone);
    assert_eq!((bed.scheduler.bindings_in_flight(), log.take().len()), (0, 1));
    assert!(bed.effect_lines().is_empty());
}

#[test]
fn a_pod_that_returns_during_its_binding_is_assumed_again() {
    let mut bed = uncertain(&Log::default());
    bed.delete(a());
    bed.pod(a());
    assert!(bed.is_assumed("a") && bed.place("a").is_none());
    bed.read("a", PodRead::Exists(Some("n1".into())));
    bed.confirm(a(), "n1");
    assert_eq!(bed.node_of("a"), Some("n1"));
}

#[test]
fn a_terminating_pod_is_requeued_only_when_its_binding_failed() {
    let mut bed = uncertain(&Log::default());
    let going = || a().terminating().resource_version("2");
    bed.update(a(), going());
    assert_eq!((bed.node_of("a"), bed.place("a")), (None, None));
    bed.update(going(), a().terminating().label("x", "y").resource_version("3"));
    assert_eq!(bed.place("a"), None);
    bed.read("a", PodRead::Exists(None));
    assert_eq!(bed.place("a"), Some(Place::Backoff));
    bed.effect_lines();
    bed.pass_seconds(2);
    bed.cycle();
    assert_eq!(
        bed.effect_lines(),
        ["a Warning FailedScheduling Scheduling: skip schedule deleting pod: default/a"]
    );
}

#[test]
fn a_bound_pod_deleted_before_it_is_confirmed_leaves_nothing() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    bed.pod(a());
    bed.cycle();
    bed.bound("a", BindOutcome::Bound);
    bed.delete_assigned(a().node("n1"));
    assert_eq!((bed.node_of("a"), bed.place("a")), (None, None));
    assert!(bed.scheduler.pending.is_empty());
}

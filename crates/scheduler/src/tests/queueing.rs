//! Pods in the queue.

use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::binding::Certainty;
use supercargo_framework::testing::{PodBuilder, node, pod};
use supercargo_framework::{Status, TaintEffect, Timestamp};

use super::fake::{Fake, Log};
use super::test_bed::{TestBed, big, failed, with_unschedulable};
use crate::{Effect, Place};

#[test]
fn pods_are_popped_by_priority_then_in_order_of_arrival() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -1)] {
        bed.pod(pod(name).priority(priority));
    }
    while bed.cycle() {}
    let bound: Vec<_> = bed.effect_lines().into_iter().map(|line| line[..1].to_owned()).collect();
    assert_eq!(bound.concat(), "bdace");
}

#[test]
fn a_helpful_event_leads_to_backoff_from_where_pods_are_popped() {
    let mut bed = with_unschedulable(big("a"));
    bed.node(node("n2").allocatable("cpu", "16"));
    assert_eq!(bed.place("a"), Some(Place::Backoff));
    assert!(bed.scheduler.has_work());
    bed.observed();
    bed.effect_lines();
    assert!(bed.cycle());
    assert_eq!(bed.effect_lines(), ["a bind to n2"]);
    assert_eq!(bed.observed()[0], "Active by PopFromBackoffQ");
}

#[test]
fn an_event_that_does_not_help_moves_no_pod() {
    let mut bed = with_unschedulable(big("a"));
    bed.node(node("n2").allocatable("cpu", "7"));
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    bed.assigned(pod("x").node("n1"));
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    bed.delete_assigned(pod("x").node("n1"));
    assert_eq!(bed.place("a"), Some(Place::Backoff), "a deleted pod may have freed resources");
}

#[test]
fn a_pod_leaves_backoff_at_the_next_whole_second() {
    let mut bed = with_unschedulable(big("a"));
    bed.node(node("n2").allocatable("cpu", "16"));
    // A pod is popped early only if none is active.
    assert_eq!(bed.scheduler.next_deadline(bed.now), Duration::from_secs(2));
    bed.pass(Duration::from_millis(1_999));
    assert_eq!(bed.place("a"), Some(Place::Backoff));
    assert_eq!(bed.scheduler.next_deadline(bed.now), Duration::from_millis(1));
    bed.pass(Duration::from_millis(1));
    assert_eq!(bed.place("a"), Some(Place::Active));
    assert!(bed.observed().contains(&"Active by BackoffComplete".to_owned()));
}

#[test]
fn backoff_grows_with_every_failure_and_counts_from_whole_seconds() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    bed.pod(big("a"));
    for (attempt, seconds) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10)] {
        bed.pass(Duration::from_millis(300));
        bed.cycle();
        assert_eq!(bed.queued("a").attempts, attempt);
        bed.node(node(&format!("m{attempt}")).allocatable("cpu", "16").unschedulable());
        assert_eq!(bed.place("a"), Some(Place::Backoff));
        // The end of the backoff is rounded down to a second, and the pod leaves in the next one.
        // The rest of the current second adds to that.
        let into_second = bed.now.wall.since(bed.now.wall.floor_to_second());
        let expected = Duration::from_secs(seconds + 1).saturating_sub(into_second);
        assert_eq!(bed.scheduler.next_deadline(bed.now), expected, "attempt {attempt}");
        bed.pass(expected);
        assert_eq!(bed.place("a"), Some(Place::Active));
    }
}

#[test]
fn an_error_waits_out_its_backoff_even_when_the_scheduler_is_idle() {
    let mut bed = TestBed::new();
    bed.pod(pod("a"));
    bed.cycle();
    assert_eq!(bed.place("a"), Some(Place::Backoff), "without nodes no plugin is blamed");
    bed.node(node("n1"));
    assert!(!bed.scheduler.has_work() && !bed.cycle());
    for seconds in [1, 2, 4, 8, 10, 10] {
        bed.delete_node(node("n1"));
        bed.pass_seconds(seconds);
        assert_eq!(bed.place("a"), Some(Place::Backoff));
        bed.pass_seconds(1);
        assert_eq!(bed.place("a"), Some(Place::Active));
        bed.cycle();
        bed.node(node("n1"));
    }
    assert_eq!((bed.queued("a").consecutive_errors, bed.queued("a").unschedulable_count), (7, 0));
}

#[test]
fn consecutive_errors_are_reset_by_a_rejection() {
    let mut bed = TestBed::new();
    bed.pod(big("a"));
    bed.cycle();
    bed.node(node("n1"));
    bed.pass_seconds(2);
    bed.cycle();
    assert_eq!((bed.queued("a").consecutive_errors, bed.queued("a").unschedulable_count), (0, 1));
}

#[test]
fn pods_in_backoff_are_popped_by_its_end_then_by_priority() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    for (name, priority) in [("a", 0), ("b", 7), ("c", 3)] {
        bed.pod(big(name).priority(priority));
        if name == "a" {
            bed.cycle();
            bed.pass_seconds(1);
        }
    }
    while bed.cycle() {}
    bed.node(node("n2").allocatable("cpu", "32"));
    bed.effect_lines();
    while bed.cycle() {}
    assert_eq!(bed.effect_lines(), ["a bind to n2", "b bind to n2", "c bind to n2"]);
}

#[test]
fn a_pod_that_has_waited_five_minutes_is_tried_again() {
    let mut bed = with_unschedulable(big("a"));
    bed.pass_seconds(300);
    assert_eq!(bed.place("a"), Some(Place::Unschedulable), "five minutes exactly are not too long");
    bed.pass_seconds(30);
    assert_eq!(bed.place("a"), Some(Place::Active));
    assert!(bed.queued("a").flushed);
    assert!(bed.observed().contains(&"Active by UnschedulableTimeout".to_owned()));
    bed.cycle();
    assert!(!bed.queued("a").flushed);
}

/// Upstream's error backoff stalls here.
#[test]
fn a_wall_clock_set_back_delays_no_pod() {
    let mut bed = with_unschedulable(big("a"));
    bed.pod(pod("b").uid("b").request("cpu", "100m"));
    bed.cycle();
    bed.effect_lines();
    bed.bound("b", failed(Certainty::Refused, "no"));
    assert_eq!(bed.place("b"), Some(Place::Backoff), "an error leads to backoff");
    bed.now.wall = Timestamp(bed.now.wall.0 - 86_400_000_000);
    assert!(bed.scheduler.next_deadline(bed.now) <= Duration::from_secs(2));
    bed.pass_seconds(2);
    assert_eq!(bed.place("b"), Some(Place::Active));
    bed.pass_seconds(340);
    assert_eq!(bed.place("a"), Some(Place::Active), "the maximum wait is not extended");
    bed.effect_lines();
    while bed.cycle() {}
    let reported = bed.effects();
    let set = reported.iter().find_map(|effect| match effect {
        Effect::PatchPodStatus(patch) => patch.condition.clone(),
        _ => None,
    });
    let transition = set.unwrap().last_transition;
    assert_eq!(transition, Some(bed.now.wall.floor_to_second()), "the condition has the wall clock's time");
}

#[test]
fn the_next_deadline_is_never_zero_after_a_tick() {
    let mut bed = with_unschedulable(big("a"));
    bed.pod(pod("b"));
    for _ in 0..200 {
        let wait = bed.scheduler.next_deadline(bed.now);
        assert!(!wait.is_zero() && wait <= Duration::from_secs(30), "{wait:?}");
        bed.pass(wait.min(Duration::from_millis(3_700)));
    }
}

#[test]
fn a_gated_pod_waits_until_its_last_gate_is_removed() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    let gated = || pod("a").gate("g").gate("h");
    bed.pod(gated());
    assert_eq!(bed.place("a"), Some(Place::Gated));
    assert_eq!(bed.observed(), ["Unschedulable by UnscheduledPodAdd"]);
    assert_eq!(bed.queued("a").gating_plugin.as_deref(), Some("SchedulingGates"));
    bed.update(gated(), pod("a").gate("g").resource_version("2"));
    assert_eq!(bed.place("a"), Some(Place::Gated));
    bed.node(node("n2"));
    bed.assigned(pod("x").node("n1"));
    bed.delete_assigned(pod("x").node("n1"));
    bed.pass_seconds(400);
    assert_eq!(bed.place("a"), Some(Place::Gated), "neither events nor timeouts remove a gate");
    assert_eq!(bed.scheduler.queue_lengths(), [0, 0, 0, 1, 0]);
    assert!(bed.effect_lines().is_empty() && !bed.cycle());
    bed.observed();
    bed.update(pod("a").gate("g").resource_version("2"), pod("a").resource_version("3"));
    assert_eq!(bed.place("a"), Some(Place::Active));
    assert_eq!(
        bed.observed(),
        ["SchedulingGates hints Queue", "Active by TargetPodUpdatePodSchedulingGatesEliminated"]
    );
}

#[test]
fn a_gate_without_registrations_is_rechecked_on_every_event() {
    let open = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (gate, log) = (Arc::clone(&open), Log::default());
    let lines = log.clone();
    let plugin = Fake::new("Gate").pre_enqueue(move |_| {
        lines.add("asked");
        if gate.load(std::sync::atomic::Ordering::Relaxed) {
            Status::success()
        } else {
            Status::unschedulable("shut")
        }
    });
    let mut bed = TestBed::with(vec![plugin.build()]);
    bed.pod(pod("a"));
    bed.node(node("n1"));
    assert_eq!((bed.place("a"), log.take().len()), (Some(Place::Gated), 2));
    bed.pass_seconds(400);
    assert_eq!((bed.place("a"), log.take().len()), (Some(Place::Gated), 1), "after five minutes");
    open.store(true, std::sync::atomic::Ordering::Relaxed);
    bed.node(node("n2"));
    assert_eq!(bed.place("a"), Some(Place::Active));
}

#[test]
fn the_plugin_that_holds_a_pod_runs_first() {
    let log = Log::default();
    let gate = |name: &'static str, passes: bool| {
        let log = log.clone();
        Fake::new(name)
            .pre_enqueue(move |_| {
                log.add(name);
                if passes { Status::success() } else { Status::error("shut") }
            })
            .build()
    };
    let mut bed = TestBed::with(vec![gate("First", true), gate("Second", false), gate("Third", true)]);
    bed.pod(pod("a"));
    assert_eq!(log.take(), ["First", "Second"]);
    bed.node(node("n1"));
    assert_eq!(log.take(), ["Second"]);
}

#[test]
fn an_update_keeps_the_place_of_a_queued_pod() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.update(pod("a"), pod("a").label("x", "y").resource_version("2"));
    assert_eq!(bed.place("a"), Some(Place::Active));
    assert_eq!(&*bed.queued("a").pod.resource_version, "2");
}

#[test]
fn an_update_requeues_a_pod_only_if_a_rejecting_plugin_says_so() {
    let tolerant = || pod("a").tolerates("k", "v", TaintEffect::NoSchedule).resource_version("2");
    let cases: [(&str, PodBuilder, PodBuilder, Place); 3] = [
        ("a label", big("a"), big("a").label("x", "y").resource_version("2"), Place::Unschedulable),
        ("a smaller request", big("a"), pod("a").request("cpu", "1").resource_version("2"), Place::Backoff),
        ("a toleration without effect", big("a"), tolerant().request("cpu", "8"), Place::Unschedulable),
    ];
    for (name, old, new, expected) in cases {
        let mut bed = with_unschedulable(old.clone());
        bed.update(old, new);
        assert_eq!(bed.place("a"), Some(expected), "{name}");
        assert_eq!(&*bed.queued("a").pod.resource_version, "2", "{name}");
    }
}

#[test]
fn an_update_of_an_unknown_pod_adds_it() {
    let mut bed = TestBed::new();
    bed.update(pod("a"), pod("a").resource_version("2"));
    assert_eq!(bed.place("a"), Some(Place::Active));
    assert_eq!(bed.observed(), ["Active by UnscheduledPodAdd"]);
}

#[test]
fn a_resync_changes_nothing() {
    let mut bed = with_unschedulable(big("a"));
    bed.update(big("a"), pod("a").request("cpu", "1"));
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
}

#[test]
fn a_repeated_add_is_an_update() {
    let mut bed = with_unschedulable(big("a"));
    bed.pod(big("a"));
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    bed.pod(pod("a").request("cpu", "1").resource_version("2"));
    assert_eq!(bed.place("a"), Some(Place::Backoff), "a newer version counts as an update");
}

#[test]
fn a_new_pod_of_the_same_name_replaces_the_old_one() {
    let again = || pod("a").uid("a2").resource_version("5");
    type Tell = fn(&mut TestBed, PodBuilder);
    let received: [(&str, Tell); 2] = [
        ("as an update", |bed, new| bed.update(big("a"), new)),
        ("as new, the end of the old one was missed", |bed, new| bed.pod(new)),
    ];
    for (name, tell) in received {
        let mut bed = with_unschedulable(big("a"));
        tell(&mut bed, again());
        assert_eq!((bed.place("a"), bed.place("a2")), (None, Some(Place::Active)), "{name}");
        assert_eq!(bed.queued("a2").attempts, 0);
    }
}

#[test]
fn a_deleted_pod_leaves_its_queue() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    for (name, request) in [("a", "8"), ("b", "16"), ("c", "8")] {
        bed.pod(pod(name).request("cpu", request));
    }
    bed.cycle();
    bed.cycle();
    bed.node(node("n2").allocatable("cpu", "10"));
    assert_eq!(bed.scheduler.queue_lengths(), [1, 1, 1, 0, 0]);
    for name in ["a", "b", "c"] {
        bed.delete(pod(name));
    }
    assert_eq!(bed.scheduler.queue_lengths(), [0; 5]);
}

#[test]
fn a_terminating_pod_is_not_tried() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    bed.pod(pod("a").terminating());
    assert!(bed.cycle());
    assert_eq!(
        bed.effect_lines(),
        ["a Warning FailedScheduling Scheduling: skip schedule deleting pod: default/a"]
    );
    assert_eq!((bed.place("a"), bed.cycle()), (None, false));
}

#[test]
fn a_pod_still_backs_off_in_the_second_in_which_its_backoff_ends() {
    for (millis, expected) in
        [(999, Place::Backoff), (1_000, Place::Backoff), (1_999, Place::Backoff), (2_000, Place::Active)]
    {
        let mut bed = with_unschedulable(big("a"));
        bed.pass(Duration::from_millis(millis));
        bed.node(node("n2").allocatable("cpu", "16"));
        assert_eq!(bed.place("a"), Some(expected), "an event {millis} ms after the failure");
    }
}

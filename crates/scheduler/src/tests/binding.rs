//! The binding cycle, from Permit to the API server's answer.

use std::time::Duration;

use supercargo_framework::binding::{BindOutcome, Certainty};
use supercargo_framework::context::Command;
use supercargo_framework::plugin::{Permit, PreFlight};
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{Code, Status};

use super::fake::{Fake, Log};
use super::test_bed::{TestBed, failed};
use crate::{Input, Place, PodRead};

/// A plugin that logs its Unreserve and PostBind.
fn reserver(name: &'static str, log: &Log) -> Fake {
    let (given_back, bound) = (log.clone(), log.clone());
    Fake::new(name)
        .unreserve(move |_, _, _| given_back.add(format!("{name} unreserve")))
        .post_bind(move |_| bound.add(format!("{name} bound")))
        .events(Vec::new)
}

/// A bed with one node and the pod `a`, after one cycle.
fn tried(plugins: Vec<Fake>) -> TestBed {
    let mut bed = TestBed::with(plugins.into_iter().map(Fake::build).collect());
    bed.node(node("n1"));
    bed.pod(pod("a").request("cpu", "1"));
    bed.cycle();
    bed
}

fn holder(name: &'static str, seconds: u64) -> Fake {
    let wait = Duration::from_secs(seconds);
    Fake::new(name)
        .permit(move |_, pod| if pod.labels.is_empty() { Permit::Wait(wait) } else { Permit::Allow })
        .events(Vec::new)
}

/// Allows or rejects waiting pods when a pod with such a label is scheduled.
fn commander() -> Fake {
    Fake::new("Commander").permit(|cx, pod| {
        for waiting in cx.waiting_pods().iter() {
            for (label, _) in pod.labels.iter() {
                let (verb, plugin) = label.split_once('.').unwrap();
                let (pod, plugin) = (waiting.uid.clone(), String::from(plugin).into());
                cx.command(match verb {
                    "allow" => Command::Allow { pod, plugin },
                    _ => Command::Reject { pod, plugin, message: "not today".into() },
                });
            }
        }
        Permit::Allow
    })
}

#[test]
fn a_pod_is_assumed_until_the_informer_confirms_its_node() {
    let log = Log::default();
    let mut bed = tried(vec![reserver("R", &log)]);
    assert_eq!(bed.effect_lines(), ["a bind to n1"]);
    assert!(bed.is_assumed("a") && bed.scheduler.bindings_in_flight() == 1);
    assert_eq!(bed.place("a"), None, "no event is replayed for it from now on");
    bed.bound("a", BindOutcome::Bound);
    assert_eq!(bed.effect_lines(), ["a Normal Scheduled Binding: Successfully assigned default/a to n1"]);
    assert_eq!(log.take(), ["R bound"]);
    assert!(bed.is_assumed("a") && bed.scheduler.bindings_in_flight() == 0);
    bed.confirm(pod("a").request("cpu", "1"), "n1");
    assert!(!bed.is_assumed("a") && bed.node_of("a") == Some("n1"));
    assert!(bed.effect_lines().is_empty());
    bed.bound("a", BindOutcome::Bound);
    assert!(bed.effect_lines().is_empty(), "an unexpected answer is ignored");
}

#[test]
fn a_refused_binding_is_undone_and_the_pod_tried_again() {
    let log = Log::default();
    let mut bed = tried(vec![reserver("R1", &log), reserver("R2", &log)]);
    bed.effect_lines();
    bed.bound("a", failed(Certainty::Refused, "nodes \"n1\" is forbidden"));
    let message = "running Bind plugin \"DefaultBinder\": nodes \"n1\" is forbidden";
    assert_eq!(
        bed.effect_lines(),
        [
            format!("a Warning FailedScheduling Scheduling: {message}"),
            format!("a patch False SchedulerError: {message}"),
        ]
    );
    assert_eq!(log.take(), ["R2 unreserve", "R1 unreserve"]);
    assert_eq!((bed.node_of("a"), bed.place("a")), (None, Some(Place::Backoff)));
    assert!(!bed.cycle(), "an error waits out its backoff");
    bed.pass_seconds(2);
    bed.cycle();
    assert_eq!(bed.effect_lines(), ["a bind to n1"]);
}

#[test]
fn a_binding_of_a_missing_pod_is_undone_silently() {
    let mut bed = tried(vec![]);
    bed.effect_lines();
    bed.bound("a", failed(Certainty::NotFound, "pods \"a\" not found"));
    assert!(bed.effect_lines().is_empty());
    assert_eq!((bed.node_of("a"), bed.place("a")), (None, Some(Place::Backoff)));
    bed.delete(pod("a"));
    assert_eq!(bed.place("a"), None);
}

#[test]
fn all_bind_plugins_may_skip() {
    let mut bed = tried(vec![]);
    bed.effect_lines();
    bed.bound("a", BindOutcome::Skip);
    assert_eq!(bed.effect_lines()[1], "a patch False SchedulerError: all Bind plugins skipped the pod");
    assert_eq!(bed.place("a"), Some(Place::Backoff));
}

#[test]
fn a_pod_rejected_by_a_bind_plugin_waits_for_its_backoff() {
    let log = Log::default();
    let mut bed = tried(vec![reserver("R", &log)]);
    bed.node(node("n2").allocatable("cpu", "8"));
    for name in ["b", "c"] {
        bed.pod(pod(name).request("cpu", "6"));
        bed.cycle();
    }
    assert_eq!(bed.place("c"), Some(Place::Unschedulable));
    bed.effect_lines();
    bed.bound("b", BindOutcome::Rejected("not on this day".to_owned()));
    let message = "not on this day";
    assert_eq!(
        bed.effect_lines(),
        [
            format!("b Warning FailedScheduling Scheduling: {message}"),
            format!("b patch False Unschedulable: {message}"),
        ],
        "a rejection names no plugin"
    );
    assert_eq!(log.take(), ["R unreserve"]);
    assert_eq!((bed.place("b"), bed.node_of("b")), (Some(Place::Backoff), None));
    assert!(bed.queued("b").unschedulable_plugins.is_empty(), "no plugin is blamed");
    assert_eq!(bed.place("c"), Some(Place::Backoff), "its resources are free");
    bed.bound("b", BindOutcome::Bound);
    assert!(bed.effect_lines().is_empty(), "its binding is over");
    bed.pass_seconds(2);
    while bed.cycle() {}
    assert!(bed.effect_lines().contains(&"c bind to n2".to_owned()));
}

#[test]
fn a_failed_bind_plugin_is_named_even_after_an_uncertain_outcome() {
    for certainty in [Certainty::Refused, Certainty::Unknown] {
        let mut bed = tried(vec![]);
        bed.effect_lines();
        bed.handle(Input::Bound { pod: "a".into(), by: "Second".into(), outcome: failed(certainty, "no") });
        if certainty == Certainty::Unknown {
            assert_eq!(bed.effect_lines(), ["a read"]);
            bed.read("a", PodRead::Exists(None));
        }
        assert_eq!(bed.effect_lines()[1], "a patch False SchedulerError: running Bind plugin \"Second\": no");
    }
}

#[test]
fn preempting_a_pod_on_permit_is_a_scheduler_error() {
    let log = Log::default();
    let mut bed = tried(vec![holder("H1", 60), reserver("R", &log)]);
    bed.effect_lines();
    let now = bed.now;
    bed.scheduler.permit_rejected(now, &"a".into(), Status::error("preempted").by("P"));
    bed.handle(Input::Tick);
    let message = "waiting on permit for pod: preempted";
    assert_eq!(
        bed.effect_lines(),
        [
            format!("a Warning FailedScheduling Scheduling: {message}"),
            format!("a patch False SchedulerError: {message} nominated \"\""),
        ]
    );
    assert_eq!(log.take(), ["R unreserve"]);
    assert!(bed.observed().iter().any(|line| line.starts_with("permit Error after")));
    assert_eq!(bed.place("a"), Some(Place::Backoff));
}

#[test]
fn a_failed_binding_frees_its_node_for_others() {
    let mut bed = TestBed::new();
    bed.node(node("n1").allocatable("cpu", "1"));
    for name in ["a", "b"] {
        bed.pod(pod(name).request("cpu", "1"));
        bed.cycle();
    }
    assert_eq!(bed.place("b"), Some(Place::Unschedulable));
    bed.bound("a", failed(Certainty::Refused, "no"));
    assert_eq!(bed.place("b"), Some(Place::Backoff));
}

#[test]
fn a_pod_on_permit_is_bound_when_every_plugin_allows_it() {
    let mut bed = tried(vec![holder("H1", 60), holder("H2", 60), commander()]);
    assert_eq!(bed.effect_lines(), ["a patch nominated \"n1\""], "its expected node is in the status");
    assert_eq!(bed.place("a"), Some(Place::InFlight));
    bed.pass_seconds(10);
    bed.pod(pod("b").label("allow.H1", ""));
    bed.cycle();
    assert_eq!(bed.effect_lines(), ["b bind to n1"]);
    bed.pod(pod("c").label("allow.Nobody", "").label("allow.H2", ""));
    bed.observed();
    bed.cycle();
    assert_eq!(bed.effect_lines(), ["a bind to n1", "c bind to n1"]);
    assert!(bed.observed().contains(&"permit Success after 10s".to_owned()));
    assert_eq!(bed.place("a"), None);
}

#[test]
fn no_permit_wait_is_observed_for_a_pod_that_does_not_wait() {
    let mut bed = tried(vec![]);
    assert!(bed.observed().iter().all(|line| !line.starts_with("permit")));
}

#[test]
fn a_pod_on_permit_may_be_rejected() {
    let log = Log::default();
    let mut bed = tried(vec![holder("H1", 60), commander(), reserver("R", &log)]);
    bed.effect_lines();
    bed.pod(pod("b").label("reject.H1", ""));
    bed.cycle();
    let message = "0/1 nodes are available: 1 not today.";
    assert_eq!(
        bed.effect_lines(),
        [
            format!("a Warning FailedScheduling Scheduling: {message}"),
            format!("a patch False Unschedulable: {message} nominated \"\""),
            "b bind to n1".to_owned(),
        ]
    );
    assert_eq!(log.take(), ["R unreserve"]);
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    assert_eq!(bed.queued("a").unschedulable_plugins.iter().map(|p| &**p).collect::<Vec<_>>(), ["H1"]);
}

#[test]
fn permit_times_out_with_the_shortest_timeout() {
    let mut bed = tried(vec![holder("Slow", 20), holder("Quick", 10)]);
    bed.effect_lines();
    assert_eq!(bed.scheduler.next_deadline(bed.now), Duration::from_secs(10));
    bed.pass(Duration::from_millis(9_999));
    assert!(bed.effect_lines().is_empty());
    bed.pass_seconds(30);
    let message = "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin Quick.";
    assert_eq!(bed.effect_lines()[0], format!("a Warning FailedScheduling Scheduling: {message}"));
    assert!(bed.observed().contains(&"permit Unschedulable after 39.999s".to_owned()));
}

#[test]
fn permit_waits_fifteen_minutes_at_most() {
    let mut bed = tried(vec![holder("H", 100_000)]);
    bed.effect_lines();
    bed.pass_seconds(899);
    assert_eq!(bed.place("a"), Some(Place::InFlight));
    bed.pass_seconds(1);
    assert!(bed.effect_lines()[0].contains("after waiting 15m0s at plugin H"));
}

#[test]
fn permit_may_reject_or_fail() {
    let cases = [
        (Code::Unschedulable, "0/1 nodes are available: 1 no.", "Unschedulable", Place::Unschedulable),
        (Code::Error, "running Permit plugin \"P\": no", "SchedulerError", Place::Backoff),
    ];
    for (code, message, reason, place) in cases {
        let log = Log::default();
        let refuser =
            Fake::new("P").permit(move |_, _| Permit::Reject(Status::new(code, "no"))).events(Vec::new);
        let mut bed = tried(vec![reserver("R", &log), refuser]);
        assert_eq!(bed.effect_lines()[1], format!("a patch False {reason}: {message}"));
        assert_eq!((bed.place("a"), bed.node_of("a")), (Some(place), None));
        assert_eq!(log.take(), ["R unreserve"]);
    }
}

#[test]
fn a_rejection_or_failure_in_reserve_unreserves_every_plugin() {
    let cases = [
        (Code::Unschedulable, "0/1 nodes are available: 1 no.", Place::Unschedulable),
        (Code::Error, "running Reserve plugin \"P\": no", Place::Backoff),
    ];
    for (code, message, place) in cases {
        let log = Log::default();
        let refuser = Fake::new("P").reserve(move |_, _| Status::new(code, "no")).events(Vec::new);
        let mut bed = tried(vec![reserver("R1", &log), refuser, reserver("R2", &log)]);
        assert_eq!(bed.effect_lines()[0], format!("a Warning FailedScheduling Scheduling: {message}"));
        assert_eq!((bed.place("a"), bed.node_of("a")), (Some(place), None));
        assert_eq!(log.take(), ["R2 unreserve", "R1 unreserve"]);
    }
}

#[derive(Clone, Copy)]
enum Flight {
    Skip,
    SkipAlone,
    Alone,
    Beside,
}

fn preparer(name: &'static str, flight: Flight) -> Fake {
    Fake::new(name).pre_flight(move |_| match flight {
        Flight::Skip => PreFlight::Skip { allow_parallel: true },
        Flight::SkipAlone => PreFlight::Skip { allow_parallel: false },
        Flight::Alone => PreFlight::Work { allow_parallel: false, work: Box::new(()) },
        Flight::Beside => PreFlight::Work { allow_parallel: true, work: Box::new(()) },
    })
}

#[test]
fn prebind_runs_adjacent_parallel_plugins_in_groups() {
    use Flight::{Alone, Beside, Skip, SkipAlone};
    let cases: [(&[Flight], &str); 7] = [
        (&[Beside, Beside, Beside], "a prebind A+B+C"),
        (&[Alone, Alone, Alone], "a prebind A B C"),
        (&[Beside, Alone, Beside], "a prebind A B C"),
        (&[Alone, Beside, Beside], "a prebind A B+C"),
        (&[Beside, Skip, Beside], "a prebind A+C"),
        (&[Beside, SkipAlone, Beside], "a prebind A C"),
        (&[Skip, Alone, Skip], "a prebind B"),
    ];
    for (flights, expected) in cases {
        let plugins = ["A", "B", "C"].into_iter().zip(flights);
        let mut bed = tried(plugins.map(|(name, flight)| preparer(name, *flight)).collect());
        assert_eq!(bed.effect_lines(), ["a patch nominated \"n1\"", expected]);
        bed.pre_bound("a", Status::success());
        assert_eq!(bed.effect_lines(), ["a bind to n1"]);
    }
    let mut bed = tried(vec![preparer("A", Skip)]);
    assert_eq!(bed.effect_lines(), ["a bind to n1"], "without work there is no nomination");
}

#[test]
fn a_pod_that_is_nominated_already_is_not_patched() {
    let mut bed = TestBed::with(vec![preparer("A", Flight::Alone).build()]);
    bed.node(node("n1"));
    bed.pod(pod("a").nominated("n1"));
    bed.cycle();
    assert_eq!(bed.effect_lines(), ["a prebind A"]);
}

#[test]
fn a_failing_preflight_undoes_the_binding() {
    let unsupported = "PreBindPreFlight P returned \"Unschedulable\", which is unsupported. It is supposed to return \
                       Success, Skip, or Error status";
    let cases = [(Code::Error, "running PreBindPreFlight \"P\": no"), (Code::Unschedulable, unsupported)];
    for (code, message) in cases {
        let log = Log::default();
        let plugin = Fake::new("P").pre_flight(move |_| PreFlight::Fail(Status::new(code, "no")));
        let mut bed = tried(vec![reserver("R", &log), plugin]);
        assert_eq!(bed.effect_lines()[1], format!("a patch False SchedulerError: {message}"));
        assert_eq!((bed.place("a"), bed.node_of("a")), (Some(Place::Backoff), None));
        assert_eq!(log.take(), ["R unreserve"]);
    }
}

#[test]
fn a_failing_prebind_undoes_the_binding() {
    let cases = [
        (Status::error("no").by("A"), "SchedulerError: running PreBind plugin \"A\": no"),
        (Status::unschedulable("no").by("A"), "Unschedulable: no"),
    ];
    for (status, message) in cases {
        let mut bed = tried(vec![preparer("A", Flight::Alone)]);
        bed.effect_lines();
        bed.pre_bound("a", status);
        assert_eq!(bed.effect_lines()[1], format!("a patch False {message} nominated \"\""));
        assert_eq!((bed.place("a"), bed.node_of("a")), (Some(Place::Backoff), None));
        assert!(!bed.scheduler.has_work(), "only the backoff helps");
    }
}

#[test]
fn a_cancelled_prebind_fails_with_its_cause_even_if_it_succeeds() {
    let cases = [
        (Status::success(), "preempted"),
        (Status::error("cancelled").by("A"), "running PreBind plugin \"A\": preempted"),
    ];
    for (status, message) in cases {
        let mut bed = tried(vec![preparer("A", Flight::Alone)]);
        bed.effect_lines();
        for cause in ["preempted", "preempted again"] {
            bed.scheduler.cancel_binding(&"a".into(), Status::error(cause));
        }
        bed.handle(Input::Tick);
        assert_eq!(bed.effect_lines(), ["a cancel"]);
        bed.pre_bound("a", status);
        assert_eq!(bed.effect_lines()[1], format!("a patch False SchedulerError: {message} nominated \"\""));
    }
    let mut bed = tried(vec![]);
    bed.effect_lines();
    bed.scheduler.cancel_binding(&"a".into(), Status::error("preempted"));
    bed.handle(Input::Tick);
    assert!(bed.effect_lines().is_empty(), "Bind cannot be cancelled");
}

#[test]
fn a_pod_deleted_during_binding_frees_its_node_at_once() {
    type Start = fn() -> TestBed;
    let stages: [(&str, Start); 3] = [
        ("held", || tried(vec![holder("H", 60)])),
        ("preparing", || tried(vec![preparer("A", Flight::Alone)])),
        ("binding", || tried(vec![])),
    ];
    for (name, start) in stages {
        let mut bed = start();
        bed.pod(pod("b").request("cpu", "4"));
        bed.cycle();
        assert_eq!(bed.place("b"), Some(Place::Unschedulable), "{name}");
        bed.effect_lines();
        bed.delete(pod("a").request("cpu", "1"));
        assert_eq!(bed.node_of("a"), None, "{name}");
        assert_eq!(bed.place("b"), Some(Place::Backoff), "{name}");
        bed.pre_bound("a", Status::success());
        bed.bound("a", failed(Certainty::NotFound, "gone"));
        assert_eq!(bed.scheduler.bindings_in_flight(), 0, "{name}");
        assert_eq!(bed.place("a"), None, "{name}");
        assert!(bed.effect_lines().iter().all(|line| line == "a bind to n1"), "{name}");
    }
}

#[test]
fn a_pod_that_another_scheduler_has_bound_is_left_to_it() {
    let log = Log::default();
    let mut bed = tried(vec![preparer("A", Flight::Alone), reserver("R", &log)]);
    bed.node(node("n2"));
    bed.effect_lines();
    bed.confirm(pod("a").request("cpu", "1"), "n2");
    bed.observed();
    bed.pre_bound("a", Status::success());
    assert!(bed.effect_lines().is_empty(), "it is not bound again");
    assert_eq!((log.take(), bed.observed()), (vec!["R unreserve".to_owned()], vec!["lost race".to_owned()]));
    assert_eq!((bed.node_of("a"), bed.scheduler.bindings_in_flight()), (Some("n2"), 0));
}

#[test]
fn draining_takes_no_more_pods_and_lets_bindings_end() {
    let mut bed = tried(vec![]);
    bed.pod(pod("b"));
    bed.handle(Input::Drain);
    assert!(!bed.scheduler.has_work() && !bed.cycle() && !bed.scheduler.is_drained());
    bed.bound("a", BindOutcome::Bound);
    assert!(bed.scheduler.is_drained());
}

#[test]
fn draining_requeues_a_pod_on_permit_silently() {
    let log = Log::default();
    let mut bed = tried(vec![holder("H", 600), reserver("R", &log)]);
    bed.effect_lines();
    bed.handle(Input::Drain);
    assert!(bed.scheduler.is_drained(), "draining does not wait for Permit");
    assert_eq!((bed.effect_lines(), log.take()), (Vec::new(), vec!["R unreserve".to_owned()]));
    assert_eq!((bed.node_of("a"), bed.place("a")), (None, Some(Place::Active)));
    assert!(!bed.cycle(), "it is left to the next scheduler");
}

#[test]
fn draining_cancels_prebind_silently() {
    for status in [Status::error("cancelled").by("A"), Status::success()] {
        let log = Log::default();
        let mut bed = tried(vec![preparer("A", Flight::Alone), reserver("R", &log)]);
        bed.effect_lines();
        bed.handle(Input::Drain);
        assert_eq!(bed.effect_lines(), ["a cancel"]);
        assert!(!bed.scheduler.is_drained(), "a request may be in flight");
        bed.pre_bound("a", status);
        assert!(bed.scheduler.is_drained());
        assert_eq!((bed.effect_lines(), log.take()), (Vec::new(), vec!["R unreserve".to_owned()]));
        assert_eq!((bed.node_of("a"), bed.place("a")), (None, Some(Place::Active)));
    }
}

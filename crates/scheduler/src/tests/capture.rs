//! Captures.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::pod::PodKey;
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{NodeRecord, Now, PodInfo, Timestamp};

use super::test_bed::{TestBed, WALL, all_plugins, options};
use super::volumes::{claim, class, volume};
use crate::record::restore;
use crate::{Fork, Input, Notification, Options};

fn with_log() -> Options {
    Options { timeline_memory: 1 << 20, ..options(all_plugins(Vec::new())) }
}

fn key(name: &str) -> PodKey {
    pod(name).build().key()
}

/// A scheduler with three zones, volumes, pods that are assumed, pending and of others.
fn captured() -> (TestBed, String) {
    let mut bed = TestBed::of(with_log());
    for (name, zone) in [("z1", "z"), ("a2", "a"), ("z3", "z"), ("b4", "b"), ("a5", "a")] {
        let node = node(name).allocatable("cpu", "4").label("topology.kubernetes.io/zone", zone).build();
        bed.handle(Input::Node(Notification::Added(Arc::new(node))));
    }
    for object in [class(), volume("1", None), claim("a", "1", "")] {
        bed.handle(Input::Object(Notification::Added(Arc::new(object))));
    }
    for pod in [pod("p").request("cpu", "3"), pod("huge").request("cpu", "9"), pod("q").scheduler("other")] {
        bed.handle(Input::QueuedPod(Notification::Added(Arc::new(pod.build()))));
        bed.cycle();
    }
    let capture = capture_of(&bed);
    (bed, capture)
}

fn capture_of(bed: &TestBed) -> String {
    let mut fork = bed.scheduler.fork(bed.now, with_log()).unwrap();
    let mut lines = Vec::new();
    let done = fork.capture("text".to_owned(), |call| {
        lines.extend(call.to_line().unwrap());
        ControlFlow::<()>::Continue(())
    });
    assert!(done.is_continue());
    String::from_utf8(lines).unwrap()
}

fn restored(capture: &str) -> Fork {
    let mut scheduler = None;
    let configure = |text: &str| {
        assert_eq!(text, "text");
        Ok(with_log())
    };
    let restored = restore(&mut scheduler, capture.as_bytes(), configure, None).unwrap();
    scheduler.unwrap().fork(restored.now, with_log()).unwrap()
}

#[test]
fn a_capture_has_pods_nodes_objects_and_the_log() {
    let (bed, capture) = captured();
    let mut fork = restored(&capture);
    assert!(capture.contains("PersistentVolumeClaim"), "{capture}");
    let placed = fork.pod(&key("p")).unwrap();
    assert_eq!(placed.node_name.as_deref(), Some("z1"), "an assumed pod counts on its node");
    let pending: Vec<String> = fork.pending().iter().map(|pod| pod.key().to_string()).collect();
    assert_eq!(pending, ["default/huge", "default/q"]);
    let history = fork.history(&key("huge")).unwrap();
    assert_eq!(history, bed.scheduler.history(&key("huge")).unwrap());
    assert_eq!(history.entries.len(), 2);

    let mut origin = bed.scheduler.fork(bed.now, with_log()).unwrap();
    let next = Arc::new(pod("next").request("cpu", "1").build());
    let (there, here) = (origin.why(&next).unwrap(), fork.why(&next).unwrap());
    assert_eq!(there.feasible, here.feasible);
    assert_eq!(there.feasible.len(), 5);
}

#[test]
fn a_capture_has_no_environment_and_no_objects_of_unknown_kinds() {
    let mut bed = TestBed::of(with_log());
    let whole = |name: &str| Some(format!("{{\"canary of {name}\": true}}").into());
    let node = NodeRecord { raw: whole("node"), ..node("n").build() };
    bed.handle(Input::Node(Notification::Added(Arc::new(node))));
    let pod = PodInfo { raw: whole("pod"), ..pod("p").build() };
    let bound = PodInfo { raw: whole("pod"), node_name: Some("n".into()), ..pod.clone() };
    bed.handle(Input::QueuedPod(Notification::Added(Arc::new(PodInfo { uid: "other".into(), ..pod }))));
    bed.handle(Input::AssignedPod(Notification::Added(Arc::new(bound))));
    let capture = capture_of(&bed);
    assert_eq!(capture.matches("Pod\":{").count(), 2, "{capture}");
    assert!(!capture.contains("canary"), "{capture}");
}

#[test]
fn a_record_is_restored_up_to_a_time() {
    let (_, capture) = captured();
    let record: String = capture.replacen("\"Capture\"", "\"Record\"", 1);
    let late = record.lines().last().unwrap().to_owned();
    let mut later: serde_json::Value = serde_json::from_str(&late).unwrap();
    later["now"]["wall"] = (WALL.0 + 5).into();
    let record = format!("{record}{later}\n");
    let until = |offset: i64| {
        let until = Some(Timestamp(WALL.0 + offset));
        restore(&mut None, record.as_bytes(), |_| Ok(with_log()), until).unwrap()
    };
    let all = record.lines().count();
    assert_eq!((until(5).steps, until(5).is_over), (all, false));
    assert_eq!((until(4).steps, until(4).is_over), (all - 1, true));
    assert_eq!((until(-1).steps, until(-1).is_over), (0, true));
    assert_eq!(until(5).now.monotonic, Duration::ZERO);
}

#[test]
fn a_capture_that_is_cut_at_any_byte_is_refused() {
    let (_, capture) = captured();
    for length in (1..capture.len() - 1).step_by(7) {
        let error = restore(&mut None, &capture.as_bytes()[..length], |_| Ok(with_log()), None);
        let begins = capture[..length].contains('\n');
        match error {
            Err(error) => assert!(error.is_wrong_file(), "{error}"),
            Ok(restored) => assert!(!begins && restored.steps == 0 && restored.is_cut, "{length} bytes"),
        }
    }
}

#[test]
fn a_capture_ends_when_it_is_told_to() {
    let mut fork = TestBed::of(with_log()).scheduler.fork(Now::default(), with_log()).unwrap();
    let mut calls = 0;
    let ended = fork.capture(String::new(), |_| {
        calls += 1;
        ControlFlow::Break("full")
    });
    assert_eq!((ended, calls), (ControlFlow::Break("full"), 1));
}

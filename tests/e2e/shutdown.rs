//! Signals while bindings are in flight. The API server holds its answers as scripted.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{FakeApi, Supercargo, command, config, node, pod};

const WITHIN: Duration = Duration::from_secs(20);

/// A scheduler with an unanswered binding of the pod `first`.
fn binding_under_way(api: &FakeApi) -> Supercargo {
    api.hold_bindings(true);
    api.set_node(node("n1", &[], &[("cpu", "1")]));
    api.set_pod(pod("first").by("fake").build());
    let supercargo = Supercargo::start(&api.kubeconfig(), Some(&config(&["fake"])), &[]);
    supercargo.eventually("the binding is under way", WITHIN, || {
        (api.received("/binding").len() == 1).then_some(())
    });
    supercargo
}

#[test]
fn after_sigterm_no_pod_is_popped_and_bindings_complete() {
    let api = FakeApi::start();
    let mut supercargo = binding_under_way(&api);
    supercargo.terminate();
    supercargo.wait_for_log("shutting down: waiting for bindings in flight");
    api.set_pod(pod("second").by("fake").build());
    // Longer than a binding takes, and far shorter than the time limit for the first one.
    let held = Instant::now();
    supercargo
        .eventually("some time passes", WITHIN, || (held.elapsed() > Duration::from_secs(1)).then_some(()));
    assert!(supercargo.is_running(), "it must wait for the binding\n{}", supercargo.log());

    api.hold_bindings(false);
    let status = supercargo.wait(WITHIN);
    assert_eq!(status.code(), Some(0), "{}", supercargo.log());
    let bindings = api.received("/binding");
    let paths: Vec<_> = bindings.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths, ["/api/v1/namespaces/default/pods/first/binding"]);
    assert_eq!(bindings[0].method, "POST");
    let notes: Vec<_> = api.received("/events").into_iter().map(|event| event.body["note"].clone()).collect();
    assert_eq!(notes, ["Successfully assigned default/first to n1"]);
    assert!(supercargo.log().contains("stopped"), "{}", supercargo.log());
}

#[test]
fn stuck_binding_delays_shutdown_for_a_bounded_time() {
    let api = FakeApi::start();
    let mut supercargo = binding_under_way(&api);
    supercargo.terminate();
    // 15 s for bindings, 5 s for events and conditions.
    let status = supercargo.wait(Duration::from_secs(25));
    assert_eq!(status.code(), Some(0), "{}", supercargo.log());
    assert!(supercargo.log().contains("bindings still in flight after 15 s"), "{}", supercargo.log());
}

#[test]
fn second_signal_skips_waiting_for_bindings() {
    for second in ["TERM", "INT"] {
        let api = FakeApi::start();
        let mut supercargo = binding_under_way(&api);
        supercargo.terminate();
        supercargo.wait_for_log("shutting down: waiting for bindings in flight");
        let first = Instant::now();
        // A signal to a process group may reach the process twice.
        supercargo.signal(second);
        supercargo.eventually("some time passes", WITHIN, || {
            (first.elapsed() > Duration::from_millis(1500)).then_some(())
        });
        assert!(supercargo.is_running(), "it waits for the binding\n{}", supercargo.log());
        supercargo.signal(second);
        // Shorter than the time limit for bindings.
        let status = supercargo.wait(Duration::from_secs(10));
        assert_eq!(status.code(), Some(1), "{}", supercargo.log());
    }
}

#[test]
fn closed_log_pipe_does_not_block_shutdown() {
    let api = FakeApi::start();
    api.set_node(node("n1", &[], &[("cpu", "1")]));
    let mut scheduler = command(["run", "--leader-elect=false", "--log-level", "debug", "--kubeconfig"])
        .arg(api.kubeconfig())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Reads the first line, then closes the pipe.
    let mut line = String::new();
    BufReader::new(scheduler.stderr.take().unwrap()).read_line(&mut line).unwrap();
    api.set_pod(pod("first").by("supercargo").build());
    let started = Instant::now();
    while api.received("/binding").is_empty() && started.elapsed() < WITHIN {
        std::thread::sleep(Duration::from_millis(10));
    }
    let bound = api.received("/binding").len();
    Command::new("kill").args(["-TERM", &scheduler.id().to_string()]).status().unwrap();
    let signalled = Instant::now();
    let mut status = None;
    while status.is_none() && signalled.elapsed() < WITHIN {
        status = scheduler.try_wait().unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    scheduler.kill().unwrap();
    scheduler.wait().unwrap();
    assert_eq!((bound, status.and_then(|status| status.code())), (1, Some(0)));
}

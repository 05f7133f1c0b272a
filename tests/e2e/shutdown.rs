//! What a signal does to bindings under way. The API server is one that takes its time as told.

use std::time::{Duration, Instant};

use crate::support::{FakeApi, Supercargo, config, node, pod};

const WITHIN: Duration = Duration::from_secs(20);

/// A scheduler with the binding of the pod `first` under way, unanswered.
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
fn after_sigterm_no_pod_is_taken_and_a_binding_under_way_ends_well() {
    let api = FakeApi::start();
    let mut supercargo = binding_under_way(&api);
    supercargo.terminate();
    supercargo.wait_for_log("stopping: letting bindings under way end");
    api.set_pod(pod("second").by("fake").build());
    // Longer than what a pod takes to be bound, far shorter than the patience with the first one.
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
fn a_binding_that_never_ends_keeps_it_for_a_bounded_time_only() {
    let api = FakeApi::start();
    let mut supercargo = binding_under_way(&api);
    supercargo.terminate();
    // 15 s for bindings, 5 s for events and conditions.
    let status = supercargo.wait(Duration::from_secs(25));
    assert_eq!(status.code(), Some(0), "{}", supercargo.log());
    assert!(supercargo.log().contains("did not end within 15 s"), "{}", supercargo.log());
}

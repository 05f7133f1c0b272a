//! Schedulers that end while pods are being bound, and their successors.

use std::time::{Duration, Instant};

use supercargo_controlplane::ControlPlane;

use crate::support::{Bindings, Cluster, Supercargo, name_of, node, node_of, own_plane, pods, say};

const TEST: &str = "restart";
/// Few enough for a scheduler that was signalled to bind the rest within its 15 seconds, at 50 a
/// second.
const EARLY: usize = 520;
const LATE: usize = 80;
const NODES: usize = 15;
/// The maximum of bindings in flight when a scheduler is killed.
const IN_FLIGHT: usize = 128;

/// Starts a scheduler and waits until it has bound this many pods.
fn start_and_bind(plane: &ControlPlane, count: usize) -> Supercargo {
    let supercargo = Supercargo::start(&plane.kubeconfig("supercargo").unwrap(), None, &[]);
    supercargo.eventually("some pods are bound", Duration::from_secs(90), || {
        (supercargo.log().matches("Successfully assigned").count() >= count).then_some(())
    });
    supercargo
}

#[test]
fn next_scheduler_binds_remaining_pods_exactly_once() {
    let started = Instant::now();
    let Some(plane) = own_plane() else { return };
    let cluster = Cluster::of(&plane);
    // Room for exactly all pods: a pod that is counted twice or not at all would show.
    let nodes: Vec<_> =
        (0..NODES).map(|index| node(&format!("node-{index}"), &[], &[("cpu", "4")])).collect();
    cluster.create_all(&nodes);
    cluster.create_all(&pods("early", EARLY));
    let unbound = || cluster.list("/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3D");
    say(TEST, started, "nodes and pods are there");

    let mut killed = start_and_bind(&plane, 100);
    killed.kill();
    let left = unbound().len();
    say(TEST, started, &format!("killed, with {left} of {EARLY} pods left"));
    assert!((1..EARLY).contains(&left), "it was not in the middle of the work");

    let mut stopped = start_and_bind(&plane, 50);
    let signalled = Instant::now();
    stopped.terminate();
    stopped.wait_for_log("shutting down: waiting for bindings in flight");
    cluster.create_all(&pods("late", LATE));
    assert_eq!(stopped.wait(Duration::from_secs(25)).code(), Some(0), "{}", stopped.log());
    let took = signalled.elapsed().as_secs_f32();
    let left = unbound();
    say(TEST, started, &format!("stopped within {took:.1} s, with {} pods left", left.len()));
    let late = left.iter().filter(|pod| name_of(pod).starts_with("late-")).count();
    assert_eq!(late, LATE, "it took pods after the signal");
    // It ended because no work was left, and has written every event.
    assert!(!stopped.log().contains("bindings still in flight"), "{}", stopped.log());
    let events = cluster.list("/apis/events.k8s.io/v1/namespaces/default/events");
    let unsaid = stopped.log().matches("Successfully assigned").count().saturating_sub(events.len());
    assert_eq!(unsaid, 0, "events were not written");

    let last = Supercargo::on_as(&plane, "supercargo", None);
    last.eventually("every pod is bound", Duration::from_mins(3), || unbound().is_empty().then_some(()));
    say(TEST, started, "every pod is bound");
    let pods = cluster.pods("default");
    for node in &nodes {
        let on_it = pods.iter().filter(|pod| node_of(pod) == Some(name_of(node))).count();
        assert_eq!(on_it, (EARLY + LATE) / NODES, "{}", name_of(node));
    }
    let bindings = Bindings::of_each_once(&plane, &pods, IN_FLIGHT);
    let (unseen, failures) = (bindings.unseen(&pods), bindings.failures());
    say(
        TEST,
        started,
        &format!("{unseen} bindings went unseen by the audit log; others failed: {failures:?}"),
    );
    last.stop();
}

//! An outage of the API server while pods are being bound.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::{
    Bindings, Cluster, Supercargo, name_of, node, node_of, output, own_plane, pods, say, segment,
};

const TEST: &str = "outage";
const OUTAGE: Duration = Duration::from_secs(20);
const BEFORE: usize = 1_000;
const AFTER: usize = 50;
/// The maximum of bindings in flight at the crash.
const IN_FLIGHT: usize = 128;

#[test]
fn after_a_20_s_outage_every_pod_is_bound_once() {
    let started = Instant::now();
    let Some(plane) = own_plane() else { return };
    let cluster = Cluster::of(&plane);
    // Room for all pods and a few more.
    let nodes: Vec<_> = (0..27).map(|index| node(&format!("node-{index}"), &[], &[("cpu", "4")])).collect();
    cluster.create_all(&nodes);
    cluster.create_all(&pods("before", BEFORE));
    say(TEST, started, "nodes and pods are there");

    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record").display().to_string();
    let kubeconfig = plane.kubeconfig("supercargo").unwrap();
    let supercargo = Supercargo::start(&kubeconfig, None, &["--record", &record]);
    let assigned = || supercargo.log().matches("Successfully assigned").count();
    supercargo
        .eventually("some pods are bound", Duration::from_secs(90), || (assigned() >= 50).then_some(()));
    plane.kill_apiserver();
    let bound_before = assigned();
    say(TEST, started, &format!("the API server is gone, with {bound_before} of {BEFORE} pods bound"));
    assert!(bound_before < BEFORE, "it was not in the middle of the work");
    thread::sleep(OUTAGE);
    plane.start_apiserver().unwrap();
    say(TEST, started, "the API server is back");

    cluster.create_all(&pods("after", AFTER));
    supercargo.eventually("every pod is bound", Duration::from_mins(3), || {
        let pods = cluster.pods("default");
        (pods.len() == BEFORE + AFTER && pods.iter().all(|pod| node_of(pod).is_some())).then_some(())
    });
    say(TEST, started, "every pod is bound");
    let pods = cluster.pods("default");
    for node in &nodes {
        let on_it = pods.iter().filter(|pod| node_of(pod) == Some(name_of(node))).count();
        assert!(on_it <= 40, "{} has {on_it} pods of a tenth of a CPU", name_of(node));
    }

    let bindings = Bindings::of_each_once(&plane, &pods, IN_FLIGHT);
    let (unseen, failures) = (bindings.unseen(&pods), bindings.failures());
    say(
        TEST,
        started,
        &format!("{unseen} bindings went unseen by the audit log; others failed: {failures:?}"),
    );
    supercargo.stop();

    // Even this run depends only on its record.
    let replayed = output(&["replay", segment(folder.path()).to_str().unwrap()]);
    let text = String::from_utf8_lossy(&replayed.stdout);
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    assert!(text.ends_with("every decision the same\n"), "{text}");
    say(TEST, started, &format!("replayed: {}", text.trim()));
}

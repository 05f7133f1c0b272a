//! A leader that is killed, terminated or suspended while it binds pods, and its standby.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use supercargo_controlplane::ControlPlane;

use crate::support::{
    Bindings, Cluster, Sightings, Supercargo, config, name_of, node, node_of, own_plane, pods, say,
};

const PODS: usize = 2_000;
/// Few enough for a leader that gets SIGTERM to bind the rest within its 15 seconds on a slow
/// machine, too.
const FEW: usize = 200;
/// Pods that come after SIGTERM, for the next leader.
const LATE: usize = 100;
/// Room for all pods and a few more: a pod that is counted twice would show.
const NODES: usize = 52;
const ON_A_NODE: usize = 40;
/// The maximum of bindings in flight when a scheduler is killed.
const IN_FLIGHT: usize = 128;
/// Requests that had passed the fence when a scheduler was suspended, and that reach the server
/// when it wakes. Without a fence it sends a hundred a second.
const PAST_THE_FENCE: usize = 10;

/// The default values.
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// So long that a slow machine, too, has a new leader well before it ends.
const LONG_LEASE: Duration = Duration::from_mins(1);

/// The users of the two schedulers, so that the audit log distinguishes them.
const USERS: [&str; 2] = ["supercargo", "powerless"];
const WITHIN: Duration = Duration::from_mins(2);

/// A configuration with leader election that takes some twenty seconds for all pods.
fn candidate_config(lease: Duration) -> String {
    let seconds = |duration: Duration| format!("{}s", duration.as_secs());
    let mut config: Value = serde_json::from_str(&config(&["supercargo"])).unwrap();
    config["clientConnection"] = json!({"qps": 100, "burst": 50});
    config["leaderElection"] = json!({
        "leaseDuration": seconds(lease),
        "renewDeadline": seconds(lease * 2 / 3),
        "retryPeriod": seconds(RETRY_PERIOD),
    });
    config.to_string()
}

/// Two schedulers; the first leads and is binding pods.
struct Scene {
    test: &'static str,
    started: Instant,
    cluster: Cluster,
    pods: usize,
    sightings: Sightings,
    first: Supercargo,
    second: Supercargo,
    // Last: it ends after the schedulers.
    plane: ControlPlane,
}

impl Scene {
    fn set(test: &'static str, lease: Duration, count: usize) -> Option<Self> {
        let started = Instant::now();
        let plane = own_plane()?;
        let cluster = Cluster::of(&plane);
        cluster.allow_supercargo(USERS[1]);
        let nodes: Vec<_> =
            (0..NODES).map(|index| node(&format!("node-{index}"), &[], &[("cpu", "4")])).collect();
        cluster.create_all(&nodes);
        cluster.create_all(&pods("p", count));
        say(test, started, "nodes and pods are there");
        let sightings = cluster.watch_pods();
        let start = |user| {
            let config = candidate_config(lease);
            Supercargo::start(&plane.kubeconfig(user).unwrap(), Some(&config), &["--leader-elect=true"])
        };
        let first = start(USERS[0]);
        first.wait_until_scheduling();
        let second = start(USERS[1]);
        second.wait_until_synced();
        second.wait_for_log("new leader elected");
        let scene = Self { test, started, cluster, pods: count, sightings, first, second, plane };
        scene.say("one leads, the other stands by");
        scene.first.eventually("it is in the middle of the work", WITHIN, || {
            (scene.sightings.bound() >= count / 10).then_some(())
        });
        Some(scene)
    }

    fn say(&self, what: &str) {
        say(self.test, self.started, what);
    }

    fn left(&self) -> usize {
        self.pods - self.sightings.bound()
    }

    /// Waits until every pod is bound exactly once and no node is overcommitted.
    fn await_all(&self) {
        self.second.eventually("every pod is bound", WITHIN, || (self.left() == 0).then_some(()));
        self.sightings.assert_none_moved();
        let pods = self.cluster.pods("default");
        assert_eq!(pods.len(), self.pods);
        for index in 0..NODES {
            let name = format!("node-{index}");
            let on_it = pods.iter().filter(|pod| node_of(pod) == Some(&name)).count();
            assert!(on_it <= ON_A_NODE, "{name} has {on_it} pods of a tenth of a CPU");
        }
        let bindings = Bindings::of_each_once(&self.plane, &pods, IN_FLIGHT);
        let by = USERS.map(|user| bindings.successes_by(user));
        self.say(&format!(
            "every pod is bound, by the two: {by:?}; other answers: {:?}",
            bindings.failures()
        ));
        assert!(by.iter().all(|count| *count > 0), "{by:?}");
    }

    /// The lease's holder and number of transitions.
    fn lease(&self) -> (String, i64) {
        let lease = self.cluster.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/supercargo");
        let spec = &lease["spec"];
        let holder = spec["holderIdentity"].as_str().unwrap_or_default().to_owned();
        (holder, spec["leaseTransitions"].as_i64().unwrap())
    }

    /// The notes of the events about the lease.
    fn notes(&self) -> Vec<String> {
        let events = self.cluster.list("/apis/events.k8s.io/v1/namespaces/kube-system/events");
        let about = |event: &&Value| event["regarding"]["kind"] == "Lease";
        let received: Vec<&Value> = events.iter().filter(about).collect();
        assert!(received.iter().all(|event| name_of(event).starts_with("supercargo.")), "{received:?}");
        received.iter().map(|event| event["note"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn killed_leader_is_replaced_within_lease_and_retry_period() {
    let Some(mut scene) = Scene::set("failover", LEASE_DURATION, PODS) else { return };
    let killed = Instant::now();
    scene.first.kill();
    let left = scene.left();
    scene.say(&format!("the leader is killed, with {left} of {PODS} pods left"));
    assert!(left > PODS / 4, "it was not in the middle of the work");
    scene.await_all();
    let gap = scene.sightings.longest_gap_since(killed);
    let bound = LEASE_DURATION + RETRY_PERIOD;
    scene.say(&format!(
        "no pod was bound for {:.2} s; the bound is {} s",
        gap.as_secs_f32(),
        bound.as_secs()
    ));
    assert!(gap <= bound, "{gap:?}");
    assert_eq!(scene.lease().1, 1);
    scene.second.stop();
}

#[test]
fn graceful_leader_change_is_faster_than_the_lease() {
    let Some(mut scene) = Scene::set("upgrade", LONG_LEASE, FEW) else { return };
    let signalled = Instant::now();
    scene.first.terminate();
    let left = scene.left();
    scene.say(&format!("the leader gets SIGTERM, with {left} of {FEW} pods left"));
    // A quick machine has none left: the next leader's work is what comes now.
    scene.first.wait_for_log("shutting down: waiting for bindings in flight");
    scene.cluster.create_all(&pods("late", LATE));
    scene.pods += LATE;
    let status = scene.first.wait(Duration::from_secs(30));
    assert_eq!(status.code(), Some(0), "{}", scene.first.log());
    assert!(scene.first.log().contains("released lease"), "{}", scene.first.log());
    scene.await_all();
    let gap = scene.sightings.longest_gap_since(signalled);
    scene.say(&format!(
        "no pod was bound for {:.2} s; the lease lasts {} s",
        gap.as_secs_f32(),
        LONG_LEASE.as_secs()
    ));
    assert!(gap < LONG_LEASE / 4, "{gap:?}");
    let (holder, transitions) = scene.lease();
    assert_eq!(transitions, 1);
    let notes = scene.notes();
    assert!(notes.contains(&format!("{holder} became leader")), "{notes:?}");
    assert_eq!(notes.iter().filter(|note| note.ends_with(" stopped leading")).count(), 1, "{notes:?}");
    scene.second.stop();
}

#[test]
fn suspended_leader_binds_nothing_after_its_lease_and_exits() {
    let Some(mut scene) = Scene::set("asleep", LEASE_DURATION, PODS) else { return };
    scene.first.signal("STOP");
    let stopped_with = scene.sightings.bound();
    // The old leader does not see who binds them meanwhile: it would try them all when it wakes.
    assert!(PODS - stopped_with > PODS / 4, "it was not in the middle of the work");
    scene.second.wait_until_scheduling();
    scene.second.eventually("the new leader is at work", WITHIN, || {
        (scene.sightings.bound() >= stopped_with + PODS / 10).then_some(())
    });
    let left = scene.left();
    scene.say(&format!("the old leader wakes, with {left} of {PODS} pods left"));
    let woken = Timestamp::now();
    scene.first.signal("CONT");
    let status = scene.first.wait(Duration::from_secs(30));
    assert_eq!(status.code(), Some(1), "{}", scene.first.log());
    assert!(scene.first.log().contains("Leaderelection lost"), "{}", scene.first.log());
    scene.await_all();
    let sent = Bindings::of(&scene.plane).received_from(USERS[0], woken);
    scene.say(&format!("the old leader has sent {sent} more bindings"));
    assert!(sent <= PAST_THE_FENCE, "{sent}");
    scene.second.stop();
}

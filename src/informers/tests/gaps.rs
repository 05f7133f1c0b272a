//! What happens to pods while nobody watches comes to light with a list.

use std::time::Duration;

use http::Method;
use serde_json::json;
use supercargo_scheduler::Place;
use tokio::time::sleep;

use super::cluster::{First, TestCluster};

#[tokio::test(start_paused = true)]
async fn a_relist_that_brings_nothing_new_requeues_nothing() {
    let mut cluster = TestCluster::new(&[("n1", 1000)], First::Together).await;
    let bound = cluster.create("bound", 600, Some("n1")).await;
    let mut waiting = Vec::new();
    for name in ["w1", "w2", "w3"] {
        waiting.push(cluster.create(name, 700, None).await);
    }
    cluster.hear().await;
    cluster.schedule().await;
    let uids: Vec<_> = waiting.iter().chain([&bound]).collect();
    // The conditions that it wrote have come back by now.
    let before = cluster.known(&uids);
    assert_eq!(before.places[..3], [Some(Place::Unschedulable); 3]);
    let attempts = |cluster: &TestCluster| -> Vec<u32> {
        waiting.iter().map(|uid| cluster.scheduler.queued(uid).unwrap().attempts).collect()
    };
    let attempted = attempts(&cluster);
    for round in 0..3 {
        cluster.pods.take();
        cluster.nodes.take();
        // Something else changes, so that what the informers know is of the past that is forgotten.
        let map = json!({ "metadata": { "name": format!("map-{round}") } });
        cluster.ask(Method::POST, "/api/v1/namespaces/default/configmaps", &map).await;
        cluster.server.restart(false);
        sleep(Duration::from_secs(20)).await;
        cluster.hear().await;
        let unchanged = |line: &String| {
            let versions = line.rsplit(' ').next().unwrap().split_once('>');
            line.starts_with("update ") && versions.is_some_and(|(old, new)| old == new)
        };
        let (pods, nodes) = (cluster.pods.take(), cluster.nodes.take());
        assert_eq!((pods.len(), nodes.len()), (4, 1), "{pods:?} {nodes:?}");
        assert!(pods.iter().chain(&nodes).all(unchanged), "{pods:?} {nodes:?}");
        assert_eq!(cluster.known(&uids), before);
        assert!(!cluster.scheduler.has_work());
        assert_eq!(attempts(&cluster), attempted);
    }
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_last_seen_without_a_node_that_was_bound_and_deleted_unseen_leaves_cache_and_queue() {
    let mut cluster = TestCluster::new(&[("n1", 1000)], First::Together).await;
    let assumed = cluster.create("ours", 600, None).await;
    let foreign = cluster.create("theirs", 5000, None).await;
    cluster.hear().await;
    cluster.look_away().await;
    // The scheduler binds one itself, and the informer does not hear of it; another scheduler binds the other.
    cluster.schedule().await;
    assert_eq!(cluster.node_of("ours").await.as_deref(), Some("n1"));
    cluster.bind("theirs", "n1").await;
    assert!(cluster.scheduler.cache().is_assumed(&assumed));
    assert_eq!((cluster.scheduler.bindings_in_flight(), cluster.taken("n1")), (0, 600));
    assert_eq!(cluster.scheduler.place(&foreign), Some(Place::Unschedulable));
    for name in ["ours", "theirs"] {
        cluster.delete(name).await;
    }
    cluster.pods.take();
    cluster.look_again().await;
    let told = cluster.pods.take();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|line| line.starts_with("tombstone ")), "{told:?}");
    let known = cluster.known(&[&assumed, &foreign]);
    assert_eq!((known.places, known.nodes), (vec![None; 2], vec![None; 2]));
    assert_eq!((known.cached, known.queued, cluster.taken("n1")), ((0, 0), [0; 5], 0));
    // The room is there for the next.
    cluster.create("next", 1000, None).await;
    cluster.hear().await;
    cluster.schedule().await;
    assert_eq!(cluster.node_of("next").await.as_deref(), Some("n1"));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_recreated_under_its_name_unseen_frees_what_the_old_one_held() {
    for (new_node, first) in [
        (Some("n2"), First::Together),
        (None, First::Together),
        (Some("n2"), First::Cache),
        (None, First::Cache),
        (Some("n2"), First::Queue),
        (None, First::Queue),
    ] {
        let mut cluster = TestCluster::new(&[("n1", 1000), ("n2", 1000)], first).await;
        let old = cluster.create("a", 600, Some("n1")).await;
        cluster.hear().await;
        assert_eq!(cluster.taken("n1"), 600);
        cluster.look_away().await;
        cluster.delete("a").await;
        let new = cluster.create("a", 300, new_node).await;
        cluster.pods.take();
        cluster.look_again().await;
        let told = cluster.pods.take();
        assert!(told.len() == 1 && told[0].starts_with("update default/a "), "{told:?}");
        assert_eq!(cluster.taken("n1"), 0, "{new_node:?} {first:?}");
        let known = cluster.known(&[&old, &new]);
        let (place, taken, cached) = match new_node {
            Some(_) => (None, 300, (1, 0)),
            None => (Some(Place::Active), 0, (0, 0)),
        };
        assert_eq!((known.places, known.nodes[1].as_deref()), (vec![None, place], new_node));
        assert_eq!((cluster.taken("n2"), known.cached), (taken, cached), "{new_node:?} {first:?}");
        cluster.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_pod_recreated_under_its_name_unseen_is_another_pod_in_the_queue() {
    let mut cluster = TestCluster::new(&[("n1", 1000)], First::Together).await;
    let old = cluster.create("a", 5000, None).await;
    cluster.hear().await;
    cluster.schedule().await;
    assert_eq!(cluster.scheduler.place(&old), Some(Place::Unschedulable));
    cluster.look_away().await;
    cluster.delete("a").await;
    let new = cluster.create("a", 300, None).await;
    cluster.look_again().await;
    let known = cluster.known(&[&old, &new]);
    assert_eq!(known.places, [None, Some(Place::Active)]);
    cluster.schedule().await;
    assert_eq!(cluster.node_of("a").await.as_deref(), Some("n1"));
    cluster.stop().await;
}

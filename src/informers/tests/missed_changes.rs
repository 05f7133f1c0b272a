//! Changes that the watch misses are found by the next list.

use std::time::Duration;

use http::Method;
use serde_json::json;
use supercargo_scheduler::Place;
use tokio::time::sleep;

use super::cluster::{First, TestCluster};

#[tokio::test(start_paused = true)]
async fn relist_without_changes_requeues_nothing() {
    let mut cluster = TestCluster::new(&[("n1", 1000)], First::Together).await;
    let bound = cluster.create("bound", 600, Some("n1")).await;
    let mut waiting = Vec::new();
    for name in ["w1", "w2", "w3"] {
        waiting.push(cluster.create(name, 700, None).await);
    }
    cluster.deliver().await;
    cluster.schedule().await;
    let uids: Vec<_> = waiting.iter().chain([&bound]).collect();
    // Includes the events of the conditions that the scheduler wrote.
    let before = cluster.known(&uids);
    assert_eq!(before.places[..3], [Some(Place::Unschedulable); 3]);
    let attempts = |cluster: &TestCluster| -> Vec<u32> {
        waiting.iter().map(|uid| cluster.scheduler.queued(uid).unwrap().attempts).collect()
    };
    let attempted = attempts(&cluster);
    for round in 0..3 {
        cluster.pods.take();
        cluster.nodes.take();
        // Another object changes, so that the resource version of the informers is compacted.
        let map = json!({ "metadata": { "name": format!("map-{round}") } });
        cluster.request(Method::POST, "/api/v1/namespaces/default/configmaps", &map).await;
        cluster.server.restart(false);
        sleep(Duration::from_secs(20)).await;
        cluster.deliver().await;
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
async fn pod_bound_and_deleted_during_a_gap_leaves_cache_and_queue() {
    let mut cluster = TestCluster::new(&[("n1", 1000)], First::Together).await;
    let assumed = cluster.create("ours", 600, None).await;
    let foreign = cluster.create("theirs", 5000, None).await;
    cluster.deliver().await;
    cluster.break_watch().await;
    // The scheduler binds one pod, another scheduler the other; the informer misses both.
    cluster.schedule().await;
    assert_eq!(cluster.node_of("ours").await.as_deref(), Some("n1"));
    cluster.bind("theirs", "n1").await;
    assert!(cluster.scheduler.cache().is_assumed(&assumed));
    assert_eq!((cluster.scheduler.bindings_in_flight(), cluster.requested("n1")), (0, 600));
    assert_eq!(cluster.scheduler.place(&foreign), Some(Place::Unschedulable));
    for name in ["ours", "theirs"] {
        cluster.delete(name).await;
    }
    cluster.pods.take();
    cluster.restore_watch().await;
    let events = cluster.pods.take();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events.iter().all(|line| line.starts_with("tombstone ")), "{events:?}");
    let known = cluster.known(&[&assumed, &foreign]);
    assert_eq!((known.places, known.nodes), (vec![None; 2], vec![None; 2]));
    assert_eq!((known.cached, known.queued, cluster.requested("n1")), ((0, 0), [0; 5], 0));
    // The resources are free for another pod.
    cluster.create("next", 1000, None).await;
    cluster.deliver().await;
    cluster.schedule().await;
    assert_eq!(cluster.node_of("next").await.as_deref(), Some("n1"));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pod_recreated_during_a_gap_frees_resources_of_the_old_pod() {
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
        cluster.deliver().await;
        assert_eq!(cluster.requested("n1"), 600);
        cluster.break_watch().await;
        cluster.delete("a").await;
        let new = cluster.create("a", 300, new_node).await;
        cluster.pods.take();
        cluster.restore_watch().await;
        let events = cluster.pods.take();
        assert!(events.len() == 1 && events[0].starts_with("update default/a "), "{events:?}");
        assert_eq!(cluster.requested("n1"), 0, "{new_node:?} {first:?}");
        let known = cluster.known(&[&old, &new]);
        let (place, taken, cached) = match new_node {
            Some(_) => (None, 300, (1, 0)),
            None => (Some(Place::Active), 0, (0, 0)),
        };
        assert_eq!((known.places, known.nodes[1].as_deref()), (vec![None, place], new_node));
        assert_eq!((cluster.requested("n2"), known.cached), (taken, cached), "{new_node:?} {first:?}");
        cluster.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn queued_pod_recreated_during_a_gap_is_queued_as_a_new_pod() {
    let mut cluster = TestCluster::new(&[("n1", 1000)], First::Together).await;
    let old = cluster.create("a", 5000, None).await;
    cluster.deliver().await;
    cluster.schedule().await;
    assert_eq!(cluster.scheduler.place(&old), Some(Place::Unschedulable));
    cluster.break_watch().await;
    cluster.delete("a").await;
    let new = cluster.create("a", 300, None).await;
    cluster.restore_watch().await;
    let known = cluster.known(&[&old, &new]);
    assert_eq!(known.places, [None, Some(Place::Active)]);
    cluster.schedule().await;
    assert_eq!(cluster.node_of("a").await.as_deref(), Some("n1"));
    cluster.stop().await;
}

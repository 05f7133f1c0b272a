//! Pods that are created, bound and deleted.

use http::Method;
use kube_informers::compare_rv;
use serde_json::json;
use supercargo_scheduler::Place;

use super::cluster::{First, Known, PODS, TestCluster};

const ORDERS: [First; 3] = [First::Together, First::Cache, First::Queue];

#[tokio::test(start_paused = true)]
async fn pod_lifecycle_updates_cache_and_queue() {
    let mut cluster = TestCluster::new(&[("n1", 1000)], First::Together).await;
    let pod = cluster.create("a", 600, None).await;
    cluster.deliver().await;
    assert_eq!(cluster.scheduler.place(&pod), Some(Place::Active));
    assert_eq!((cluster.scheduler.cache().pod_counts(), cluster.requested("n1")), ((0, 0), 0));

    cluster.schedule().await;
    assert_eq!(cluster.node_of("a").await.as_deref(), Some("n1"));
    assert!(cluster.scheduler.cache().is_confirmed(&pod));
    assert_eq!((cluster.scheduler.place(&pod), cluster.requested("n1")), (None, 600));
    assert_eq!(cluster.scheduler.bindings_in_flight(), 0);

    // A second pod does not fit until the first one is deleted.
    let other = cluster.create("b", 600, None).await;
    cluster.deliver().await;
    cluster.schedule().await;
    assert_eq!(cluster.scheduler.place(&other), Some(Place::Unschedulable));
    cluster.delete("a").await;
    cluster.deliver().await;
    assert_eq!(cluster.scheduler.cache().pod_counts(), (0, 0));
    assert_ne!(cluster.scheduler.place(&other), Some(Place::Unschedulable));
    cluster.schedule().await;
    assert_eq!(cluster.node_of("b").await.as_deref(), Some("n1"));

    // A pod created with a node is never queued; deletion removes an unscheduled pod from the
    // queue.
    let bound = cluster.create("c", 100, Some("n1")).await;
    let waiting = cluster.create("d", 5000, None).await;
    cluster.deliver().await;
    assert!(cluster.scheduler.cache().is_confirmed(&bound) && cluster.scheduler.place(&bound).is_none());
    assert_eq!((cluster.scheduler.place(&waiting), cluster.requested("n1")), (Some(Place::Active), 700));
    cluster.delete("c").await;
    cluster.delete("d").await;
    cluster.deliver().await;
    let known = cluster.known(&[&other, &bound, &waiting]);
    assert_eq!(known.places, [None; 3]);
    assert_eq!((known.cached, known.queued, cluster.requested("n1")), ((1, 0), [0; 5], 600));
    cluster.stop().await;
}

/// The scheduler's view after each step of a pod that another scheduler binds.
async fn bound_by_another(first: First) -> Vec<Known> {
    let mut cluster = TestCluster::new(&[("n1", 1000)], first).await;
    let pod = cluster.create("a", 600, None).await;
    cluster.deliver().await;
    let mut steps = vec![cluster.known(&[&pod])];
    cluster.bind("a", "n1").await;
    cluster.deliver().await;
    steps.push(cluster.known(&[&pod]));
    assert_eq!(cluster.requested("n1"), 600, "{first:?}");
    cluster.delete("a").await;
    cluster.deliver().await;
    steps.push(cluster.known(&[&pod]));
    assert_eq!(cluster.requested("n1"), 0, "{first:?}");
    // Created, bound and deleted before any event was delivered.
    let brief = cluster.create("b", 600, None).await;
    kube_informers::testing::settle().await;
    cluster.bind("b", "n1").await;
    kube_informers::testing::settle().await;
    cluster.delete("b").await;
    cluster.deliver().await;
    steps.push(cluster.known(&[&brief]));
    assert_eq!(cluster.requested("n1"), 0, "{first:?}");
    cluster.stop().await;
    steps
}

/// The same for a pod that this scheduler binds.
async fn bound_by_itself(first: First) -> Vec<Known> {
    let mut cluster = TestCluster::new(&[("n1", 1000)], first).await;
    let pod = cluster.create("a", 600, None).await;
    cluster.deliver().await;
    cluster.schedule().await;
    assert_eq!(cluster.node_of("a").await.as_deref(), Some("n1"));
    let mut steps = vec![cluster.known(&[&pod])];
    assert!(cluster.scheduler.cache().is_confirmed(&pod), "{first:?}");
    cluster.delete("a").await;
    cluster.deliver().await;
    steps.push(cluster.known(&[&pod]));
    assert_eq!(cluster.requested("n1"), 0, "{first:?}");
    cluster.stop().await;
    steps
}

#[tokio::test(start_paused = true)]
async fn order_of_cache_and_queue_handlers_does_not_change_the_outcome() {
    let (mut by_another, mut by_itself) = (Vec::new(), Vec::new());
    for first in ORDERS {
        by_another.push(bound_by_another(first).await);
        by_itself.push(bound_by_itself(first).await);
    }
    for (steps, expected) in by_another.iter().zip(&by_another[1..]) {
        assert_eq!(steps, expected);
    }
    for (steps, expected) in by_itself.iter().zip(&by_itself[1..]) {
        assert_eq!(steps, expected);
    }
    let [queued, bound, gone, brief] = &by_another[0][..] else { panic!("{by_another:?}") };
    assert_eq!((queued.places[0], queued.cached), (Some(Place::Active), (0, 0)));
    assert_eq!((bound.places[0], bound.cached, bound.queued), (None, (1, 0), [0; 5]));
    assert_eq!(bound.nodes[0].as_deref(), Some("n1"));
    for empty in [gone, brief, &by_itself[0][1]] {
        assert_eq!((empty.places[0], empty.cached, empty.queued), (None, (0, 0), [0; 5]));
    }
    assert_eq!((by_itself[0][0].places[0], by_itself[0][0].cached), (None, (1, 0)));
}

#[tokio::test(start_paused = true)]
async fn finished_pod_leaves_the_watch_and_frees_its_resources() {
    for phase in ["Succeeded", "Failed"] {
        let mut cluster = TestCluster::new(&[("n1", 1000)], First::Together).await;
        let ended = cluster.create("a", 600, Some("n1")).await;
        let waiting = cluster.create("b", 600, None).await;
        cluster.deliver().await;
        cluster.schedule().await;
        assert_eq!(cluster.scheduler.place(&waiting), Some(Place::Unschedulable));
        cluster.pods.take();
        let before = cluster.pods.content()["default/a"].clone();

        let status = json!({ "status": { "phase": phase } });
        cluster.request(Method::PATCH, &format!("{PODS}/a/status"), &status).await;
        cluster.deliver().await;
        let [line] = &cluster.pods.take()[..] else { panic!("one notification") };
        let version = line.strip_prefix("delete default/a ").unwrap_or_else(|| panic!("{line}"));
        assert!(compare_rv(version, &before).unwrap().is_gt(), "{version} after {before}");
        assert!(cluster.scheduler.cache().node_of(&ended).is_none());
        assert_eq!(cluster.requested("n1"), 0);
        cluster.schedule().await;
        assert_eq!(cluster.node_of("b").await.as_deref(), Some("n1"), "{phase}");
        // The pod still exists on the server, but causes no further events.
        cluster.delete("a").await;
        cluster.deliver().await;
        assert!(!cluster.pods.take().iter().any(|line| line.contains("default/a")));
        cluster.stop().await;
    }
}

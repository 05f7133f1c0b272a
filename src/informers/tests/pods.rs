//! Pods that come, are bound, and go.

use http::Method;
use kube_informers::compare_rv;
use serde_json::json;
use supercargo_scheduler::Place;

use super::bed::{Bed, First, Known, PODS};

const ORDERS: [First; 3] = [First::Together, First::Cache, First::Queue];

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_created_bound_and_deleted_drives_cache_and_queue() {
    let mut bed = Bed::new(&[("n1", 1000)], First::Together).await;
    let pod = bed.create("a", 600, None).await;
    bed.hear().await;
    assert_eq!(bed.scheduler.place(&pod), Some(Place::Active));
    assert_eq!((bed.scheduler.cache().pod_counts(), bed.taken("n1")), ((0, 0), 0));

    bed.schedule().await;
    assert_eq!(bed.node_of("a").await.as_deref(), Some("n1"));
    assert!(bed.scheduler.cache().is_confirmed(&pod));
    assert_eq!((bed.scheduler.place(&pod), bed.taken("n1")), (None, 600));
    assert_eq!(bed.scheduler.bindings_in_flight(), 0);

    // There is no room for another, until it goes.
    let other = bed.create("b", 600, None).await;
    bed.hear().await;
    bed.schedule().await;
    assert_eq!(bed.scheduler.place(&other), Some(Place::Unschedulable));
    bed.delete("a").await;
    bed.hear().await;
    assert_eq!(bed.scheduler.cache().pod_counts(), (0, 0));
    assert_ne!(bed.scheduler.place(&other), Some(Place::Unschedulable));
    bed.schedule().await;
    assert_eq!(bed.node_of("b").await.as_deref(), Some("n1"));

    // One that has a node from the start never comes to the queue, and one that never gets a node leaves it.
    let bound = bed.create("c", 100, Some("n1")).await;
    let waiting = bed.create("d", 5000, None).await;
    bed.hear().await;
    assert!(bed.scheduler.cache().is_confirmed(&bound) && bed.scheduler.place(&bound).is_none());
    assert_eq!((bed.scheduler.place(&waiting), bed.taken("n1")), (Some(Place::Active), 700));
    bed.delete("c").await;
    bed.delete("d").await;
    bed.hear().await;
    let known = bed.known(&[&other, &bound, &waiting]);
    assert_eq!(known.places, [None; 3]);
    assert_eq!((known.cached, known.queued, bed.taken("n1")), ((1, 0), [0; 5], 600));
    bed.stop().await;
}

/// What a scheduler knows after each step of a pod's way, when another scheduler binds it.
async fn bound_by_another(first: First) -> Vec<Known> {
    let mut bed = Bed::new(&[("n1", 1000)], first).await;
    let pod = bed.create("a", 600, None).await;
    bed.hear().await;
    let mut steps = vec![bed.known(&[&pod])];
    bed.bind("a", "n1").await;
    bed.hear().await;
    steps.push(bed.known(&[&pod]));
    assert_eq!(bed.taken("n1"), 600, "{first:?}");
    bed.delete("a").await;
    bed.hear().await;
    steps.push(bed.known(&[&pod]));
    assert_eq!(bed.taken("n1"), 0, "{first:?}");
    // It came, was bound and went before anything was heard of it.
    let brief = bed.create("b", 600, None).await;
    kube_informers::testing::settle().await;
    bed.bind("b", "n1").await;
    kube_informers::testing::settle().await;
    bed.delete("b").await;
    bed.hear().await;
    steps.push(bed.known(&[&brief]));
    assert_eq!(bed.taken("n1"), 0, "{first:?}");
    bed.stop().await;
    steps
}

/// The same for one that it binds itself.
async fn bound_by_itself(first: First) -> Vec<Known> {
    let mut bed = Bed::new(&[("n1", 1000)], first).await;
    let pod = bed.create("a", 600, None).await;
    bed.hear().await;
    bed.schedule().await;
    assert_eq!(bed.node_of("a").await.as_deref(), Some("n1"));
    let mut steps = vec![bed.known(&[&pod])];
    assert!(bed.scheduler.cache().is_confirmed(&pod), "{first:?}");
    bed.delete("a").await;
    bed.hear().await;
    steps.push(bed.known(&[&pod]));
    assert_eq!(bed.taken("n1"), 0, "{first:?}");
    bed.stop().await;
    steps
}

#[tokio::test(start_paused = true)]
async fn a_binding_seen_by_two_handlers_in_either_order_leaves_cache_and_queue_the_same() {
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
async fn a_pod_that_has_ended_is_gone_for_the_selector_and_gives_its_room_back() {
    for phase in ["Succeeded", "Failed"] {
        let mut bed = Bed::new(&[("n1", 1000)], First::Together).await;
        let ended = bed.create("a", 600, Some("n1")).await;
        let waiting = bed.create("b", 600, None).await;
        bed.hear().await;
        bed.schedule().await;
        assert_eq!(bed.scheduler.place(&waiting), Some(Place::Unschedulable));
        bed.pods.take();
        let before = bed.pods.content()["default/a"].clone();

        let status = json!({ "status": { "phase": phase } });
        bed.ask(Method::PATCH, &format!("{PODS}/a/status"), &status).await;
        bed.hear().await;
        let [line] = &bed.pods.take()[..] else { panic!("one notification") };
        let version = line.strip_prefix("delete default/a ").unwrap_or_else(|| panic!("{line}"));
        assert!(compare_rv(version, &before).unwrap().is_gt(), "{version} after {before}");
        assert!(bed.scheduler.cache().node_of(&ended).is_none());
        assert_eq!(bed.taken("n1"), 0);
        bed.schedule().await;
        assert_eq!(bed.node_of("b").await.as_deref(), Some("n1"), "{phase}");
        // It still exists; nobody here hears of it again.
        bed.delete("a").await;
        bed.hear().await;
        assert!(!bed.pods.take().iter().any(|line| line.contains("default/a")));
        bed.stop().await;
    }
}

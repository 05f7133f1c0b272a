//! What happens to pods while nobody watches comes to light with a list.

use std::time::Duration;

use http::Method;
use serde_json::json;
use supercargo_scheduler::Place;
use tokio::time::sleep;

use super::bed::{Bed, First};

#[tokio::test(start_paused = true)]
async fn a_relist_that_brings_nothing_new_requeues_nothing() {
    let mut bed = Bed::new(&[("n1", 1000)], First::Together).await;
    let bound = bed.create("bound", 600, Some("n1")).await;
    let mut waiting = Vec::new();
    for name in ["w1", "w2", "w3"] {
        waiting.push(bed.create(name, 700, None).await);
    }
    bed.hear().await;
    bed.schedule().await;
    let uids: Vec<_> = waiting.iter().chain([&bound]).collect();
    // The conditions that it wrote have come back by now.
    let before = bed.known(&uids);
    assert_eq!(before.places[..3], [Some(Place::Unschedulable); 3]);
    let attempts = |bed: &Bed| -> Vec<u32> {
        waiting.iter().map(|uid| bed.scheduler.queued(uid).unwrap().attempts).collect()
    };
    let attempted = attempts(&bed);
    for round in 0..3 {
        bed.pods.take();
        bed.nodes.take();
        // Something else changes, so that what the informers know is of the past that is forgotten.
        let map = json!({ "metadata": { "name": format!("map-{round}") } });
        bed.ask(Method::POST, "/api/v1/namespaces/default/configmaps", &map).await;
        bed.server.restart(false);
        sleep(Duration::from_secs(20)).await;
        bed.hear().await;
        let unchanged = |line: &String| {
            let versions = line.rsplit(' ').next().unwrap().split_once('>');
            line.starts_with("update ") && versions.is_some_and(|(old, new)| old == new)
        };
        let (pods, nodes) = (bed.pods.take(), bed.nodes.take());
        assert_eq!((pods.len(), nodes.len()), (4, 1), "{pods:?} {nodes:?}");
        assert!(pods.iter().chain(&nodes).all(unchanged), "{pods:?} {nodes:?}");
        assert_eq!(bed.known(&uids), before);
        assert!(!bed.scheduler.has_work());
        assert_eq!(attempts(&bed), attempted);
    }
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_last_seen_without_a_node_that_was_bound_and_deleted_unseen_leaves_cache_and_queue() {
    let mut bed = Bed::new(&[("n1", 1000)], First::Together).await;
    let assumed = bed.create("ours", 600, None).await;
    let foreign = bed.create("theirs", 5000, None).await;
    bed.hear().await;
    bed.look_away().await;
    // The scheduler binds one itself, and the informer does not hear of it; another scheduler binds the other.
    bed.schedule().await;
    assert_eq!(bed.node_of("ours").await.as_deref(), Some("n1"));
    bed.bind("theirs", "n1").await;
    assert!(bed.scheduler.cache().is_assumed(&assumed));
    assert_eq!((bed.scheduler.bindings_in_flight(), bed.taken("n1")), (0, 600));
    assert_eq!(bed.scheduler.place(&foreign), Some(Place::Unschedulable));
    for name in ["ours", "theirs"] {
        bed.delete(name).await;
    }
    bed.pods.take();
    bed.look_again().await;
    let told = bed.pods.take();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|line| line.starts_with("tombstone ")), "{told:?}");
    let known = bed.known(&[&assumed, &foreign]);
    assert_eq!((known.places, known.nodes), (vec![None; 2], vec![None; 2]));
    assert_eq!((known.cached, known.queued, bed.taken("n1")), ((0, 0), [0; 5], 0));
    // The room is there for the next.
    bed.create("next", 1000, None).await;
    bed.hear().await;
    bed.schedule().await;
    assert_eq!(bed.node_of("next").await.as_deref(), Some("n1"));
    bed.stop().await;
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
        let mut bed = Bed::new(&[("n1", 1000), ("n2", 1000)], first).await;
        let old = bed.create("a", 600, Some("n1")).await;
        bed.hear().await;
        assert_eq!(bed.taken("n1"), 600);
        bed.look_away().await;
        bed.delete("a").await;
        let new = bed.create("a", 300, new_node).await;
        bed.pods.take();
        bed.look_again().await;
        let told = bed.pods.take();
        assert!(told.len() == 1 && told[0].starts_with("update default/a "), "{told:?}");
        assert_eq!(bed.taken("n1"), 0, "{new_node:?} {first:?}");
        let known = bed.known(&[&old, &new]);
        let (place, taken, cached) = match new_node {
            Some(_) => (None, 300, (1, 0)),
            None => (Some(Place::Active), 0, (0, 0)),
        };
        assert_eq!((known.places, known.nodes[1].as_deref()), (vec![None, place], new_node));
        assert_eq!((bed.taken("n2"), known.cached), (taken, cached), "{new_node:?} {first:?}");
        bed.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_pod_recreated_under_its_name_unseen_is_another_pod_in_the_queue() {
    let mut bed = Bed::new(&[("n1", 1000)], First::Together).await;
    let old = bed.create("a", 5000, None).await;
    bed.hear().await;
    bed.schedule().await;
    assert_eq!(bed.scheduler.place(&old), Some(Place::Unschedulable));
    bed.look_away().await;
    bed.delete("a").await;
    let new = bed.create("a", 300, None).await;
    bed.look_again().await;
    let known = bed.known(&[&old, &new]);
    assert_eq!(known.places, [None, Some(Place::Active)]);
    bed.schedule().await;
    assert_eq!(bed.node_of("a").await.as_deref(), Some("n1"));
    bed.stop().await;
}

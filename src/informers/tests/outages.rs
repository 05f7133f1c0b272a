//! The API server is away for a while.

use std::time::Duration;

use tokio::time::sleep;

use super::bed::{Bed, First};

const OUTAGE: Duration = Duration::from_secs(20);

/// Nobody listens for a while; in the meantime something changes.
async fn outage(bed: &mut Bed, keeps_history: bool) {
    bed.link.refuse(true);
    bed.server.restart(true);
    sleep(OUTAGE / 2).await;
    bed.delete("gone").await;
    bed.create("new", 100, None).await;
    bed.create_node("n2", 1000).await;
    if !keeps_history {
        bed.server.compact();
    }
    sleep(OUTAGE / 2).await;
    bed.link.take_asked();
    bed.pods.take();
    bed.nodes.take();
    bed.link.refuse(false);
    // The waits between attempts have grown, and not beyond half a minute with jitter.
    sleep(Duration::from_mins(1)).await;
    bed.hear().await;
}

async fn bed() -> Bed {
    let mut bed = Bed::new(&[("n1", 1000)], First::Together).await;
    assert_eq!(bed.link.take_asked(), ["watch-list nodes", "watch-list pods"]);
    bed.create("stays", 100, Some("n1")).await;
    bed.create("gone", 200, Some("n1")).await;
    bed.hear().await;
    bed
}

/// Both know of the same in the end, and the scheduler is at work again.
async fn check(bed: &mut Bed) {
    assert_eq!(bed.pods.content().into_keys().collect::<Vec<_>>(), ["default/new", "default/stays"]);
    assert_eq!(bed.nodes.content().into_keys().collect::<Vec<_>>(), ["n1", "n2"]);
    assert_eq!(bed.taken("n1"), 100);
    bed.schedule().await;
    assert!(bed.node_of("new").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn after_20_s_of_refused_connections_watches_resume_without_a_list() {
    let mut bed = bed().await;
    outage(&mut bed, true).await;
    assert_eq!(bed.link.take_asked(), ["watch nodes", "watch pods"]);
    // Nothing of what happened is lost. A deletion begins with a timestamp.
    let pods = bed.pods.take();
    let words = pods.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect::<Vec<_>>();
    assert_eq!(words, ["update default/gone", "delete default/gone", "add default/new"]);
    check(&mut bed).await;
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_with_a_compaction_each_informer_lists_once() {
    let mut bed = bed().await;
    outage(&mut bed, false).await;
    // The watch that is too late, and then the list, which is a watch that begins with what exists.
    let expected = ["watch nodes", "watch pods", "watch-list nodes", "watch-list pods"];
    assert_eq!(bed.link.take_asked(), expected);
    let pods = bed.pods.take();
    let begins = |text: &str| pods.iter().any(|line| line.starts_with(text));
    assert!(begins("tombstone default/gone") && begins("add default/new"), "{pods:?}");
    check(&mut bed).await;
    bed.stop().await;
}

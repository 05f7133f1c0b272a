//! The API server is away for a while.

use std::time::Duration;

use tokio::time::sleep;

use super::cluster::{First, TestCluster};

const OUTAGE: Duration = Duration::from_secs(20);

/// Nobody listens for a while; in the meantime something changes.
async fn outage(cluster: &mut TestCluster, keeps_history: bool) {
    cluster.link.refuse(true);
    cluster.server.restart(true);
    sleep(OUTAGE / 2).await;
    cluster.delete("gone").await;
    cluster.create("new", 100, None).await;
    cluster.create_node("n2", 1000).await;
    if !keeps_history {
        cluster.server.compact();
    }
    sleep(OUTAGE / 2).await;
    cluster.link.take_asked();
    cluster.pods.take();
    cluster.nodes.take();
    cluster.link.refuse(false);
    // The waits between attempts have grown, and not beyond half a minute with jitter.
    sleep(Duration::from_mins(1)).await;
    cluster.hear().await;
}

async fn cluster() -> TestCluster {
    let mut cluster = TestCluster::new(&[("n1", 1000)], First::Together).await;
    assert_eq!(cluster.link.take_asked(), ["watch-list nodes", "watch-list pods"]);
    cluster.create("stays", 100, Some("n1")).await;
    cluster.create("gone", 200, Some("n1")).await;
    cluster.hear().await;
    cluster
}

/// Both know of the same in the end, and the scheduler is at work again.
async fn check(cluster: &mut TestCluster) {
    assert_eq!(cluster.pods.content().into_keys().collect::<Vec<_>>(), ["default/new", "default/stays"]);
    assert_eq!(cluster.nodes.content().into_keys().collect::<Vec<_>>(), ["n1", "n2"]);
    assert_eq!(cluster.taken("n1"), 100);
    cluster.schedule().await;
    assert!(cluster.node_of("new").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn after_20_s_of_refused_connections_watches_resume_without_a_list() {
    let mut cluster = cluster().await;
    outage(&mut cluster, true).await;
    assert_eq!(cluster.link.take_asked(), ["watch nodes", "watch pods"]);
    // Nothing of what happened is lost. A deletion begins with a timestamp.
    let pods = cluster.pods.take();
    let words = pods.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect::<Vec<_>>();
    assert_eq!(words, ["update default/gone", "delete default/gone", "add default/new"]);
    check(&mut cluster).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_with_a_compaction_each_informer_lists_once() {
    let mut cluster = cluster().await;
    outage(&mut cluster, false).await;
    // The watch that is too late, and then the list, which is a watch that begins with what exists.
    let expected = ["watch nodes", "watch pods", "watch-list nodes", "watch-list pods"];
    assert_eq!(cluster.link.take_asked(), expected);
    let pods = cluster.pods.take();
    let begins = |text: &str| pods.iter().any(|line| line.starts_with(text));
    assert!(begins("tombstone default/gone") && begins("add default/new"), "{pods:?}");
    check(&mut cluster).await;
    cluster.stop().await;
}

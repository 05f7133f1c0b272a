//! Outages of the API server.

use std::time::Duration;

use tokio::time::sleep;

use super::cluster::{First, TestCluster};

const OUTAGE: Duration = Duration::from_secs(20);

/// Refuses connections for a while. Objects change in the meantime.
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
    cluster.link.take_requests();
    cluster.pods.take();
    cluster.nodes.take();
    cluster.link.refuse(false);
    // The backoff of the informers is at most 30 s plus jitter.
    sleep(Duration::from_mins(1)).await;
    cluster.deliver().await;
}

async fn cluster() -> TestCluster {
    let mut cluster = TestCluster::new(&[("n1", 1000)], First::Together).await;
    assert_eq!(cluster.link.take_requests(), ["watch-list nodes", "watch-list pods"]);
    cluster.create("stays", 100, Some("n1")).await;
    cluster.create("gone", 200, Some("n1")).await;
    cluster.deliver().await;
    cluster
}

/// Checks that informers and scheduler agree, and that the scheduler binds pods again.
async fn check(cluster: &mut TestCluster) {
    assert_eq!(cluster.pods.content().into_keys().collect::<Vec<_>>(), ["default/new", "default/stays"]);
    assert_eq!(cluster.nodes.content().into_keys().collect::<Vec<_>>(), ["n1", "n2"]);
    assert_eq!(cluster.requested("n1"), 100);
    cluster.schedule().await;
    assert!(cluster.node_of("new").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn watches_resume_without_a_list_after_an_outage() {
    let mut cluster = cluster().await;
    outage(&mut cluster, true).await;
    assert_eq!(cluster.link.take_requests(), ["watch nodes", "watch pods"]);
    // No event is lost. A deletion starts with an update that sets deletionTimestamp.
    let pods = cluster.pods.take();
    let words = pods.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect::<Vec<_>>();
    assert_eq!(words, ["update default/gone", "delete default/gone", "add default/new"]);
    check(&mut cluster).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn informers_list_once_after_an_outage_with_compaction() {
    let mut cluster = cluster().await;
    outage(&mut cluster, false).await;
    // The expired watch, then a watch-list.
    let expected = ["watch nodes", "watch pods", "watch-list nodes", "watch-list pods"];
    assert_eq!(cluster.link.take_requests(), expected);
    let pods = cluster.pods.take();
    let begins = |text: &str| pods.iter().any(|line| line.starts_with(text));
    assert!(begins("tombstone default/gone") && begins("add default/new"), "{pods:?}");
    check(&mut cluster).await;
    cluster.stop().await;
}

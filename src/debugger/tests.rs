use std::sync::Arc;

use supercargo_framework::testing::{node, pod};
use supercargo_framework::{Now, Timestamp};
use supercargo_scheduler::{Input, NoCalls, Notification};
use tokio::time::timeout;

use super::*;
use crate::informers::{Informers, kinds};
use supercargo_client::testing::answering_client;
use supercargo_config::{Catalog, Config};
use supercargo_owner::options::scheduler_options;
use supercargo_owner::owner::Message;

/// A scheduler with a pod that is being bound, an unschedulable one, a gated one, and one of
/// another scheduler.
fn scheduler() -> Scheduler {
    let config = Config::default_with(&Catalog::in_tree()).unwrap();
    let name = Arc::clone(&config.profiles[0].scheduler_name);
    let mut scheduler = Scheduler::new(scheduler_options(&config)).unwrap();
    let now = Now { wall: Timestamp(1_767_225_600_000_000), monotonic: Duration::ZERO };
    let small = [("cpu", "2"), ("memory", "3Gi"), ("pods", "10"), ("example.com/gpu", "2000")];
    let small = small.into_iter().chain([("hugepages-2Mi", "4Mi")]);
    let small = small.fold(node("n1"), |node, (name, amount)| node.allocatable(name, amount)).build();
    scheduler.handle(now, Input::Node(Notification::Added(Arc::new(small))));
    for pod in [
        pod("fits").request("cpu", "1500m"),
        pod("large").request("cpu", "4"),
        pod("gated").gate("example.com/gate"),
        pod("foreign").scheduler("another"),
    ] {
        let pod = if pod.clone().build().name.as_ref() == "foreign" { pod } else { pod.scheduler(&name) };
        scheduler.handle(now, Input::QueuedPod(Notification::Added(Arc::new(pod.build()))));
    }
    while scheduler.schedule_one(now, &mut NoCalls) {}
    scheduler
}

#[test]
fn dump_has_all_nodes_with_their_pods_and_all_queued_pods() {
    let scheduler = scheduler();
    let nodes = dump::nodes(&scheduler.node_views());
    for line in [
        "Node name: n1",
        "Deleted: false",
        "Requested Resources: cpu=1500m",
        "Allocatable Resources: cpu=2, memory=3Gi, pods=10, example.com/gpu=2k, hugepages-2Mi=4Mi",
        "Scheduled Pods(number: 1):",
        "name: fits, namespace: default, uid: fits, phase: Pending, nominated node: , assumed",
    ] {
        assert!(nodes.lines().any(|found| found == line), "{line} in {nodes}");
    }
    let queue = scheduler.queue_view();
    assert_eq!(dump::summary(&queue), "activeQ:0; backoffQ:0; unschedulableEntities:2");
    let pods = dump::pods(&queue);
    assert!(pods.contains("name: large, namespace: default, uid: large, phase: Pending, nominated node: "));
}

#[test]
fn json_has_the_queue_and_reason_of_each_pod() {
    let scheduler = scheduler();
    let cache = json::cache(&scheduler.node_views());
    assert_eq!((&cache["nodeCount"], &cache["assumedPodCount"]), (&1.into(), &1.into()));
    assert_eq!(cache["nodes"][0]["requested"]["milliCPU"], 1500);
    assert_eq!(cache["nodes"][0]["pods"][0]["pod"], "default/fits");
    let queue = json::queue(&scheduler.queue_view());
    assert_eq!(queue["bindings"][0]["stage"], "Binding");
    assert_eq!(queue["unschedulableEntities"][0]["pod"], "default/large");
    assert_eq!(
        queue["unschedulableEntities"][0]["unschedulablePlugins"],
        serde_json::json!(["NodeResourcesFit"])
    );
    assert_eq!(queue["unschedulableEntities"][0]["firstAttemptAt"], "2026-01-01T00:00:00Z");
    assert_eq!(queue["gated"][0]["gatingPlugin"], "SchedulingGates");
}

#[tokio::test(start_paused = true)]
async fn mismatches_found_twice_are_counted_every_five_minutes() {
    let metrics = Metrics::new(&Config::default_with(&Catalog::in_tree()).unwrap().features);
    let (mailbox, messages) = Mailbox::new();
    // The informers are empty, so that every object in the cache is redundant.
    let informers =
        Informers::new("in memory", answering_client(Vec::new()).0, &mailbox, kinds(true)).unwrap();
    let debugger = Debugger::new(informers.stores(), mailbox, Arc::clone(&metrics));
    let scheduler = scheduler();
    let answers = async {
        loop {
            for message in messages.try_iter() {
                if let Message::Ask(question) = message {
                    question(&scheduler);
                }
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    let both = async { tokio::join!(debugger.compare_periodically(), answers) };
    tokio::pin!(both);
    for (nodes, pods) in [(1, 4), (2, 8)] {
        assert!(timeout(COMPARE_PERIOD + 2 * RECHECK_DELAY, &mut both).await.is_err());
        let text = metrics.encode().await;
        for (kind, count) in [("node", nodes), ("pod", pods), ("sum", 0)] {
            let line = format!("supercargo_cache_mismatches_total{{kind=\"{kind}\"}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}

#[test]
fn nodes_are_compared_by_name_and_pods_by_uid() {
    let cached = scheduler().known_objects();
    assert_eq!(Mismatch::between(&cached, &cached), Mismatch::default());
    assert_eq!(cached.pods.len(), 4, "includes pods of other schedulers");
    let mut informed = cached.clone();
    informed.nodes.insert("n2".into());
    informed.nodes.remove("n1");
    informed.pods.remove(&"large".into());
    informed.pods.insert("new".into());
    let mismatch = Mismatch::between(&informed, &cached);
    let one = |name: &str| BTreeSet::from([name.to_owned()]);
    assert_eq!((mismatch.missed_pods.clone(), mismatch.redundant_pods.clone()), (one("new"), one("large")));
    assert_eq!(mismatch.missed_nodes.first().map(|name| &**name), Some("n2"));
    assert_eq!(mismatch.redundant_nodes.first().map(|name| &**name), Some("n1"));
    assert_eq!(mismatch.counts(), [("node", 2), ("pod", 2), ("sum", 0)]);
    assert_eq!(
        mismatch.intersection(&Mismatch::default()),
        Mismatch::default(),
        "mismatches that disappear are dropped"
    );
    assert_eq!(mismatch.intersection(&mismatch), mismatch);
    let sums = |names: &[&str]| Mismatch {
        wrong_sums: names.iter().map(|name| Arc::from(*name)).collect(),
        ..Mismatch::default()
    };
    let lasting = sums(&["n1", "n2"]).intersection(&sums(&["n2", "n3"]));
    assert_eq!(lasting, sums(&["n2"]));
    assert_eq!(lasting.counts(), [("node", 0), ("pod", 0), ("sum", 1)]);
}

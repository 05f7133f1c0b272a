//! Scheduling starts only after all handlers have synced.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use http::{Method, Request};
use kube::client::Body;
use kube_informers::{Deleted, EventHandler, FanOut, HandlerOptions};
use serde_json::json;
use supercargo_apiserver::ApiServer;
use supercargo_framework::NodeRecord;
use supercargo_scheduler::{Input, NoCalls, Scheduler};
use tokio_util::sync::CancellationToken;
use tower::util::ServiceExt as _;

use super::super::{Informers, cache_handler, node_handler, queue_handler};
use super::cluster::{Link, PODS};
use supercargo_client::host::{Clock as _, SystemClock};
use supercargo_config::{Catalog, Config};
use supercargo_owner::options::scheduler_options;
use supercargo_owner::owner::{Mailbox, Message};

const WAITING: usize = 10_000;
const NODES: usize = 20;

/// Blocks on each node until the test releases it.
struct Slow(Receiver<()>);

impl EventHandler<NodeRecord> for Slow {
    fn on_add(&mut self, _: &Arc<NodeRecord>, _: bool) {
        // An error means that the test has failed.
        let _ = self.0.recv();
    }

    fn on_update(&mut self, _: &Arc<NodeRecord>, _: &Arc<NodeRecord>) {}

    fn on_delete(&mut self, _: &Deleted<NodeRecord>) {}
}

async fn post(server: &ApiServer, path: &str, object: &serde_json::Value) {
    let request =
        Request::builder().method(Method::POST).uri(path).header("content-type", "application/json");
    let request = request.body(Body::from(object.to_string().into_bytes())).unwrap();
    assert!(server.service().oneshot(request).await.unwrap().status().is_success());
}

/// A server with nodes and many unscheduled pods.
async fn crowded() -> ApiServer {
    let server = ApiServer::default();
    for number in 0..NODES {
        let amounts = json!({ "cpu": "100", "pods": "110" });
        let name = format!("n{number}");
        let node = json!({ "metadata": { "name": name }, "status": { "allocatable": amounts } });
        post(&server, "/api/v1/nodes", &node).await;
    }
    let spec = json!({ "schedulerName": "supercargo", "containers": [{ "name": "main", "image": "none" }] });
    for number in 0..WAITING {
        post(&server, PODS, &json!({ "metadata": { "name": format!("p{number}") }, "spec": spec })).await;
    }
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scheduling_starts_only_after_a_slow_node_handler_has_synced() {
    let server = crowded().await;
    let (mailbox, messages) = Mailbox::new();
    let informers =
        Informers::without_handlers("in memory", Link::default().client(&server), super::super::kinds(true));
    let pod_handlers = FanOut::new().then(cache_handler(&mailbox)).then(queue_handler(&mailbox));
    informers.pods.add_event_handler(pod_handlers, HandlerOptions::named("pods")).unwrap();
    let (release, held) = mpsc::channel();
    let slow = FanOut::new().then(Slow(held)).then(node_handler(&mailbox));
    informers.nodes.add_event_handler(slow, HandlerOptions::named("nodes")).unwrap();
    informers.start();

    let stop = CancellationToken::new();
    let synced = CancellationToken::new();
    let begin = informers.begin_when_synced(&mailbox, &stop, &synced, std::future::ready(()));
    let watch = async {
        // The stores are complete, and all pods have been delivered.
        informers.pods.synced().await;
        informers.nodes.synced().await;
        assert_eq!((informers.pods.store().len(), informers.nodes.store().len()), (WAITING, NODES));
        while informers.pods.registrations()[0].pending() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let all: Vec<Message> = messages.try_iter().collect();
        let are_pods = all.iter().all(|message| matches!(message, Message::Input(input) if is_pod(input)));
        assert!(are_pods && all.len() == WAITING, "{} messages", all.len());
        for _ in 0..NODES {
            release.send(()).unwrap();
        }
        all
    };
    let ((), mut all) = tokio::time::timeout(Duration::from_mins(3), async { tokio::join!(begin, watch) })
        .await
        .expect("the handlers sync once nothing holds them back");
    all.extend(messages.try_iter());
    assert!(matches!(all.pop(), Some(Message::Start)), "the start message is last");

    // The state of the owner at that time.
    let mut scheduler =
        Scheduler::new(scheduler_options(&Config::default_with(&Catalog::in_tree()).unwrap())).unwrap();
    let clock = SystemClock::default();
    for message in all {
        let Message::Input(input) = message else { panic!("want only inputs") };
        scheduler.handle(clock.now(), *input);
    }
    assert_eq!(scheduler.queue_lengths(), [WAITING, 0, 0, 0, 0]);
    for _ in 0..NODES {
        scheduler.schedule_one(clock.now(), &mut NoCalls);
    }
    assert_eq!(scheduler.cache().nodes().len(), NODES);
    assert_eq!(scheduler.bindings_in_flight(), NODES, "each has found a node");
    informers.shut_down().await;
}

fn is_pod(input: &Input) -> bool {
    matches!(input, Input::QueuedPod(_))
}

//! An API server, informers, and a scheduler that takes their events when the test delivers them.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube_informers::testing::{EventLog, settle};
use kube_informers::{FanOut, HandlerOptions};
use parking_lot::Mutex;
use serde_json::{Value, json};
use supercargo_apiserver::faults::{Fault, Matcher, Rule};
use supercargo_apiserver::{ApiServer, Settings};
use supercargo_framework::{Now, Timestamp, Uid};
use supercargo_scheduler::{NoCalls, Place, Scheduler};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use tower::util::ServiceExt as _;

use super::super::{Informers, cache_handler, node_handler, queue_handler};
use supercargo_client::api::Api;
use supercargo_client::host::Host;
use supercargo_codec::{NodeKind, PodKind};
use supercargo_config::{Catalog, Config};
use supercargo_owner::binder::Binder;
use supercargo_owner::effects::EffectHandler;
use supercargo_owner::events::Writer;
use supercargo_owner::extender::HttpExtenders;
use supercargo_owner::options::scheduler_options;
use supercargo_owner::owner::{CarryOut as _, Mailbox, Message};
use supercargo_owner::preemptor::Preemptor;
use supercargo_owner::status_writer::StatusWriter;

const DEVICES: &str = "/apis/resource.k8s.io/";

/// The connection to the server. Records lists and watches; can refuse requests, and hide a group.
#[derive(Clone, Default)]
pub(super) struct Link {
    refuses: Arc<AtomicBool>,
    hides: Arc<AtomicBool>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Link {
    /// A client of the server over this connection.
    pub(super) fn client(&self, server: &ApiServer) -> Client {
        let (link, service) = (self.clone(), server.service());
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let (refused, service) = (link.pass(&request), service.clone());
            if link.hides.load(Ordering::SeqCst) && request.uri().path().starts_with(DEVICES) {
                *request.uri_mut() = http::Uri::from_static("/apis/no.such.group/v1");
            }
            async move {
                refused?;
                service.oneshot(request).await.map_err(BoxError::from)
            }
        });
        Client::new(service, "default")
    }

    fn pass(&self, request: &Request<Body>) -> io::Result<()> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        if request.method() == Method::GET {
            let resource = path.rsplit('/').next().unwrap_or_default();
            let verb = match (query.contains("watch=true"), query.contains("sendInitialEvents=true")) {
                (true, true) => "watch-list",
                (true, false) => "watch",
                (false, _) => "list",
            };
            self.requests.lock().push(format!("{verb} {resource}"));
        }
        Ok(())
    }

    /// Sets whether connections are refused.
    pub(super) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Sets whether the server seems not to serve resource.k8s.io.
    pub(super) fn hide_devices(&self, hides: bool) {
        self.hides.store(hides, Ordering::SeqCst);
    }

    /// Lists and watches since the last call, sorted.
    pub(super) fn take_requests(&self) -> Vec<String> {
        let mut requests = std::mem::take(&mut *self.requests.lock());
        requests.sort();
        requests
    }
}

/// The order in which the events of the two pod handlers arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// As in production: one registration; the cache gets each event before the queue.
    Together,
    /// Two registrations; all events of the cache arrive before all events of the queue.
    Cache,
    /// Two registrations, in the opposite order.
    Queue,
}

pub(super) struct TestCluster {
    pub(super) server: ApiServer,
    pub(super) link: Link,
    pub(super) scheduler: Scheduler,
    pub(super) pods: EventLog<PodKind>,
    pub(super) nodes: EventLog<NodeKind>,
    informers: Informers,
    /// In the order in which they are read.
    inboxes: Vec<Receiver<Message>>,
    effects: EffectHandler,
    began: Instant,
    writers: [JoinHandle<()>; 2],
}

impl TestCluster {
    /// A server with these nodes, each with its CPU in millicores, and a scheduler that knows them.
    pub(super) async fn new(nodes: &[(&str, u32)], first: First) -> Self {
        // Without garbage collection and simulation: only the test changes objects.
        let server = ApiServer::new(Settings { collects_garbage: false, ..Settings::default() });
        let link = Link::default();
        let api = Api::with_client(link.client(&server));
        let (mailbox, messages) = Mailbox::new();
        let (informers, inboxes) = match first {
            First::Together => {
                let informers =
                    Informers::new("in memory", link.client(&server), &mailbox, super::super::kinds(true))
                        .unwrap();
                (informers, vec![messages])
            }
            First::Cache | First::Queue => {
                let informers = Informers::without_handlers(
                    "in memory",
                    link.client(&server),
                    super::super::kinds(false),
                );
                let (of_queue, queued) = Mailbox::new();
                let (cache, queue) = (cache_handler(&mailbox), queue_handler(&of_queue));
                let named = HandlerOptions::named;
                informers.nodes.add_event_handler(node_handler(&mailbox), named("nodes")).unwrap();
                informers.pods.add_event_handler(cache, named("cache")).unwrap();
                informers.pods.add_event_handler(queue, named("queue")).unwrap();
                let inboxes =
                    if first == First::Cache { vec![messages, queued] } else { vec![queued, messages] };
                (informers, inboxes)
            }
        };
        let pods = EventLog::new(Arc::clone(informers.pods.kind()));
        let logs = FanOut::new().then(pods.clone());
        informers.pods.add_event_handler(logs, HandlerOptions::named("log")).unwrap();
        let log = EventLog::new(Arc::clone(informers.nodes.kind()));
        informers.nodes.add_event_handler(log.clone(), HandlerOptions::named("log")).unwrap();
        let (recorder, events) = Writer::new(api.clone(), Host::local());
        let (patches, statuses) = StatusWriter::new(api.clone());
        let writers = [tokio::spawn(events.run()), tokio::spawn(statuses.run())];
        let effects = EffectHandler {
            runtime: Handle::current(),
            binder: Binder::new(api.clone(), mailbox.clone(), HttpExtenders::default()),
            preemptor: Preemptor::new(api, mailbox),
            recorder,
            patches,
        };
        let scheduler =
            Scheduler::new(scheduler_options(&Config::default_with(&Catalog::in_tree()).unwrap())).unwrap();
        let began = Instant::now();
        let mut cluster =
            Self { server, link, scheduler, pods, nodes: log, informers, inboxes, effects, began, writers };
        for (name, cpu) in nodes {
            cluster.create_node(name, *cpu).await;
        }
        cluster.informers.start();
        assert!(cluster.informers.synced(&CancellationToken::new()).await.is_synced());
        // A watch that ends within a second without events would cause a list.
        sleep(Duration::from_secs(2)).await;
        cluster.deliver().await;
        cluster
    }

    /// Sends a request of another client, past the link.
    pub(super) async fn request(&self, method: Method, path: &str, body: &Value) -> Value {
        let content_type =
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(&method).uri(path).header("content-type", content_type);
        let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
        let answer = self.server.service().oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(status.is_success(), "{method} {path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    pub(super) async fn create_node(&self, name: &str, cpu: u32) {
        let amounts = json!({ "cpu": format!("{cpu}m"), "pods": "110" });
        let node = json!({ "metadata": { "name": name }, "status": { "allocatable": amounts, "capacity": amounts } });
        self.request(Method::POST, "/api/v1/nodes", &node).await;
    }

    /// Creates a pod that requests CPU in millicores, with or without a node.
    pub(super) async fn create(&self, name: &str, cpu: u32, node: Option<&str>) -> Uid {
        let requests = json!({ "requests": { "cpu": format!("{cpu}m") } });
        let pod = json!({
            "metadata": { "name": name },
            "spec": {
                "schedulerName": "supercargo",
                "nodeName": node,
                "containers": [{ "name": "main", "image": "none", "resources": requests }],
            },
        });
        let created = self.request(Method::POST, PODS, &pod).await;
        Uid::from(created["metadata"]["uid"].as_str().unwrap())
    }

    /// Binds a pod as another scheduler would.
    pub(super) async fn bind(&self, name: &str, node: &str) {
        let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": node } });
        self.request(Method::POST, &format!("{PODS}/{name}/binding"), &binding).await;
    }

    pub(super) async fn delete(&self, name: &str) {
        let now = json!({ "gracePeriodSeconds": 0 });
        self.request(Method::DELETE, &format!("{PODS}/{name}"), &now).await;
    }

    /// The node of a pod on the server.
    pub(super) async fn node_of(&self, name: &str) -> Option<String> {
        let pod = self.request(Method::GET, &format!("{PODS}/{name}"), &Value::Null).await;
        pod["spec"]["nodeName"].as_str().map(str::to_owned)
    }

    /// Delivers pending events to the scheduler.
    pub(super) async fn deliver(&mut self) {
        settle().await;
        let now = self.now();
        let mut inputs = Vec::new();
        for message in self.inboxes.iter().flat_map(Receiver::try_iter) {
            if let Message::Input(input) = message {
                inputs.push(input);
            }
        }
        for input in inputs {
            self.scheduler.handle(now, *input);
            self.carry_out();
        }
    }

    /// Schedules all pods that can be tried, and delivers the resulting events.
    pub(super) async fn schedule(&mut self) {
        while self.scheduler.has_work() {
            let now = self.now();
            self.scheduler.schedule_one(now, &mut NoCalls);
            self.carry_out();
        }
        self.deliver().await;
    }

    fn carry_out(&mut self) {
        for effect in self.scheduler.take_effects() {
            self.effects.carry_out(effect);
        }
    }

    fn now(&self) -> Now {
        let passed = self.began.elapsed();
        Now { wall: Timestamp::default().plus(passed), monotonic: passed }
    }

    /// Breaks the pod watch, so that later changes of pods are missed.
    pub(super) async fn break_watch(&self) {
        for verb in ["list", "watch"] {
            let pods = Matcher { verb: verb.to_owned(), resource: "pods".to_owned(), ..Matcher::default() };
            self.server.faults().add(Rule::new(pods, Fault::Reset));
        }
        self.server.cut_watches(Matcher { resource: "pods".to_owned(), ..Matcher::default() }, false);
        settle().await;
    }

    /// Restores the pod watch. Missed events are compacted, so that the informer must list.
    pub(super) async fn restore_watch(&mut self) {
        self.server.compact();
        self.server.faults().clear();
        sleep(Duration::from_mins(1)).await;
        self.deliver().await;
    }

    /// The scheduler's view of these pods, for comparison.
    pub(super) fn known(&mut self, uids: &[&Uid]) -> Known {
        assert_eq!(self.scheduler.cache().differences(), [""; 0]);
        let places = uids.iter().map(|uid| self.scheduler.place(uid)).collect();
        let node_of = |uid: &&Uid| self.scheduler.cache().node_of(uid).map(ToString::to_string);
        Known {
            places,
            nodes: uids.iter().map(node_of).collect(),
            cached: self.scheduler.cache().pod_counts(),
            queued: self.scheduler.queue_lengths(),
        }
    }

    /// The CPU requested on a node, in millicores.
    pub(super) fn requested(&self, node: &str) -> i64 {
        self.scheduler.cache().nodes().get(node).unwrap().requested().milli_cpu
    }

    pub(super) async fn stop(self) {
        assert_eq!(self.pods.faults(), [""; 0]);
        assert_eq!(self.nodes.faults(), [""; 0]);
        self.informers.shut_down().await;
        drop((self.scheduler, self.effects));
        for writer in self.writers {
            writer.await.unwrap();
        }
    }
}

pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";

/// The scheduler's view of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) places: Vec<Option<Place>>,
    pub(super) nodes: Vec<Option<String>>,
    /// Number of pods in the cache, and of those assumed.
    pub(super) cached: (usize, usize),
    pub(super) queued: [usize; 5],
}

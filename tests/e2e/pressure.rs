//! API servers that are busy, close connections or lose answers while pods are being bound.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::Value;
use supercargo::run::schedule;
use supercargo_apiserver::faults::{Fault, Matcher, Rule, RuleId};
use supercargo_apiserver::status::Status;
use supercargo_apiserver::{ApiServer, Endpoint, Listen};
use supercargo_config::{Catalog, Config};
use supercargo_controlplane::{ControlPlane, Options, User, assets_or_skip};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::support::{Bindings, Cluster, Supercargo, eventually, name_of, node, node_of, pods, say};

const TEST: &str = "pressure";
const WITHIN: Duration = Duration::from_secs(90);
const PODS: usize = 500;
const NODES: usize = 14;

fn nodes() -> Vec<Value> {
    (0..NODES).map(|index| node(&format!("node-{index}"), &[], &[("cpu", "4")])).collect()
}

/// An API server in memory on loopback, reached over HTTP/2 like any other, with supercargo.
struct Memory {
    runtime: Runtime,
    server: ApiServer,
    stop: CancellationToken,
    scheduling: Option<JoinHandle<anyhow::Result<()>>>,
    _endpoint: Endpoint,
}

impl Memory {
    /// Starts with these pods and with faults that the closure adds.
    fn start(count: usize, faults: impl FnOnce(&ApiServer)) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let server = ApiServer::default();
        let mut config: Config = Config::default_with(&Catalog::in_tree()).unwrap();
        config.leader_election.leader_elect = false;
        let stop = CancellationToken::new();
        let (endpoint, connection) = runtime.block_on(async {
            let endpoint = server.listen(Listen::default()).await.unwrap();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("kubeconfig");
            endpoint.write_kubeconfig(&path).unwrap();
            (endpoint, supercargo_client::connection::connect(Some(&path)).await.unwrap())
        });
        let (memory, stopped) = (server.clone(), stop.clone());
        let mut world = Self { runtime, server, stop, scheduling: None, _endpoint: endpoint };
        for object in nodes() {
            world.ask(Method::POST, "/api/v1/nodes", Some(&object));
        }
        for pod in pods("p", count) {
            world.ask(Method::POST, "/api/v1/namespaces/default/pods", Some(&pod));
        }
        faults(&memory);
        world.scheduling =
            Some(world.runtime.spawn(async move { schedule(&config, connection, None, &stopped).await }));
        world
    }

    fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let body = body.map_or_else(String::new, Value::to_string);
        let request =
            Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(body).unwrap();
        let (head, body) = self.runtime.block_on(async {
            let (head, body) = self.server.service().oneshot(request).await.unwrap().into_parts();
            (head, body.collect().await.unwrap().to_bytes())
        });
        assert!(head.status.is_success(), "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    fn items(&self, path: &str) -> Vec<Value> {
        self.ask(Method::GET, path, None)["items"].as_array().unwrap().clone()
    }

    /// Waits until every pod has a node and exactly one event Scheduled.
    fn await_all(&self, count: usize) {
        let bound = || {
            let pods = self.items("/api/v1/namespaces/default/pods");
            assert_eq!(pods.len(), count);
            pods.iter().filter(|pod| node_of(pod).is_some()).count()
        };
        eventually(
            "every pod is bound",
            WITHIN,
            || (bound() == count).then_some(()),
            || format!("{} are", bound()),
        );
        let received = || {
            let mut received = BTreeMap::<String, usize>::new();
            for event in self.items("/apis/events.k8s.io/v1/namespaces/default/events") {
                if event["reason"] == "Scheduled" {
                    *received.entry(event["regarding"]["name"].as_str().unwrap().to_owned()).or_default() +=
                        1;
                }
            }
            received
        };
        let all_told = || Some(received()).filter(|received| received.len() == count);
        let received = eventually("every binding has its event", WITHIN, all_told, || {
            format!("{} have", received().len())
        });
        assert!(received.values().all(|times| *times == 1), "{received:?}");
    }

    fn hits(&self, rule: RuleId, times: u64) -> u64 {
        times - self.server.faults().remaining(rule)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(scheduling) = self.scheduling.take() {
            let ended = self.runtime.block_on(scheduling);
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

fn bindings() -> Matcher {
    Matcher { verb: "create".into(), subresource: "binding".into(), ..Matcher::default() }
}

fn events() -> Matcher {
    Matcher { verb: "create".into(), resource: "events".into(), ..Matcher::default() }
}

#[test]
fn storm_of_429_is_backed_off_and_every_pod_is_bound() {
    const STORM: Duration = Duration::from_secs(5);
    let started = Instant::now();
    let mut rule = None;
    let busy = Fault::Answer(Status::too_many_requests("try again later", 1));
    let world = Memory::start(PODS, |server| {
        rule = Some(server.faults().add(Rule::new(bindings(), busy)));
    });
    let rule = rule.unwrap();
    let hits = || world.hits(rule, u64::MAX);
    eventually("the storm is felt", WITHIN, || (hits() > 0).then_some(()), || "not yet".to_owned());
    std::thread::sleep(STORM);
    let refused = hits();
    world.server.faults().remove(rule);
    say(TEST, started, &format!("{refused} bindings were refused in {} s", STORM.as_secs()));
    // Each retry waits a second: first whole windows, halved each time, and then one request at a
    // time.
    assert!(refused < PODS as u64 / 2, "{refused}");
    world.await_all(PODS);
    say(TEST, started, "every pod is bound");
}

#[test]
fn bindings_with_lost_or_late_answers_are_resolved() {
    let started = Instant::now();
    let world = Memory::start(300, |server| {
        let faults = server.faults();
        faults.add(Rule::new(bindings(), Fault::ResetAfter).times(40));
        faults.add(Rule::new(bindings(), Fault::Reset).skip(60).times(40));
        let late =
            Fault::AnswerAfter(Status::timeout("request did not complete within the allotted timeout"));
        faults.add(Rule::new(bindings(), late).skip(120).times(40));
    });
    world.await_all(300);
    say(TEST, started, "every pod is bound in spite of 120 lost answers");
}

#[test]
fn server_without_protobuf_gets_json() {
    let world = Memory::start(100, |server| {
        let json_only = || Fault::Answer(Status::unsupported_media_type(&["application/json"]));
        server.faults().add(Rule::new(bindings(), json_only()).times(1));
        server.faults().add(Rule::new(events(), json_only()).times(1));
    });
    world.await_all(100);
}

#[test]
fn protobuf_and_json_requests_are_equal() {
    let one = |is_json: bool| {
        let world = Memory::start(1, |server| {
            if is_json {
                let refused = || Fault::Answer(Status::unsupported_media_type(&["application/json"]));
                server.faults().add(Rule::new(bindings(), refused()).times(1));
                server.faults().add(Rule::new(events(), refused()).times(1));
            }
        });
        world.await_all(1);
        let mut event = world.items("/apis/events.k8s.io/v1/namespaces/default/events").remove(0);
        let time = event["eventTime"].take();
        assert_eq!(time.as_str().unwrap().len(), "2026-01-01T00:00:00.000000Z".len(), "{time}");
        // Fields that the server sets or that differ between runs.
        for field in ["name", "uid", "resourceVersion", "creationTimestamp"] {
            event["metadata"].as_object_mut().unwrap().remove(field);
        }
        for field in ["uid", "resourceVersion"] {
            assert!(!event["regarding"][field].as_str().unwrap().is_empty());
            event["regarding"].as_object_mut().unwrap().remove(field);
        }
        let note = event["note"].take();
        assert!(note.as_str().unwrap().starts_with("Successfully assigned default/"), "{note}");
        event
    };
    assert_eq!(one(false), one(true));
}

/// Starts a real control plane for one test.
fn plane(args: &[&str]) -> Option<ControlPlane> {
    assets_or_skip()?;
    let apiserver_args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let users = vec![User::new("supercargo")];
    let options = Options { audit: true, users, apiserver_args, ..Options::default() };
    let plane = ControlPlane::start(options).unwrap();
    Cluster::of(&plane).allow_supercargo("supercargo");
    Some(plane)
}

/// Binds every pod exactly once and returns the log.
fn bind_all(plane: &ControlPlane, started: Instant) -> String {
    let cluster = Cluster::of(plane);
    cluster.create_all(&nodes());
    cluster.create_all(&pods("p", PODS));
    say(TEST, started, "nodes and pods are there");
    let supercargo = Supercargo::start(&plane.kubeconfig("supercargo").unwrap(), None, &[]);
    supercargo.eventually("every pod is bound", WITHIN, || {
        let pods = cluster.pods("default");
        (pods.len() == PODS && pods.iter().all(|pod| node_of(pod).is_some())).then_some(())
    });
    say(TEST, started, "every pod is bound");
    supercargo.eventually("every binding has its event", WITHIN, || {
        let events = cluster.list("/apis/events.k8s.io/v1/namespaces/default/events");
        (events.iter().filter(|event| event["reason"] == "Scheduled").count() == PODS).then_some(())
    });
    Bindings::of_each_once(plane, &cluster.pods("default"), 0);
    for node in &nodes() {
        let pods = cluster.pods("default");
        let on_it = pods.iter().filter(|pod| node_of(pod) == Some(name_of(node))).count();
        assert!(on_it <= 40, "{} has {on_it} pods of a tenth of a CPU", name_of(node));
    }
    let log = supercargo.log();
    supercargo.stop();
    log
}

#[test]
fn closed_connections_lose_no_binding() {
    let started = Instant::now();
    // The highest probability: every fiftieth request is the last of its connection.
    let Some(plane) = plane(&["--goaway-chance=0.02"]) else { return };
    let log = bind_all(&plane, started);
    let lost: Vec<&str> = log
        .lines()
        .filter(|line| {
            ["running Bind plugin", "cannot read the pod", "cannot write event"]
                .iter()
                .any(|it| line.contains(it))
        })
        .collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn server_with_two_slots_gets_two_requests_at_a_time() {
    let started = Instant::now();
    let args = ["--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=2"];
    let Some(plane) = plane(&args) else { return };
    let log = bind_all(&plane, started);
    assert!(log.contains("API server is overloaded"), "{log}");
    let refused = plane.audit_log().unwrap();
    let too_many = u64::from(StatusCode::TOO_MANY_REQUESTS.as_u16());
    let refused = refused.iter().filter(|event| event["responseStatus"]["code"] == too_many).count();
    say(TEST, started, &format!("{refused} requests were refused"));
    assert!(!log.contains("running Bind plugin"), "{log}");
}

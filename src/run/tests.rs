//! Scheduler processes on an in-memory API server.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use supercargo_apiserver::ApiServer;
use supercargo_framework::plugin::{ExtensionPoints, FilterPlugin};
use supercargo_framework::{Context, CycleState, NodeInfo, Plugin, PodInfo, Status};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use tower::util::ServiceExt as _;

use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/supercargo";
/// Shorter than a lease, so that takeovers within this time did not wait for expiry.
const WITHIN: Duration = Duration::from_secs(10);

/// A scheduler process and its requests.
struct TestProcess {
    requests: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
    task: JoinHandle<Result<()>>,
}

impl TestProcess {
    fn start(server: &ApiServer, is_delayed: bool) -> Self {
        let mut config = Config::default_with(&Catalog::in_tree()).unwrap();
        assert!(config.leader_election.leader_elect && config.leader_election.lease_duration > WITHIN);
        config.delay_cache_until_active = is_delayed;
        let (requests, stop) = (Arc::<Mutex<Vec<String>>>::default(), CancellationToken::new());
        let (log, service, stopped) = (Arc::clone(&requests), server.service(), stop.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            log.lock().push(format!("{} {}", request.method(), request.uri()));
            let service = service.clone();
            async move { service.oneshot(request).await.map_err(BoxError::from) }
        });
        let clients = Clients::one("in memory", Client::new(service, "default"));
        let task = tokio::spawn(async move { Instance::new(&config, clients).run(&config, &stopped).await });
        Self { requests, stop, task }
    }

    /// Waits for a request with this beginning and this part.
    async fn has_requested(&self, beginning: &str, part: &str) {
        let matches = |request: &String| request.starts_with(beginning) && request.contains(part);
        eventually(part, async || self.requests.lock().iter().any(matches)).await;
    }

    fn requests_with(&self, part: &str) -> Vec<String> {
        self.requests.lock().iter().filter(|request| request.contains(part)).cloned().collect()
    }

    fn writes(&self) -> Vec<String> {
        self.requests.lock().iter().filter(|request| !request.starts_with("GET ")).cloned().collect()
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

async fn eventually(what: &str, probe: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !probe().await {
        assert!(began.elapsed() < WITHIN, "not within {WITHIN:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

async fn request(server: &ApiServer, method: Method, path: &str, body: &Value) -> Value {
    let content_type =
        if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
    let (head, body) = server.service().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    assert!(head.status.is_success(), "{path}: {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

async fn with_a_node() -> ApiServer {
    let server = ApiServer::default();
    let node = json!({ "metadata": { "name": "n" }, "status": { "allocatable": { "pods": "110" } } });
    request(&server, Method::POST, "/api/v1/nodes", &node).await;
    server
}

async fn create_pod(server: &ApiServer, name: &str) {
    let spec = json!({ "schedulerName": "supercargo", "containers": [{ "name": "main", "image": "none" }] });
    request(server, Method::POST, PODS, &json!({ "metadata": { "name": name }, "spec": spec })).await;
}

/// Creates a pod and waits until it is bound.
async fn have_bound(server: &ApiServer, name: &str) {
    create_pod(server, name).await;
    let path = format!("{PODS}/{name}");
    let is_bound =
        async || request(server, Method::GET, &path, &json!({})).await["spec"]["nodeName"].is_string();
    eventually(&format!("{name} is bound"), is_bound).await;
}

async fn holder(server: &ApiServer) -> String {
    let lease = request(server, Method::GET, LEASE, &json!({})).await;
    lease["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_watches_without_writes_and_takes_over_at_once() {
    let server = with_a_node().await;
    let first = TestProcess::start(&server, false);
    have_bound(&server, "a").await;
    let second = TestProcess::start(&server, false);
    second.has_requested("GET /api/v1/pods", "watch=true").await;
    second.has_requested("GET ", LEASE).await;
    have_bound(&server, "b").await;
    assert_eq!(second.writes(), [""; 0]);
    assert_eq!(first.requests_with("/binding").len(), 2);

    let before = holder(&server).await;
    first.stop().await;
    have_bound(&server, "c").await;
    assert_eq!(second.requests_with("/binding"), [format!("POST {PODS}/c/binding")]);
    assert_ne!(holder(&server).await, before);
    second.stop().await;
    assert_eq!(holder(&server).await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_with_delayed_cache_watches_only_the_lease() {
    let server = with_a_node().await;
    let first = TestProcess::start(&server, true);
    have_bound(&server, "a").await;
    let second = TestProcess::start(&server, true);
    second.has_requested("GET ", LEASE).await;
    second.has_requested("GET ", "fieldSelector=metadata.name").await;
    let others = second.requests.lock().iter().filter(|request| !request.contains("/leases")).count();
    assert_eq!(others, 0, "{:?}", second.requests.lock());
    first.stop().await;
    have_bound(&server, "b").await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_that_loses_the_lease_fails_and_binds_no_more() {
    let server = with_a_node().await;
    let scheduler = TestProcess::start(&server, false);
    have_bound(&server, "a").await;
    let another = json!({ "spec": { "holderIdentity": "another" } });
    request(&server, Method::PATCH, LEASE, &another).await;
    let error = tokio::time::timeout(WITHIN, scheduler.task).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "Leaderelection lost: another holds lease kube-system/supercargo now");
    assert_eq!(holder(&server).await, "another");
}

/// A filter that does not return for the pod `hangs` while the sender of `release` exists.
struct Hanging {
    filtered: std::sync::mpsc::Sender<Arc<str>>,
    release: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Plugin for Hanging {
    fn name(&self) -> &'static str {
        "Hanging"
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().filter(&self)
    }
}

impl FilterPlugin for Hanging {
    fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, _: &NodeInfo) -> Status {
        // The test may have ended.
        let _ = self.filtered.send(Arc::clone(&pod.name));
        if *pod.name == *"hangs" {
            let _ = self.release.lock().recv();
        }
        Status::success()
    }
}

/// Starts a process without election that filters with this plugin.
fn start_with(plugin: Hanging, server: &ApiServer) -> (JoinHandle<Result<()>>, CancellationToken) {
    let mut config = Config::default_with(&Catalog::in_tree()).unwrap();
    config.leader_election.leader_elect = false;
    let plugins = &mut config.profiles[0].plugins;
    plugins.filter.push("Hanging".to_owned());
    plugins.instances.insert("Hanging".to_owned(), Arc::new(plugin));
    let clients = Clients::one("in memory", Client::new(server.service(), "default"));
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    (tokio::spawn(async move { Instance::new(&config, clients).run(&config, &stopped).await }), stop)
}

#[tokio::test]
async fn a_pod_that_hung_a_process_waits_while_the_next_schedules() {
    let server = with_a_node().await;
    create_pod(&server, "hangs").await;
    let (filtered, pods) = std::sync::mpsc::channel();
    let (release, blocked) = std::sync::mpsc::channel();
    let plugin = Hanging { filtered: filtered.clone(), release: Mutex::new(blocked) };
    let (first, _) = start_with(plugin, &server);
    eventually("the pod is tried", async || pods.try_recv().is_ok()).await;
    tokio::time::pause();
    while !first.is_finished() {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    tokio::time::resume();
    let error = first.await.unwrap().unwrap_err().to_string();
    assert!(error.ends_with(" s while scheduling pod default/hangs"), "{error}");
    drop(release);
    let pod = request(&server, Method::GET, &format!("{PODS}/hangs"), &json!({})).await;
    assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulerStalled", "{pod}");

    while pods.try_recv().is_ok() {}
    let plugin = Hanging { filtered, release: Mutex::new(std::sync::mpsc::channel().1) };
    let (second, stop) = start_with(plugin, &server);
    have_bound(&server, "a").await;
    have_bound(&server, "b").await;
    stop.cancel();
    second.await.unwrap().unwrap();
    let tried: Vec<Arc<str>> = pods.try_iter().collect();
    assert!(!tried.contains(&"hangs".into()) && tried.contains(&"b".into()), "{tried:?}");
}

#[tokio::test]
async fn failed_resolves_for_a_panic_but_not_for_a_normal_end() {
    let mut task = tokio::spawn(async { panic!("on purpose") }).fuse();
    let failure = format!("{:#}", failed("event writer", &mut task).await);
    assert!(failure.starts_with("event writer failed: "), "{failure}");
    assert!(failure.contains("on purpose"), "{failure}");
    let mut task = tokio::spawn(async {}).fuse();
    tokio::task::yield_now().await;
    assert!(failed("server", &mut task).now_or_never().is_none());
    assert!(failed("server", &mut task).now_or_never().is_none(), "can be polled again");
}

#[test]
fn server_address_in_logs_has_no_password() {
    for (url, expected) in [
        ("https://admin:hunter2@10.0.0.1:6443/", "https://10.0.0.1:6443"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ] {
        assert_eq!(without_credentials(&url.parse().unwrap()), expected);
    }
}

//! Connections that are silently dead or go away, between supercargo and an API server in memory.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use supercargo::run::schedule;
use supercargo_apiserver::faults::{Fault, Matcher, Rule};
use supercargo_apiserver::{ApiServer, Endpoint, Listen};
use supercargo_client::connection::Connection;
use supercargo_client::testing::Proxy;
use supercargo_config::{Catalog, Config};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::support::{node, node_of, pods};

const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/supercargo";
/// How soon a pod is bound that is created while every connection is dead.
const WITHIN: Duration = Duration::from_secs(30);

/// Sends a request to the server, not through the proxy.
pub(crate) async fn ask(server: &ApiServer, method: Method, path: &str, body: &Value) -> Value {
    let request =
        Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let answer = server.service().oneshot(request.body(Full::new(body)).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    assert!(head.status.is_success(), "{path}: {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

/// Creates a pod, waits until it has a node, and returns how long that took.
async fn bind(server: &ApiServer, prefix: &str) -> Duration {
    bind_while(server, prefix, || {}).await
}

/// The same, and calls `disturb` again and again meanwhile, less and less often: a slow machine,
/// too, gets a request through in between.
async fn bind_while(server: &ApiServer, prefix: &str, disturb: impl Fn()) -> Duration {
    let pod = pods(prefix, 1).remove(0);
    let began = Instant::now();
    let mut pause = Duration::from_millis(20);
    ask(server, Method::POST, PODS, &pod).await;
    let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
    loop {
        if node_of(&ask(server, Method::GET, &path, &Value::Null).await).is_some() {
            return began.elapsed();
        }
        assert!(began.elapsed() < WITHIN * 2, "{path} is not bound");
        disturb();
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

/// A scheduler whose connections go to this address.
struct Scheduling {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Scheduling {
    /// Starts it, with a node for its pods.
    async fn start(server: &ApiServer, endpoint: &Endpoint, address: &str) -> Self {
        ask(server, Method::POST, "/api/v1/nodes", &node("n", &[], &[("cpu", "4")])).await;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        endpoint.write_kubeconfig(&path).unwrap();
        let through: Uri = format!("https://{address}").parse().unwrap();
        let connection = Connection::open(Some(&through), Some(&path)).await.unwrap();
        let config = Config::default_with(&Catalog::in_tree()).unwrap();
        assert!(config.leader_election.leader_elect && config.leader_election.lease_duration < WITHIN);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move { schedule(&config, connection, None, &stopped).await });
        Self { stop, task }
    }

    /// Stops it. It still holds the lease that it acquired first.
    async fn end(self, server: &ApiServer) {
        assert!(!self.task.is_finished(), "{:?}", self.task.await);
        let lease = ask(server, Method::GET, LEASE, &Value::Null).await;
        assert_eq!(lease["spec"]["leaseTransitions"], json!(0));
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_connections_cost_neither_the_lead_nor_a_pod() {
    let server = ApiServer::default();
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let url: Uri = endpoint.url().parse().unwrap();
    let proxy = Proxy::to(url.authority().unwrap().as_str().parse().unwrap()).await.unwrap();
    let scheduling = Scheduling::start(&server, &endpoint, &proxy.address().to_string()).await;
    bind(&server, "before").await;

    proxy.freeze();
    let frozen = Instant::now();
    let took = bind(&server, "after").await;
    assert!(took <= WITHIN, "{took:?}");
    // The lease would have been lost by now.
    tokio::time::sleep(WITHIN.saturating_sub(frozen.elapsed())).await;
    scheduling.end(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_go_away_cost_no_request() {
    const ROUNDS: usize = 20;
    let server = ApiServer::default();
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let url: Uri = endpoint.url().parse().unwrap();
    let scheduling = Scheduling::start(&server, &endpoint, url.authority().unwrap().as_str()).await;
    bind(&server, "before").await;

    // Requests are under way whenever connections go away.
    let binds = Matcher { verb: "create".into(), subresource: "binding".into(), ..Matcher::default() };
    let slowly = server.faults().add(Rule::new(binds, Fault::Delay(Duration::from_millis(20))).times(1000));
    let before = endpoint.connections();
    for round in 0..ROUNDS {
        bind_while(&server, &format!("round-{round}"), || endpoint.go_away()).await;
    }
    assert_eq!(1000 - server.faults().remaining(slowly), ROUNDS as u64, "each pod is bound by one request");
    assert!(endpoint.connections() - before >= ROUNDS, "{} connections", endpoint.connections());
    scheduling.end(&server).await;
}

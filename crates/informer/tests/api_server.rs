//! Clients, factories and listers on an API server in memory, through the public interface only.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

mod clients;
mod discovered;
mod factory;
mod kinds;

use std::sync::Arc;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use kube_informers::testing::settle;
use kube_informers::{Deleted, EventHandler, HandlerOptions, Kind, SharedInformer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use supercargo_apiserver::ApiServer;
use tower::Service as _;

/// A server in this process, with a log of requests.
struct Cluster {
    server: ApiServer,
    client: Client,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    fn new() -> Self {
        let server = ApiServer::default();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (service, log) = (server.service(), Arc::clone(&requests));
        let recorded = tower::service_fn(move |request: Request<Body>| {
            if request.method() == http::Method::GET {
                log.lock().push(request.uri().to_string());
            }
            service.clone().call(request)
        });
        Self { server, client: Client::new(recorded, "default"), requests }
    }

    /// Loads YAML.
    fn load(&self, yaml: &str) {
        self.server.load(yaml).unwrap();
    }

    /// Sends a request that must succeed.
    async fn send(&self, method: &str, path: &str, body: &Value) {
        let content_type =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
        let answer: Response<Body> = self.client.send(request).await.unwrap();
        assert!(answer.status().is_success(), "{method} {path}: {}", answer.status());
        settle().await;
    }

    /// The lists, and the watches with initial events, without their timeouts, in alphabetical
    /// order.
    fn beginnings(&self) -> Vec<String> {
        let requests = self.requests.lock();
        let begins = |uri: &&String| !uri.contains("watch=true") || uri.contains("sendInitialEvents=true");
        let mut beginnings: Vec<String> = requests.iter().filter(begins).map(|uri| timeless(uri)).collect();
        beginnings.sort();
        beginnings
    }

    /// The watches, likewise.
    fn watches(&self) -> Vec<String> {
        let requests = self.requests.lock();
        let mut watches: Vec<String> =
            requests.iter().filter(|uri| uri.contains("watch=true")).map(|uri| timeless(uri)).collect();
        watches.sort();
        watches
    }
}

fn timeless(uri: &str) -> String {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("timeoutSeconds=")).collect();
    format!("{path}?{}", kept.join("&"))
}

fn pod(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// Logs the changes of objects.
struct Log<K>(Arc<K>, Arc<Mutex<Vec<String>>>);

impl<K: Kind> EventHandler<K::Object> for Log<K> {
    fn on_add(&mut self, object: &Arc<K::Object>, is_in_initial_list: bool) {
        let initial = if is_in_initial_list { " initially" } else { "" };
        self.1.lock().push(format!("add {}{initial}", self.0.key(object)));
    }

    fn on_update(&mut self, _: &Arc<K::Object>, new: &Arc<K::Object>) {
        self.1.lock().push(format!("update {}", self.0.key(new)));
    }

    fn on_delete(&mut self, deleted: &Deleted<K::Object>) {
        self.1.lock().push(format!("delete {}", deleted.key(&*self.0)));
    }
}

/// Logs the changes that an informer delivers.
fn log_of<K: Kind>(informer: &SharedInformer<K>) -> Arc<Mutex<Vec<String>>> {
    let log = Arc::default();
    let handler = Log(Arc::clone(informer.kind()), Arc::clone(&log));
    informer.add_event_handler(handler, HandlerOptions::default()).unwrap();
    log
}

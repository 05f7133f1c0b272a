//! A client of a test's control plane.

use std::path::Path;
use std::time::Duration;

use crate::support::access::{ACCESS, Access, ELECTION_ACCESS, REVIEWS};
use futures::StreamExt as _;
use http::Request;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, Options, User, assets_or_skip};
use tokio::runtime::Runtime;

use super::{Sightings, eventually, name_of, namespace, node_of};

/// The maximum of concurrent requests that create objects.
const CONCURRENCY: usize = 24;

/// A control plane for one test, with an audit log, or `None` if none is available. It has two more
/// users: `supercargo` with the permissions of `ACCESS` and `ELECTION_ACCESS`, and `powerless`
/// without any.
pub(crate) fn own_plane() -> Option<ControlPlane> {
    assets_or_skip()?;
    let users = vec![User::new("supercargo"), User::new("powerless")];
    let plane = ControlPlane::start(Options { audit: true, users, ..Options::default() }).unwrap();
    Cluster::of(&plane).allow_supercargo("supercargo");
    Some(plane)
}

/// Creates and reads objects as `admin`.
pub(crate) struct Cluster {
    runtime: Runtime,
    client: Client,
}

/// The status code and message of a rejected request.
pub(crate) type Refusal = (u16, String);

impl Cluster {
    pub(crate) fn of(plane: &ControlPlane) -> Self {
        Self::at(&plane.kubeconfig("admin").unwrap())
    }

    /// The cluster of a kubeconfig, with its user.
    pub(crate) fn at(kubeconfig: &Path) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let file = Kubeconfig::read_from(kubeconfig).unwrap();
        let client = runtime.block_on(async {
            let mut config =
                kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
            config.default_retry = false;
            Client::try_from(config).unwrap()
        });
        Self { runtime, client }
    }

    /// Its client, for tasks on its runtime.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The runtime of its client's tasks.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn try_create(&self, object: &Value) -> Result<Value, Refusal> {
        self.request("POST", &collection(object), Some(object))
    }

    /// Sends any request. A `PATCH` is a merge patch.
    pub(crate) fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Refusal> {
        self.runtime.block_on(self.send(method, path, body))
    }

    pub(crate) fn create(&self, object: &Value) -> Value {
        self.try_create(object).unwrap()
    }

    /// Creates many objects concurrently.
    pub(crate) fn create_all(&self, objects: &[Value]) {
        let creations = objects.iter().map(|object| async move {
            self.send("POST", &collection(object), Some(object)).await.unwrap();
        });
        let creations = futures::stream::iter(creations).buffer_unordered(CONCURRENCY);
        self.runtime.block_on(creations.collect::<Vec<()>>());
    }

    /// Grants these rules to a user.
    pub(crate) fn allow(&self, user: &str, role: &str, rules: &Value) {
        const GROUP: &str = "rbac.authorization.k8s.io";
        let version = format!("{GROUP}/v1");
        let metadata = json!({ "name": format!("{user}-{role}") });
        self.create(
            &json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules }),
        );
        self.create(&json!({
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": user }],
            "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": metadata["name"] },
        }));
    }

    /// Grants `ACCESS`, `ELECTION_ACCESS` and `REVIEWS` to a user.
    pub(crate) fn allow_supercargo(&self, user: &str) {
        let rule = |access: &Access| json!({ "apiGroups": [access.group], "resources": [access.resource], "verbs": [access.verb] });
        self.allow(
            user,
            "supercargo",
            &ACCESS.iter().chain(ELECTION_ACCESS).chain(REVIEWS).map(rule).collect(),
        );
    }

    /// Watches pods being bound from now on.
    pub(crate) fn watch_pods(&self) -> Sightings {
        Sightings::begin(&self.runtime, self.client.clone())
    }

    /// Creates a namespace.
    pub(crate) fn namespace(&self, name: &str) {
        self.create(&namespace(name));
    }

    /// The object at a path, if it exists.
    pub(crate) fn find(&self, path: &str) -> Option<Value> {
        match self.runtime.block_on(self.send("GET", path, None)) {
            Ok(object) => Some(object),
            Err((404, _)) => None,
            Err(refusal) => panic!("GET {path}: {refusal:?}"),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.find(path).unwrap_or_else(|| panic!("there is no {path}"))
    }

    /// The items of a list.
    pub(crate) fn list(&self, path: &str) -> Vec<Value> {
        match self.get(path)["items"].take() {
            Value::Array(items) => items,
            other => panic!("GET {path}: {other}"),
        }
    }

    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Value {
        self.get(&pod_path(namespace, name))
    }

    pub(crate) fn pods(&self, namespace: &str) -> Vec<Value> {
        self.list(&format!("/api/v1/namespaces/{namespace}/pods"))
    }

    /// The events (events.k8s.io/v1) about a pod.
    pub(crate) fn events(&self, namespace: &str, pod: &str) -> Vec<Value> {
        let events = self.list(&format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"));
        let about = |event: &Value| event["regarding"]["name"] == pod;
        events.into_iter().filter(about).collect()
    }

    /// Merges a patch into the object at a path.
    pub(crate) fn patch(&self, path: &str, change: &Value) {
        self.runtime.block_on(self.send("PATCH", path, Some(change))).unwrap();
    }

    /// Merges a patch into a pod.
    pub(crate) fn patch_pod(&self, namespace: &str, name: &str, change: &Value) {
        self.patch(&pod_path(namespace, name), change);
    }

    /// Deletes a pod gracefully. It stays until a kubelet or its finalizer releases it.
    pub(crate) fn ask_to_end(&self, namespace: &str, name: &str) {
        let path = pod_path(namespace, name);
        self.runtime.block_on(self.send("DELETE", &path, None)).unwrap();
    }

    /// Deletes a pod without a grace period.
    pub(crate) fn delete_pod(&self, namespace: &str, name: &str) {
        let now = json!({ "gracePeriodSeconds": 0 });
        let path = pod_path(namespace, name);
        self.runtime.block_on(self.send("DELETE", &path, Some(&now))).unwrap();
    }

    /// Waits until the pod is bound and returns its node.
    pub(crate) fn bound_node(&self, namespace: &str, name: &str) -> String {
        let probe = || node_of(&self.pod(namespace, name)).map(str::to_owned);
        let state = || self.pod(namespace, name).to_string();
        eventually(&format!("pod {namespace}/{name} is bound"), PATIENCE, probe, state)
    }

    /// Waits for this reason of the pod's PodScheduled condition and returns the condition.
    pub(crate) fn condition(&self, namespace: &str, name: &str, reason: &str) -> Value {
        let probe = || {
            let mut pod = self.pod(namespace, name);
            let conditions = pod["status"]["conditions"].as_array_mut()?;
            let found = conditions.iter_mut().find(|c| c["type"] == "PodScheduled" && c["reason"] == reason);
            found.map(Value::take)
        };
        let what = format!("pod {namespace}/{name} has the condition {reason}");
        eventually(&what, PATIENCE, probe, || self.pod(namespace, name)["status"].to_string())
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Refusal> {
        let content_type =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        send(&self.client, method, path, content_type, body).await
    }
}

/// Sends one request.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    content_type: &str,
    body: Option<&Value>,
) -> Result<Value, Refusal> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(body.map_or_else(Vec::new, |body| body.to_string().into_bytes()))
        .unwrap();
    client.request(request).await.map_err(|error| match error {
        kube::Error::Api(status) => (status.code, status.message),
        error => (0, format!("{method} {path}: {error}")),
    })
}

/// The time limit for one condition on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

fn pod_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// The path of the collection of an object.
fn collection(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    let resource = match kind {
        kind if kind.ends_with("Class") => format!("{}es", kind.to_lowercase()),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{resource}"),
        None if version.is_empty() => panic!("what is {}?", name_of(object)),
        None => format!("{root}/{resource}"),
    }
}

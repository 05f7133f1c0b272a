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

/// So many requests at most are under way when many objects are created.
const CONCURRENCY: usize = 24;

/// A control plane of the test's own, with an audit log, or `None` where there is none. It has two more users:
/// `supercargo`, who may do what `ACCESS` and `ELECTION_ACCESS` say and nothing else, and `powerless`, who may do nothing.
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

/// What the server refused, and with which code.
pub(crate) type Refusal = (u16, String);

impl Cluster {
    pub(crate) fn of(plane: &ControlPlane) -> Self {
        Self::at(&plane.kubeconfig("admin").unwrap())
    }

    /// The cluster of a kubeconfig, as whoever that is.
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

    /// Where its client's tasks run.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn try_create(&self, object: &Value) -> Result<Value, Refusal> {
        self.request("POST", &collection(object), Some(object))
    }

    /// Any request; a change (`PATCH`) is merged.
    pub(crate) fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Refusal> {
        self.runtime.block_on(self.send(method, path, body))
    }

    pub(crate) fn create(&self, object: &Value) -> Value {
        self.try_create(object).unwrap()
    }

    /// Creates many objects, several at once.
    pub(crate) fn create_all(&self, objects: &[Value]) {
        let creations = objects.iter().map(|object| async move {
            self.send("POST", &collection(object), Some(object)).await.unwrap();
        });
        let creations = futures::stream::iter(creations).buffer_unordered(CONCURRENCY);
        self.runtime.block_on(creations.collect::<Vec<()>>());
    }

    /// Lets a user do what these rules say.
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

    /// Lets a user do what `ACCESS`, `ELECTION_ACCESS` and `REVIEWS` say.
    pub(crate) fn allow_supercargo(&self, user: &str) {
        let rule = |access: &Access| json!({ "apiGroups": [access.group], "resources": [access.resource], "verbs": [access.verb] });
        self.allow(
            user,
            "supercargo",
            &ACCESS.iter().chain(ELECTION_ACCESS).chain(REVIEWS).map(rule).collect(),
        );
    }

    /// Sees pods being bound, from now on.
    pub(crate) fn watch_pods(&self) -> Sightings {
        Sightings::begin(&self.runtime, self.client.clone())
    }

    /// Makes a namespace.
    pub(crate) fn namespace(&self, name: &str) {
        self.create(&namespace(name));
    }

    /// What is at a path, if anything.
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

    /// Merges a change into the object at a path.
    pub(crate) fn patch(&self, path: &str, change: &Value) {
        self.runtime.block_on(self.send("PATCH", path, Some(change))).unwrap();
    }

    /// Merges a change into a pod.
    pub(crate) fn patch_pod(&self, namespace: &str, name: &str, change: &Value) {
        self.patch(&pod_path(namespace, name), change);
    }

    /// Asks for a pod's end; until a kubelet agrees or a finalizer is gone, it stays.
    pub(crate) fn ask_to_end(&self, namespace: &str, name: &str) {
        let path = pod_path(namespace, name);
        self.runtime.block_on(self.send("DELETE", &path, None)).unwrap();
    }

    /// Deletes a pod that no kubelet has to let go.
    pub(crate) fn delete_pod(&self, namespace: &str, name: &str) {
        let now = json!({ "gracePeriodSeconds": 0 });
        let path = pod_path(namespace, name);
        self.runtime.block_on(self.send("DELETE", &path, Some(&now))).unwrap();
    }

    /// The node that the pod is bound to, once it is.
    pub(crate) fn bound_node(&self, namespace: &str, name: &str) -> String {
        let probe = || node_of(&self.pod(namespace, name)).map(str::to_owned);
        let state = || self.pod(namespace, name).to_string();
        eventually(&format!("pod {namespace}/{name} is bound"), PATIENCE, probe, state)
    }

    /// The pod's PodScheduled condition, once its reason is this one.
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

/// How long a test waits for one thing on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

fn pod_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// Where objects of a kind are created.
fn collection(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    let resource = match kind {
        "PriorityClass" => "priorityclasses".to_owned(),
        "StorageClass" => "storageclasses".to_owned(),
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

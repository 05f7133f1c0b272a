//! A control plane with the base applied.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, Method, Options, assets_or_skip};

use super::manifests::{self, collection, text};

/// Longer than any condition here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);

/// The control plane of this suite, or `None` if none is available. It is not the shared one,
/// because its API server does not stream lists, so that the permission to list is needed.
pub(super) fn cluster_or_skip() -> Option<&'static ControlPlane> {
    static CLUSTER: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
    assets_or_skip()?;
    match CLUSTER.get_or_init(start) {
        Ok(plane) => Some(plane),
        Err(error) => panic!("the control plane does not start: {error}"),
    }
}

/// Starts another control plane with the base applied.
pub(super) fn start() -> Result<ControlPlane, String> {
    start_with(&[], Vec::new())
}

/// The same with further feature gates and flags of its API server.
pub(super) fn start_with(gates: &[&str], apiserver_args: Vec<String>) -> Result<ControlPlane, String> {
    let feature_gates = gates.iter().chain(&["WatchList=false"]).map(|gate| (*gate).to_owned()).collect();
    let options = Options { audit: true, feature_gates, apiserver_args, ..Options::default() };
    let plane = ControlPlane::start(options).map_err(|error| format!("{error:#}"))?;
    for object in manifests::base() {
        apply(&plane, &object);
    }
    open_quota(&plane);
    Ok(plane)
}

/// Creates an object. Fields that the API does not know are errors.
pub(super) fn apply(plane: &ControlPlane, object: &Value) {
    let path = format!("{}?fieldValidation=Strict", collection(object));
    post(plane, &path, object);
}

/// Sets the status of the quota in place of its controller. A quota without a status admits no pod.
fn open_quota(plane: &ControlPlane) {
    let quota = manifests::object("ResourceQuota");
    let path = format!("{}/{}/status", collection(&quota), text(&quota["metadata"]["name"]));
    let status = json!({"status": {"hard": quota["spec"]["hard"], "used": {"pods": "0"}}});
    send(plane, Method::Patch, &path, Some(&status));
}

/// Sends a request as `admin` that must succeed.
pub(super) fn send(plane: &ControlPlane, method: Method, path: &str, body: Option<&Value>) -> Value {
    let response = plane.request(method, path, body).unwrap();
    response.json().unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

/// Creates something as `admin`.
pub(super) fn post(plane: &ControlPlane, path: &str, body: &Value) -> Value {
    send(plane, Method::Post, path, Some(body))
}

/// Reads something as `admin`.
pub(super) fn get(plane: &ControlPlane, path: &str) -> Value {
    send(plane, Method::Get, path, None)
}

/// Deletes something as `admin`.
pub(super) fn delete(plane: &ControlPlane, path: &str) {
    send(plane, Method::Delete, path, None);
}

/// Creates a namespace.
pub(super) fn create_namespace(plane: &ControlPlane, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    post(plane, "/api/v1/namespaces", &namespace);
}

/// A kubeconfig with a token of the service account.
pub(super) fn kubeconfig_of(plane: &ControlPlane, account: &Value) -> Value {
    let name = text(&account["metadata"]["name"]);
    let path = format!("{}/{name}/token", collection(account));
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    });
    let token = post(plane, &path, &request)["status"]["token"].clone();
    let admin = plane.kubeconfig("admin").unwrap();
    let mut kubeconfig = manifests::parse(&admin);
    kubeconfig["users"][0]["user"] = json!({ "token": token });
    kubeconfig
}

/// The user name of the service account.
pub(super) fn user_name(account: &Value) -> String {
    let (namespace, name) = (&account["metadata"]["namespace"], &account["metadata"]["name"]);
    format!("system:serviceaccount:{}:{}", text(namespace), text(name))
}

/// Waits until `look` returns a value.
pub(super) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    within_patience(|| {
        found = look();
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("not within {} s: {what}", PATIENCE.as_secs()))
}

/// Waits until `check` succeeds or the time limit passes. The caller reports the failure.
pub(super) fn within_patience(mut check: impl FnMut() -> bool) {
    let started = Instant::now();
    while !check() && started.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(50));
    }
}

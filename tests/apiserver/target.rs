//! The servers to compare.

use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use supercargo_apiserver::{ApiServer, Endpoint, Listen, Settings};
use supercargo_controlplane::{ControlPlane, Options, assets_or_skip};
use supercargo_framework::features::Feature;
use tokio::runtime::{Builder, Runtime};

/// The timeout of a response on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// The runtime of all clients in these tests. They outlive the test that creates them, so the
/// runtime must, too.
pub(super) static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

/// A server, independent of its implementation.
pub(super) struct Target {
    /// The name in reports.
    pub(super) name: &'static str,
    /// The kubeconfig of an administrator.
    pub(super) kubeconfig: PathBuf,
    pub(super) client: Client,
}

/// A complete response.
pub(super) type Answer = Response<Vec<u8>>;

impl Target {
    /// The server of a kubeconfig file.
    pub(super) fn new(name: &'static str, kubeconfig: &Path) -> Self {
        let file = Kubeconfig::read_from(kubeconfig).unwrap();
        let client = RUNTIME.block_on(async {
            let mut config =
                kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
            config.default_retry = false;
            Client::try_from(config).unwrap()
        });
        Self { name, kubeconfig: kubeconfig.to_owned(), client }
    }

    /// Sends a request and reads the complete response.
    pub(super) async fn send(&self, request: Request<Vec<u8>>) -> Answer {
        let what = format!("{}: {} {}", self.name, request.method(), request.uri());
        let answer = async {
            let answer = self.client.send(request.map(Body::from)).await;
            let answer = answer.unwrap_or_else(|error| panic!("{what}: {error}"));
            let (head, body) = answer.into_parts();
            let body = body.collect().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            Response::from_parts(head, body.to_bytes().to_vec())
        };
        tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("{what}: timed out"))
    }

    /// Sends JSON and returns the status code and the JSON of the response.
    pub(super) async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let content_type = match (method, body) {
            ("PATCH", Some(Value::Array(_))) => "application/json-patch+json",
            ("PATCH", _) => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let answer = self.send(request.body(body).unwrap()).await;
        (answer.status().as_u16(), serde_json::from_slice(answer.body()).unwrap_or_default())
    }
}

/// The servers to compare, the real one first.
pub(super) struct Pair {
    pub(super) real: Target,
    pub(super) ours: Target,
    // Dropping either ends a server.
    _plane: ControlPlane,
    _endpoint: Endpoint,
}

/// How to start the real control plane.
fn options(pod_groups: bool) -> Options {
    if !pod_groups {
        return Options::default();
    }
    let config = "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true";
    Options {
        feature_gates: Feature::OF_GROUPS.map(|gate| format!("{}=true", gate.name())).to_vec(),
        apiserver_args: vec![config.to_owned()],
        ..Options::default()
    }
}

/// The real control plane and the server in memory, with or without the kinds of gang scheduling.
/// Only these tests use them, because some change cluster-wide state. `None` if there is no real
/// one.
pub(super) fn pair(pod_groups: bool) -> Option<&'static Pair> {
    static PAIRS: [OnceLock<Pair>; 2] = [OnceLock::new(), OnceLock::new()];
    assets_or_skip()?;
    Some(PAIRS[usize::from(pod_groups)].get_or_init(|| {
        let plane = ControlPlane::start(options(pod_groups)).unwrap();
        let real = Target::new("real", &plane.kubeconfig("admin").unwrap());
        // Like the real one, it has no controller manager, and records managed fields.
        let settings =
            Settings { collects_garbage: false, managed_fields: true, pod_groups, ..Settings::default() };
        let endpoint = listen(&ApiServer::new(settings));
        // The control plane's folder is removed when this process ends.
        let kubeconfig = plane.dir().join("in-memory.kubeconfig");
        endpoint.write_kubeconfig(&kubeconfig).unwrap();
        Pair { real, ours: Target::new("in-memory", &kubeconfig), _plane: plane, _endpoint: endpoint }
    }))
}

/// Lets a server listen.
pub(super) fn listen(server: &ApiServer) -> Endpoint {
    RUNTIME.block_on(server.listen(Listen::default())).unwrap()
}

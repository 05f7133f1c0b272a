//! The API server in memory, with a log of requests and responses.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use kube_informers::{InformerOptions, Kind, KubeListWatch, SharedInformer};
use parking_lot::Mutex;
use serde_json::json;
use supercargo_apiserver::{ApiServer, Settings};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;

pub(crate) struct Server {
    pub(crate) api: ApiServer,
    /// The client for writes: plain JSON, not logged.
    pub(crate) admin: Client,
    /// The client under test.
    pub(crate) client: Client,
    requests: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn new() -> Self {
        // With managed fields, which covers every field of the metadata.
        let server = ApiServer::new(Settings { managed_fields: true, ..Settings::default() });
        let answers = Arc::<Mutex<Vec<String>>>::default();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (uris, log, service) = (Arc::clone(&requests), Arc::clone(&answers), server.service());
        let recorder = tower::service_fn(move |request: Request<Body>| {
            uris.lock().push(request.uri().to_string());
            let (log, service) = (Arc::clone(&log), service.clone());
            async move {
                let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                let answer = service.oneshot(request).await?;
                let content_type = answer.headers()[CONTENT_TYPE].to_str().unwrap();
                let verb = if watch { "watch" } else { "list" };
                log.lock().push(format!("{verb} {} {content_type}", answer.status().as_u16()));
                Ok::<_, supercargo_apiserver::Disconnect>(answer)
            }
        });
        let client = Client::new(recorder, "default");
        Self { admin: Client::new(server.service(), "default"), client, api: server, requests, answers }
    }

    /// The requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock())
    }

    /// The verb, status and content type of each response since the last call.
    pub(crate) fn answers(&self) -> Vec<String> {
        std::mem::take(&mut self.answers.lock())
    }

    pub(crate) fn list_watch<K: Kind>(&self, kind: K) -> KubeListWatch<K> {
        KubeListWatch::new(self.client.clone(), Arc::new(kind))
    }

    /// An informer that has synced.
    pub(crate) async fn informer<K: Kind>(&self, kind: K) -> (Arc<SharedInformer<K>>, DropGuard) {
        let kind = Arc::new(kind);
        let source = KubeListWatch::new(self.client.clone(), Arc::clone(&kind));
        let informer = SharedInformer::new(kind, source, InformerOptions::default());
        let stop = CancellationToken::new();
        tokio::spawn(Arc::clone(&informer).run(stop.clone()));
        tokio::time::timeout(Duration::from_mins(5), informer.synced()).await.expect("synced");
        (informer, stop.drop_guard())
    }

    /// Creates a node, pods and a config map, with every kind of metadata.
    pub(crate) async fn furnish(&self) {
        let node = json!({"metadata": {"name": "n1", "labels": {"zone": "a"}}, "status": {"capacity": {"cpu": "4"}}});
        create::<Node>(&Api::all(self.admin.clone()), node).await;
        let pods = Api::<Pod>::default_namespaced(self.admin.clone());
        for (name, node) in [("a", Some("n1")), ("b", None), ("c", None)] {
            let mut pod = json!({
                "metadata": {
                    "name": name, "labels": {"app": name, "empty": ""}, "annotations": {"a/b": "ä\n\"{"},
                    "finalizers": ["example.dev/hold"],
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": false}],
                },
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            });
            if let Some(node) = node {
                pod["spec"]["nodeName"] = node.into();
            }
            create(&pods, pod).await;
        }
        let maps = Api::<ConfigMap>::default_namespaced(self.admin.clone());
        create(&maps, config_map("one", "1")).await;
        create(&maps, json!({"metadata": {"name": "none"}})).await;
    }

    /// Changes, adds and deletes objects of every kind.
    pub(crate) async fn change(&self) {
        let pods = Api::<Pod>::default_namespaced(self.admin.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": {"app": null, "new": "yes"}}}));
        pods.patch("a", &PatchParams::default(), &patch).await.unwrap();
        pods.delete("b", &DeleteParams::default()).await.unwrap();
        let nodes = Api::<Node>::all(self.admin.clone());
        create(&nodes, json!({"metadata": {"name": "n2"}})).await;
        nodes.delete("n1", &DeleteParams::default()).await.unwrap();
        let maps = Api::<ConfigMap>::default_namespaced(self.admin.clone());
        let patch = Patch::Merge(json!({"data": {"key": null, "other": "2"}}));
        maps.patch("one", &PatchParams::default(), &patch).await.unwrap();
        maps.delete("none", &DeleteParams::default()).await.unwrap();
    }
}

pub(crate) fn config_map(name: &str, value: &str) -> serde_json::Value {
    json!({"metadata": {"name": name}, "data": {"key": value}})
}

pub(crate) async fn create<K>(api: &Api<K>, object: serde_json::Value)
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// A client that receives this response to every request.
pub(crate) fn answering(
    answer: impl Fn(&Request<Body>) -> Response<Body> + Clone + Send + 'static,
) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    Client::new(service, "default")
}

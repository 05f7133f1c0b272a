//! The form of requests, from any client.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client};
use kube_informers::{
    GroupVersionResource, InformerOptions, Kind, KubeListWatch, ListOptions, ListerWatcher, Metadata,
    ReflectorOptions, SharedInformer,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::kinds::config_maps;
use super::server::{Server, answering, config_map, create};

/// A client that records its requests.
fn recording() -> (Client, impl Fn() -> Vec<String>) {
    let log = Arc::<Mutex<Vec<String>>>::default();
    let requests = Arc::clone(&log);
    let client = answering(move |request: &Request<Body>| {
        log.lock().push(format!("{} {}", request.method(), request.uri()));
        let answer = Response::builder().header("content-type", "application/json");
        let body = if request.uri().path().ends_with("binding") {
            json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        } else {
            json!({"metadata": {"name": "x", "resourceVersion": "1"}, "spec": {}, "items": []})
        };
        answer.body(Body::from(body.to_string().into_bytes())).unwrap()
    });
    (client, move || std::mem::take(&mut requests.lock()))
}

async fn list_and_watch(client: &Client, gvr: GroupVersionResource, namespace: Option<&str>) {
    let source = KubeListWatch::new(client.clone(), Arc::new(Metadata::new(gvr)));
    let source =
        source.namespace(namespace.map(str::to_owned)).tweak(|all| all.labels = Some("a=b".to_owned()));
    let mut options = ListOptions::at("5");
    source.list(&options).await.unwrap();
    options.timeout = Some(Duration::from_mins(5));
    drop(source.watch(&options).await.unwrap());
}

#[tokio::test]
async fn requests_name_group_namespace_and_verb() {
    let (client, requests) = recording();
    for (gvr, namespace, path) in [
        (GroupVersionResource::of::<Pod>(), Some("ns"), "/api/v1/namespaces/ns/pods"),
        (GroupVersionResource::of::<Pod>(), None, "/api/v1/pods"),
        (GroupVersionResource::of::<Node>(), Some("ns"), "/api/v1/nodes"),
        (GroupVersionResource::of::<Deployment>(), Some("ns"), "/apis/apps/v1/namespaces/ns/deployments"),
        (GroupVersionResource::of::<ClusterRole>(), None, "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ] {
        list_and_watch(&client, gvr, namespace).await;
        let list = format!("GET {path}?labelSelector=a%3Db&resourceVersion=5");
        let watch = format!("{list}&timeoutSeconds=300&watch=true");
        assert_eq!(requests(), [list, watch]);
    }
}

/// `kube` reads and writes single objects, on the same paths.
#[tokio::test]
async fn kube_reads_writes_and_binds_single_objects() {
    let (client, requests) = recording();
    let pods = Api::<Pod>::namespaced(client.clone(), "ns");
    pods.get("a").await.unwrap();
    let post = PostParams::default();
    pods.create(&post, &Pod::default()).await.unwrap();
    let binding = json!({"target": {"kind": "Node", "name": "n1"}});
    let _: serde_json::Value = pods.create_subresource("binding", "a", &post, &binding).await.unwrap();
    Api::<Deployment>::namespaced(client.clone(), "ns").get("a").await.unwrap();
    Api::<Node>::all(client.clone()).get("a").await.unwrap();
    Api::<TokenReview>::all(client).create(&post, &TokenReview::default()).await.unwrap();
    let expected = [
        "GET /api/v1/namespaces/ns/pods/a",
        "POST /api/v1/namespaces/ns/pods?",
        "POST /api/v1/namespaces/ns/pods/a/binding?",
        "GET /apis/apps/v1/namespaces/ns/deployments/a",
        "GET /api/v1/nodes/a",
        "POST /apis/authentication.k8s.io/v1/tokenreviews?",
    ];
    assert_eq!(requests(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_page_size_is_the_limit_in_the_url() {
    let server = Server::new();
    let maps = Api::<ConfigMap>::default_namespaced(server.admin.clone());
    for name in ["a", "b", "c", "d", "e"] {
        create(&maps, config_map(name, name)).await;
    }
    let kind = Arc::new(config_maps());
    let source = KubeListWatch::new(server.client.clone(), Arc::clone(&kind));
    let options =
        InformerOptions::default().reflector(ReflectorOptions::default().page_size(2).watch_list(false));
    let informer = SharedInformer::new(Arc::clone(&kind), source, options);
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&informer).run(stop.clone()));
    informer.synced().await;
    stop.cancel();
    running.await.unwrap();
    // The server may ignore the limit at a cached version, as here.
    assert_eq!(server.requests()[0], "/api/v1/configmaps?limit=2&resourceVersion=0");
    let mut names: Vec<_> =
        informer.store().list().iter().map(|map| kind.key(map).name().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
}

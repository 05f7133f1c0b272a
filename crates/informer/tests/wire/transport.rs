//! Both encodings side by side, on a well-behaved API server.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Response, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use kube_informers::testing::settle;
use kube_informers::{
    Dynamic, GroupVersionResource, Kind, KubeListWatch, ListOptions, ListWatchError, ListerWatcher, Metadata,
    Protobuf, Typed, VersionMatch, WatchEvent,
};
use serde_json::json;
use supercargo_apiserver::faults::{Fault, Matcher, Rule};
use supercargo_apiserver::kinds::built_in;
use supercargo_apiserver::status::Status;

use super::kinds::{Asking, Slim, config_maps, slim};
use super::server::{Server, answering, config_map, create};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The content of a store as sorted text, because not all objects can be compared.
fn content<K: Kind>(informer: &kube_informers::SharedInformer<K>) -> Vec<String>
where
    K::Object: Debug,
{
    let mut all: Vec<_> = informer.store().list().iter().map(|object| format!("{object:?}")).collect();
    all.sort();
    all
}

/// Two informers, one per encoding, have the same content before and after changes.
async fn hold_the_same<K: Kind>(kind: fn() -> K, least: usize)
where
    K::Object: Debug,
{
    let server = Server::new();
    server.furnish().await;
    let (protobuf, _stop) = server.informer(kind()).await;
    assert_eq!(server.answers(), [format!("watch 200 {PROTOBUF};stream=watch")], "one watch and no list");
    let (json, _stop_json) = server.informer(Asking::json(kind())).await;
    assert_eq!(server.answers(), ["watch 200 application/json"]);
    let before = content(&protobuf);
    assert!(before.len() >= least, "{before:#?}");
    assert_eq!(before, content(&json));
    server.change().await;
    settle().await;
    let after = content(&protobuf);
    assert_ne!(before, after);
    assert_eq!(after, content(&json));
    assert_eq!(server.answers(), [""; 0], "the watches have gone on");
    assert_eq!(protobuf.last_sync_resource_version(), json.last_sync_resource_version());
    assert_eq!((protobuf.undecodable(), json.undecodable()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn protobuf_and_json_decode_to_equal_pods() {
    hold_the_same(|| slim("pods"), 3).await;
}

#[tokio::test(start_paused = true)]
async fn protobuf_and_json_decode_to_equal_nodes() {
    hold_the_same(|| slim("nodes"), 1).await;
}

#[tokio::test(start_paused = true)]
async fn protobuf_and_json_decode_to_equal_config_maps() {
    hold_the_same(config_maps, 2).await;
}

#[tokio::test(start_paused = true)]
async fn protobuf_and_json_decode_to_equal_metadata() {
    hold_the_same(|| Asking::whole(Metadata::new(GroupVersionResource::of::<Pod>())), 3).await;
}

#[tokio::test(start_paused = true)]
async fn servers_send_metadata_informers_only_metadata() {
    let server = Server::new();
    server.furnish().await;
    let (metadata, _stop) =
        server.informer(Asking::as_is(Metadata::new(GroupVersionResource::of::<Pod>()))).await;
    let (whole, _stop_whole) = server.informer(Asking::as_is(Typed::<Pod>::new())).await;
    server.change().await;
    settle().await;
    for object in metadata.store().list() {
        let pod = whole.store().get(metadata.kind().key(&object).as_str()).unwrap();
        assert_eq!(object.metadata, pod.metadata);
        assert_eq!(object.types.as_ref().unwrap().kind, "PartialObjectMetadata");
    }
    assert_eq!(metadata.store().len(), whole.store().len());
    let sent = metadata.kind().sent();
    assert!(sent.contains("PartialObjectMetadata") && !sent.contains(r#""spec":"#), "{sent}");
    assert!(whole.kind().sent().contains(r#""spec":"#));
}

#[tokio::test(start_paused = true)]
async fn custom_resources_arrive_in_json_despite_protobuf() {
    let server = Server::new();
    server
        .api
        .load(
            "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.dev}, \
             spec: {group: example.dev, scope: Namespaced, names: {plural: widgets, kind: Widget}, versions: [{name: v1, \
             served: true, storage: true, schema: {openAPIV3Schema: {type: object, \
             x-kubernetes-preserve-unknown-fields: true}}}]}}\n---\n\
             {apiVersion: example.dev/v1, kind: Widget, metadata: {name: w, namespace: default, labels: {a: b}}, \
             spec: {nodeName: n1}}",
        )
        .unwrap();
    let gvr = GroupVersionResource::namespaced("example.dev", "v1", "widgets");
    let (slim, _stop) = server.informer(Protobuf::<Slim>::new(gvr.clone())).await;
    assert_eq!(server.answers(), ["watch 200 application/json"]);
    assert_eq!(slim.store().get("default/w").unwrap().spec.node_name, "n1");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.dev", "v1", "Widget"));
    let (dynamic, _stop_dynamic) = server.informer(Dynamic::namespaced(resource)).await;
    let (metadata, _stop_metadata) = server.informer(Metadata::new(gvr)).await;
    let object = metadata.store().get("default/w").unwrap();
    assert_eq!(object.metadata, dynamic.store().get("default/w").unwrap().metadata);
}

/// The names and the version of every page.
async fn pages<K: Kind<Object = ConfigMap>>(source: KubeListWatch<K>) -> Vec<(Vec<String>, String)> {
    let mut options = ListOptions::default();
    options.limit = Some(2);
    let mut pages = Vec::new();
    loop {
        let page = source.list(&options).await.unwrap();
        let names = page.items.into_iter().map(|map| map.metadata.name.unwrap()).collect();
        pages.push((names, page.resource_version));
        options.continue_token = page.continue_token;
        if options.continue_token.is_none() {
            return pages;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_pages_of_either_encoding() {
    let server = Server::new();
    let maps = Api::<ConfigMap>::default_namespaced(server.admin.clone());
    for name in ["a", "b", "c", "d", "e"] {
        create(&maps, config_map(name, name)).await;
    }
    let protobuf = pages(server.list_watch(config_maps())).await;
    assert_eq!(server.answers(), vec![format!("list 200 {PROTOBUF}"); 3]);
    let requests = server.requests();
    assert_eq!(requests[0], "/api/v1/configmaps?limit=2");
    assert!(
        requests[1..].iter().all(|next| next.contains("?continue=") && next.ends_with("&limit=2")),
        "{requests:?}"
    );
    assert_eq!(protobuf, pages(server.list_watch(Asking::json(config_maps()))).await);
    let names: Vec<_> = protobuf.iter().map(|(names, _)| names.join(" ")).collect();
    assert_eq!(names, ["a b", "c d", "e"]);
}

/// An event in short.
fn describe(event: Result<WatchEvent<ConfigMap>, ListWatchError>) -> String {
    let name = |map: ConfigMap| map.metadata.name.unwrap();
    match event {
        Ok(WatchEvent::Added(map)) => format!("+{}", name(map)),
        Ok(WatchEvent::Modified(map)) => format!("~{}", name(map)),
        Ok(WatchEvent::Deleted(map)) => format!("-{}", name(map)),
        Ok(WatchEvent::Bookmark { initial_events_end, .. }) => {
            if initial_events_end { "@end" } else { "@" }.to_owned()
        }
        Ok(WatchEvent::Error(status)) => format!("error {} {}", status.code, status.reason),
        Ok(WatchEvent::Undecodable { deleted, item }) => {
            let key = item.key.map_or("?".to_owned(), |key| key.to_string());
            format!("undecodable {key} {deleted} {}", item.error)
        }
        Ok(other) => format!("unexpected {other:?}"),
        Err(error) => format!("failed: {error}"),
    }
}

fn initial_events() -> ListOptions {
    let mut options = ListOptions::default();
    options.send_initial_events = true;
    options.allow_bookmarks = true;
    options.version_match = Some(VersionMatch::NotOlderThan);
    options.timeout = Some(Duration::from_mins(5));
    options
}

#[tokio::test(start_paused = true)]
async fn protobuf_watch_sends_initial_events_and_their_end() {
    let server = Server::new();
    let maps = Api::<ConfigMap>::default_namespaced(server.admin.clone());
    create(&maps, config_map("a", "1")).await;
    create(&maps, config_map("b", "1")).await;
    let mut events = server.list_watch(config_maps()).watch(&initial_events()).await.unwrap().map(describe);
    let first: Vec<_> = events.by_ref().take(3).collect().await;
    assert_eq!(first, ["+a", "+b", "@end"]);
    // An object that this kind rejects, followed by others.
    let data = |data: serde_json::Value| Patch::Merge(json!({ "data": data }));
    maps.patch("a", &PatchParams::default(), &data(json!({"unacceptable": ""}))).await.unwrap();
    maps.patch("b", &PatchParams::default(), &data(json!({"key": "2"}))).await.unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let next: Vec<_> = events.by_ref().take(4).collect().await;
    let refused = "undecodable default/a false rejected by the kind: unacceptable";
    let gone = "undecodable default/a true rejected by the kind: unacceptable";
    // A bookmark arrives once a minute.
    assert_eq!(next, [refused, "~b", gone, "@"]);
    let page = server.list_watch(config_maps()).list(&ListOptions::default()).await.unwrap();
    assert_eq!((page.items.len(), page.undecodable.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_protobuf_item_affects_only_itself() {
    let server = Server::new();
    let maps = Api::<ConfigMap>::default_namespaced(server.admin.clone());
    create(&maps, config_map("a", "1")).await;
    create(&maps, json!({"metadata": {"name": "b"}, "data": {"unacceptable": ""}})).await;
    let page = server.list_watch(config_maps()).list(&ListOptions::default()).await.unwrap();
    assert_eq!(page.items.len(), 1);
    let [item] = &page.undecodable[..] else { panic!("{:?}", page.undecodable) };
    assert_eq!(item.key.as_ref().unwrap().as_str(), "default/b");
    assert_eq!(item.resource_version.as_deref(), Some(page.resource_version.as_str()));
}

#[tokio::test(start_paused = true)]
async fn a_status_in_protobuf_becomes_a_typed_error() {
    let server = Server::new();
    let maps = Api::<ConfigMap>::default_namespaced(server.admin.clone());
    create(&maps, config_map("a", "1")).await;
    let version = server.api.resource_version().to_string();
    create(&maps, config_map("b", "1")).await;
    create(&maps, config_map("c", "1")).await;
    server.api.compact();

    // 410 within the watch, and for a list at an expired version.
    let source = server.list_watch(config_maps());
    let options = ListOptions::at(version);
    let events: Vec<_> = source.watch(&options).await.unwrap().map(describe).collect().await;
    assert_eq!(events, ["error 410 Expired"]);
    let mut exact = options;
    exact.version_match = Some(VersionMatch::Exact);
    let error = source.list(&exact).await.unwrap_err();
    assert!(error.is_expired(), "{error}");
    assert_eq!(
        server.answers(),
        [format!("watch 200 {PROTOBUF};stream=watch"), format!("list 410 {PROTOBUF}")]
    );

    // 504 for a version in the future: with a cause, and with a wait.
    let future = ListOptions::at("1000000");
    let error = source.list(&future).await.unwrap_err();
    assert!(error.is_too_large_resource_version(), "{error}");
    let details = error.status().unwrap().details.as_ref().unwrap();
    assert_eq!((details.retry_after_seconds, details.causes.len()), (1, 1));

    let nothing =
        server.list_watch(Protobuf::<Slim>::new(GroupVersionResource::cluster("", "v1", "nothings")));
    assert_eq!(nothing.list(&ListOptions::default()).await.unwrap_err().status().unwrap().code, 404);
}

/// In both encodings of the response.
#[tokio::test(start_paused = true)]
async fn rejections_carry_their_status_details() {
    let server = Server::new();
    let kind = built_in().iter().find(|kind| kind.resource == "configmaps").unwrap();
    let (all, options) = (Matcher::default(), ListOptions::default());
    for source in
        [server.list_watch(Asking::as_is(config_maps())), server.list_watch(Asking::json(config_maps()))]
    {
        for (status, code, reason) in [
            (Status::conflict(kind, "a", "of the test"), 409, "Conflict"),
            (Status::not_found(kind, "a"), 404, "NotFound"),
        ] {
            server.api.faults().add(Rule::new(all.clone(), Fault::Answer(status)).times(2));
            for error in [
                source.list(&options).await.map(drop).unwrap_err(),
                source.watch(&options).await.map(drop).unwrap_err(),
            ] {
                let status = error.status().unwrap();
                assert_eq!((status.code, status.reason.as_str()), (code, reason));
                assert_eq!((status.is_conflict(), status.is_not_found()), (code == 409, code == 404));
                let details = status.details.as_ref().unwrap();
                assert_eq!((details.name.as_str(), details.kind.as_str()), ("a", "configmaps"));
                assert!(status.message.contains("configmaps \"a\""), "{}", status.message);
            }
        }
    }
    let answers = server.answers();
    assert_eq!(answers[0], format!("list 409 {PROTOBUF}"));
    assert_eq!(answers[7], "watch 404 application/json");
}

fn answer(code: u16, content_type: &str, body: &[u8]) -> Response<Body> {
    let answer =
        Response::builder().status(StatusCode::from_u16(code).unwrap()).header(CONTENT_TYPE, content_type);
    answer.body(Body::from(body.to_vec())).unwrap()
}

#[tokio::test]
async fn not_acceptable_switches_to_plain_json() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let client = answering(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        match request.headers()[ACCEPT].to_str().unwrap() {
            "application/json" => {
                let body = br#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]}"#;
                answer(200, "application/json", body)
            }
            _ => answer(406, "text/plain", b"no"),
        }
    });
    let source = KubeListWatch::new(client, Arc::new(Metadata::new(GroupVersionResource::of::<Pod>())));
    for expected in [2, 3] {
        assert_eq!(source.list(&ListOptions::default()).await.unwrap().items.len(), 1);
        assert_eq!(requests.load(Ordering::Relaxed), expected);
    }
    // A server that also rejects JSON is not asked forever.
    let client = answering(|_| answer(406, "text/plain", b"no"));
    let source = KubeListWatch::new(client, Arc::new(slim("pods")));
    assert_eq!(source.list(&ListOptions::default()).await.unwrap_err().status().unwrap().code, 406);
}

#[tokio::test]
async fn an_unrequested_encoding_is_an_error() {
    for content_type in ["application/cbor", "application/vnd.kubernetes.protobuf2", "text/html"] {
        let client = answering(move |_| answer(200, content_type, b""));
        let source = KubeListWatch::new(client, Arc::new(slim("pods")));
        let errors = [
            source.list(&ListOptions::default()).await.map(drop).unwrap_err(),
            source.watch(&ListOptions::default()).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(&error, ListWatchError::ContentType(found) if found == content_type), "{error}");
        }
    }
}

#[tokio::test]
async fn an_error_without_status_has_its_http_code() {
    for (body, message) in
        [(&b"k8s\0\xff\xff"[..], "Bad Gateway"), (b"no", "no"), (b"\xff\xfe", "Bad Gateway")]
    {
        let client = answering(move |_| answer(502, PROTOBUF, body));
        let source = KubeListWatch::new(client, Arc::new(slim("pods")));
        let error = source.list(&ListOptions::default()).await.unwrap_err();
        let status = error.status().unwrap();
        assert_eq!((status.code, status.message.as_str()), (502, message));
    }
}

//! The wire: exact requests, and responses in awkward forms, against a service in place of a
//! server.

use std::convert::Infallible;
use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt as _, StreamBody};
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use serde_json::json;

use http::header::RETRY_AFTER;

mod protobuf;

use super::*;
use crate::key::ObjectKey;
use crate::kind::{GroupVersionResource, Typed};
use crate::list_watch::VersionMatch;

type Answer = Response<Body>;

/// A client whose requests `answer` handles, and their URIs.
fn server(
    answer: impl Fn(&Request<Body>) -> Answer + Clone + Send + 'static,
) -> (Client, Arc<Mutex<Vec<String>>>) {
    let uris = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&uris);
    let service = tower::service_fn(move |request: Request<Body>| {
        log.lock().push(request.uri().to_string());
        let answer = answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    (Client::new(service, "default"), uris)
}

/// A client that receives this body for every request, in chunks of this size.
fn chunked(body: Vec<u8>, size: usize) -> Client {
    chunked_as("application/json", body, size)
}

/// The same in another encoding. Fails if the body is polled after its end.
fn chunked_as(content_type: &'static str, body: Vec<u8>, size: usize) -> Client {
    let service = tower::service_fn(move |_: Request<Body>| {
        let chunks: Vec<_> = body.chunks(size).map(<[u8]>::to_vec).collect();
        // A body can build its frames, whose type is not a dependency of this crate.
        let frames = stream::unfold(chunks.into_iter(), async |mut chunks| {
            Some((Body::from(chunks.next()?).frame().await?, chunks))
        });
        let answer = Response::builder().header(CONTENT_TYPE, content_type).body(StreamBody::new(frames));
        async move { Ok::<_, Infallible>(answer.unwrap()) }
    });
    Client::new(service, "default")
}

fn ok(body: impl Into<Vec<u8>>) -> Answer {
    let body = Body::from(body.into());
    Response::builder().header(CONTENT_TYPE, "application/json").body(body).unwrap()
}

fn error(code: u16, body: &str) -> Answer {
    Response::builder()
        .status(StatusCode::from_u16(code).unwrap())
        .body(Body::from(body.as_bytes().to_vec()))
        .unwrap()
}

fn pods(client: Client) -> KubeListWatch<Typed<Pod>> {
    KubeListWatch::new(client, Arc::new(Typed::new()))
}

fn empty_list() -> Vec<u8> {
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []})
        .to_string()
        .into()
}

fn pod(name: &str, version: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "ns", "resourceVersion": version}})
}

fn frame(event_type: &str, object: &serde_json::Value) -> String {
    format!("{}\n", json!({"type": event_type, "object": object}))
}

fn describe<T>(event: Result<WatchEvent<T>, ListWatchError>, name: fn(&T) -> String) -> String {
    match event {
        Ok(WatchEvent::Added(pod)) => format!("+{}", name(&pod)),
        Ok(WatchEvent::Modified(pod)) => format!("~{}", name(&pod)),
        Ok(WatchEvent::Deleted(pod)) => format!("-{}", name(&pod)),
        Ok(WatchEvent::Bookmark { resource_version, initial_events_end }) => {
            format!("@{resource_version}{}", if initial_events_end { " end" } else { "" })
        }
        Ok(WatchEvent::Error(status)) => format!("error {} {}", status.code, status.reason),
        Ok(WatchEvent::Undecodable { deleted, item }) => {
            let key = item.key.map_or("?".to_owned(), |key| key.to_string());
            let deleted = if deleted { " deleted" } else { "" };
            format!("undecodable {key} {}{deleted}", item.resource_version.unwrap_or_default())
        }
        Err(error) => format!("failed: {error}"),
    }
}

/// The events of a watch whose body arrives in chunks of this size.
async fn watched(body: &[u8], chunk: usize) -> Vec<String> {
    let source = pods(chunked(body.to_vec(), chunk));
    let events = source.watch(&ListOptions::default()).await.unwrap();
    events.map(|event| describe(event, |pod| pod.metadata.name.clone().unwrap())).collect().await
}

#[tokio::test]
async fn requests_carry_selectors_and_options_in_alphabetical_order() {
    let (client, uris) = server(|_| ok(empty_list()));
    let source = pods(client.clone()).fields("status.phase!=Succeeded,status.phase!=Failed");
    let list = |version: &str, limit| ListOptions {
        resource_version: version.to_owned(),
        limit,
        ..ListOptions::default()
    };
    source.list(&list("0", Some(500))).await.unwrap();
    source.list(&list("10", None)).await.unwrap();
    let next = ListOptions { continue_token: Some("a+b/c=".to_owned()), ..list("", Some(4)) };
    source.list(&next).await.unwrap();
    let watch =
        ListOptions { allow_bookmarks: true, timeout: Some(Duration::from_secs(345)), ..list("10", None) };
    let _ = source.watch(&watch).await.unwrap();
    let source = source.labels("a in (x, ü)").namespace(Some("ns".to_owned()));
    let watch_list = ListOptions {
        resource_version: String::new(),
        send_initial_events: true,
        version_match: Some(VersionMatch::NotOlderThan),
        ..watch
    };
    let _ = source.watch(&watch_list).await.unwrap();
    let nodes = KubeListWatch::new(client, Arc::new(Typed::<Node>::new())).namespace(Some("ns".to_owned()));
    nodes.list(&ListOptions::default()).await.unwrap();
    let fields = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";
    let expected = [
        format!("/api/v1/pods?{fields}&limit=500&resourceVersion=0"),
        format!("/api/v1/pods?{fields}&resourceVersion=10"),
        format!("/api/v1/pods?continue=a%2Bb%2Fc%3D&{fields}&limit=4"),
        format!(
            "/api/v1/pods?allowWatchBookmarks=true&{fields}&resourceVersion=10&timeoutSeconds=345&watch=true"
        ),
        format!(
            "/api/v1/namespaces/ns/pods?allowWatchBookmarks=true&{fields}&labelSelector=a%20in%20%28x%2C%20%C3%BC%29\
             &resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=345&watch=true"
        ),
        "/api/v1/nodes".to_owned(),
    ];
    assert_eq!(*uris.lock(), expected);
}

#[tokio::test]
async fn requests_ask_for_plain_json() {
    let (client, _) = server(|request| {
        assert_eq!(request.headers()[ACCEPT], "application/json");
        assert_eq!(request.headers()[ACCEPT_ENCODING], "identity");
        ok(empty_list())
    });
    let source = pods(client);
    source.list(&ListOptions::default()).await.unwrap();
    drop(source.watch(&ListOptions::default()).await.unwrap());
}

#[tokio::test]
async fn a_list_skips_undecodable_items() {
    let broken = json!({"metadata": {"name": "b", "namespace": "ns", "resourceVersion": "2"}, "spec": 3});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": 3});
    let list = json!({
        "metadata": {"resourceVersion": "7", "continue": "next"},
        "items": [pod("a", "1"), broken, node, pod("c", "3")],
    });
    let (client, _) = server(move |_| ok(list.to_string()));
    let page = pods(client).list(&ListOptions::default()).await.unwrap();
    let names: Vec<_> = page.items.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["a", "c"]);
    assert_eq!((page.resource_version.as_str(), page.continue_token.as_deref()), ("7", Some("next")));
    let keys: Vec<_> = page.undecodable.iter().map(|item| item.key.as_ref().map(ObjectKey::as_str)).collect();
    assert_eq!(keys, [Some("ns/b"), None]);
    assert!(matches!(page.undecodable[0].error, DecodeError::Json(_)));
    assert!(page.undecodable[1].is_of_another_type(), "which needs no name");
}

/// It may be any stored object, which the list would otherwise delete.
#[tokio::test]
async fn a_list_item_without_readable_name_fails_the_list() {
    for unnamed in [json!({"metadata": 3}), json!({"metadata": {"namespace": "ns"}, "spec": 3})] {
        let list = json!({"metadata": {"resourceVersion": "7"}, "items": [pod("a", "1"), unnamed]});
        let (client, _) = server(move |_| ok(list.to_string()));
        let error = pods(client).list(&ListOptions::default()).await.unwrap_err();
        assert!(matches!(error, ListWatchError::UnnamedItem(DecodeError::Json(_))), "{error}");
        assert!(error.to_string().starts_with("an item of the list has no readable name: cannot decode"));
    }
}

/// Logs what it decodes.
struct Logged(Typed<Pod>, Arc<Mutex<Vec<&'static str>>>);

impl Kind for Logged {
    type Object = Pod;

    fn gvr(&self) -> &GroupVersionResource {
        self.0.gvr()
    }

    fn key(&self, pod: &Pod) -> ObjectKey {
        self.0.key(pod)
    }

    fn resource_version<'a>(&self, pod: &'a Pod) -> &'a str {
        self.0.resource_version(pod)
    }

    fn decode(&self, content_type: ContentType, bytes: &[u8]) -> Result<Pod, DecodeError> {
        self.1.lock().push("decode");
        self.0.decode(content_type, bytes)
    }
}

#[tokio::test]
async fn a_listed_item_is_transformed_before_the_next_is_decoded() {
    let list = json!({"metadata": {"resourceVersion": "7"}, "items": [pod("a", "1"), pod("b", "2")]});
    let (client, _) = server(move |_| ok(list.to_string()));
    let log = Arc::<Mutex<Vec<_>>>::default();
    let source = KubeListWatch::new(client, Arc::new(Logged(Typed::new(), Arc::clone(&log))));
    let noted = Arc::clone(&log);
    let transform: Transform<Pod> = Arc::new(move |_| noted.lock().push("transform"));
    source.list_transformed(&ListOptions::default(), &transform).await.unwrap();
    assert_eq!(*log.lock(), ["decode", "transform", "decode", "transform"]);
    assert_eq!(source.list(&ListOptions::default()).await.unwrap().items.len(), 2);
    assert_eq!(log.lock()[4..], ["decode", "decode"]);
}

#[tokio::test]
async fn a_list_without_items_is_empty_and_an_empty_token_is_none() {
    for items in [json!(null), json!([])] {
        let list = json!({"metadata": {"resourceVersion": "7", "continue": ""}, "items": items});
        let (client, _) = server(move |_| ok(list.to_string()));
        let page = pods(client).list(&ListOptions::default()).await.unwrap();
        assert!(page.items.is_empty() && page.continue_token.is_none());
    }
}

#[tokio::test]
async fn rejections_become_errors_with_code_reason_and_wait() {
    let status = json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "pods is forbidden",
        "details": {"retryAfterSeconds": 3}});
    let (client, _) = server(move |_| error(403, &status.to_string()));
    let source = pods(client);
    let refused = source.list(&ListOptions::default()).await.unwrap_err();
    assert_eq!(refused.to_string(), "the server rejected the request: 403 Forbidden: pods is forbidden");
    let details = refused.status().unwrap().details.as_ref().unwrap();
    assert_eq!(details.retry_after_seconds, 3);
    assert!(matches!(source.watch(&ListOptions::default()).await, Err(ListWatchError::Status(_))));

    let (client, _) = server(|_| {
        let mut answer = error(429, "slow down\n");
        answer.headers_mut().insert(RETRY_AFTER, "12".parse().unwrap());
        answer
    });
    let refused = pods(client).list(&ListOptions::default()).await.unwrap_err();
    let status = refused.status().unwrap();
    assert!(refused.is_too_many_requests());
    assert_eq!((status.code, status.message.as_str()), (429, "slow down"));
    assert_eq!(crate::list_watch::retry_after(status), Duration::from_secs(12));
}

#[tokio::test]
async fn an_error_in_foreign_json_keeps_its_text() {
    for body in [r#"{"error":"invalid_token","error_description":"expired"}"#, r#"{"code":0}"#] {
        let (client, _) = server(move |_| error(401, body));
        let refused = pods(client).list(&ListOptions::default()).await.unwrap_err();
        assert_eq!(refused.status().map(|status| status.code), Some(401));
        assert_eq!(refused.to_string(), format!("the server rejected the request: 401 : {body}"));
    }
}

#[tokio::test]
async fn a_response_that_is_not_a_list_is_an_error() {
    let table =
        r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"rows":[]}"#;
    for body in ["", "[]", "nonsense", table, r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":"#]
    {
        let (client, _) = server(move |_| ok(body));
        let error = pods(client).list(&ListOptions::default()).await.unwrap_err();
        assert!(matches!(error, ListWatchError::NotAList(_)), "{body}: {error}");
    }
    let (client, _) = server(|_| {
        Response::builder()
            .header(CONTENT_TYPE, "text/html; charset=utf-8")
            .body(Body::from(b"<html>".to_vec()))
            .unwrap()
    });
    let error = pods(client).list(&ListOptions::default()).await.unwrap_err();
    assert!(
        matches!(error, ListWatchError::ContentType(content_type) if content_type.starts_with("text/html"))
    );
}

#[tokio::test]
async fn refused_connection_is_recognised() {
    let service = tower::service_fn(|_: Request<Body>| async {
        Err::<Answer, _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
    });
    let error = pods(Client::new(service, "default")).list(&ListOptions::default()).await.unwrap_err();
    assert!(error.is_connection_refused(), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn json_events_decode_across_chunk_boundaries() {
    let bookmark = |version: &str, annotation: &str| {
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version, "creationTimestamp": null,
            "annotations": {"k8s.io/initial-events-end": annotation}}, "spec": {"containers": null}})
    };
    let broken = json!({"metadata": {"name": "x", "namespace": "ns", "resourceVersion": "4"}, "spec": 3});
    let expired = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    let body = [
        frame("ADDED", &pod("a", "1")),
        "\n".to_owned(),
        frame("MODIFIED", &pod("ä\n{", "2")),
        frame("BOOKMARK", &bookmark("3", "false")),
        frame("BOOKMARK", &bookmark("3", "true")),
        frame("BOOKMARK", &json!({"metadata": {"resourceVersion": "4"}})),
        frame("MODIFIED", &broken),
        frame("DELETED", &broken),
        frame("SHRUGGED", &pod("y", "4")),
        frame("DELETED", &pod("a", "5")),
        frame("ERROR", &expired),
        frame("ADDED", &pod("last", "6")).trim_end().to_owned(),
    ]
    .concat();
    let expected = [
        "+a",
        "~ä\n{",
        "@3",
        "@3 end",
        "@4",
        "undecodable ns/x 4",
        "undecodable ns/x 4 deleted",
        "undecodable ns/y 4",
        "-a",
        "error 410 Expired",
        "+last",
    ];
    for chunk in [1, 2, 3, 7, 64, 1000, body.len()] {
        assert_eq!(watched(body.as_bytes(), chunk).await, expected, "chunks of {chunk}");
    }
}

/// The affected object is unknown, so only a list can repair the store.
#[tokio::test]
async fn an_unreadable_event_is_a_watch_error() {
    let good = frame("ADDED", &pod("a", "1"));
    let glued = format!("{}{}", good.trim_end(), frame("DELETED", &pod("b", "2")));
    for broken in [
        "what is this\n".to_owned(),
        glued,
        good.replace("type", "typo"),
        frame("ADDED", &json!({"metadata": 3})),
        frame("ADDED", &json!({"spec": 3})),
        frame("BOOKMARK", &json!({"metadata": {"resourceVersion": 3}})),
        frame("ERROR", &json!(3)),
        frame("SHRUGGED", &json!({})),
    ] {
        let body = format!("{good}{broken}");
        assert_eq!(watched(body.as_bytes(), 7).await, ["+a", "error 500 InternalError"], "{broken}");
    }
}

#[tokio::test]
async fn a_truncated_last_event_is_dropped() {
    let body = format!("{}{}", frame("ADDED", &pod("a", "1")), r#"{"type":"ADDED","object":{"meta"#);
    assert_eq!(watched(body.as_bytes(), 10).await, ["+a"]);
}

#[tokio::test]
async fn an_object_of_several_megabytes_is_read() {
    let mut large = pod("large", "1");
    large["metadata"]["annotations"] = json!({"blob": "x".repeat(4 << 20)});
    let body = [frame("ADDED", &large), frame("ADDED", &pod("small", "2"))].concat();
    assert_eq!(watched(body.as_bytes(), 16 << 10).await, ["+large", "+small"]);
    let list = json!({"metadata": {"resourceVersion": "7"}, "items": [large, pod("small", "2")]}).to_string();
    let (client, _) = server(move |_| ok(list.clone()));
    assert_eq!(pods(client).list(&ListOptions::default()).await.unwrap().items.len(), 2);
}

/// A list repairs the store, and waits longer each time it fails.
#[tokio::test]
async fn an_object_beyond_the_limit_is_an_error_with_kind_and_size() {
    let limit = frame("ADDED", &pod("a", "1")).len() + 10;
    let mut large = pod("large", "2");
    large["metadata"]["annotations"] = json!({"blob": "x".repeat(limit)});
    let list = json!({"metadata": {"resourceVersion": "7"}, "items": [pod("a", "1"), large]}).to_string();
    let watch = [frame("ADDED", &pod("a", "1")), frame("ADDED", &large)].concat();
    let text = format!("an object of v1/pods is larger than {limit} bytes");
    for size in [7, 64] {
        let source = pods(chunked(list.clone().into(), size)).max_object_size(limit);
        let error = source.list(&ListOptions::default()).await.unwrap_err();
        assert!(matches!(error, ListWatchError::TooLarge { .. }), "{error}");
        assert_eq!(error.to_string(), text);
        let source = pods(chunked(watch.clone().into(), size)).max_object_size(limit);
        let events: Vec<_> = source.watch(&ListOptions::default()).await.unwrap().collect().await;
        let [Ok(WatchEvent::Added(_)), Ok(WatchEvent::Error(status))] = &events[..] else {
            panic!("{events:?}")
        };
        assert!(status.message.ends_with(&text), "{}", status.message);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unresponsive_server_times_out() {
    let service = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Answer, Infallible>>());
    let error = pods(Client::new(service, "default")).list(&ListOptions::default()).await.unwrap_err();
    assert!(matches!(error, ListWatchError::Silent(_)), "{error}");
}

#[tokio::test]
async fn refused_connection_is_recognised_on_a_real_socket() {
    // A port that was free a moment ago, without a listener.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut config = kube::Config::new(format!("http://127.0.0.1:{port}").parse().unwrap());
    config.default_retry = false;
    let source = pods(Client::try_from(config).unwrap());
    let error = source.list(&ListOptions::default()).await.unwrap_err();
    assert!(error.is_connection_refused(), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
}

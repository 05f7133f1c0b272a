//! Factories, against a service in place of a server.

use std::convert::Infallible;

use http::{Request, Response};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::handler::HandlerFuncs;
use crate::kind::{Dynamic, Typed};
use crate::listener::{HandlerOptions, PanicPolicy};
use crate::store::NAMESPACE_INDEX;

type Uris = Arc<Mutex<Vec<String>>>;

/// A server that knows of no initial events, lists one object of each kind, refuses what `refuse` is part of,
/// and then is silent.
fn server(refuse: &'static str) -> (Client, Uris) {
    let uris = Uris::default();
    let log = Arc::clone(&uris);
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        let answer = answer(&uri, !refuse.is_empty() && uri.contains(refuse));
        log.lock().push(uri.replace("timeoutSeconds=", "t="));
        async move {
            match answer {
                Some(answer) => Ok::<_, Infallible>(answer),
                None => std::future::pending().await,
            }
        }
    });
    (Client::new(service, "default"), uris)
}

fn answer(uri: &str, refuse: bool) -> Option<Response<Body>> {
    let text = |code: u16, body: Value| {
        let body = Body::from(body.to_string().into_bytes());
        Some(Response::builder().status(code).header("content-type", "application/json").body(body).unwrap())
    };
    if refuse {
        return text(403, json!({"code": 403, "reason": "Forbidden", "message": "not for you"}));
    }
    if uri.contains("sendInitialEvents") {
        return text(422, json!({"code": 422, "reason": "Invalid", "message": "no initial events here"}));
    }
    if uri.contains("watch=true") {
        return None;
    }
    let object = json!({"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "1"}});
    text(200, json!({"metadata": {"resourceVersion": "7"}, "items": [object]}))
}

fn lists(uris: &Uris) -> Vec<String> {
    let mut lists: Vec<_> = uris.lock().iter().filter(|uri| !uri.contains("watch=true")).cloned().collect();
    lists.sort();
    lists
}

fn pods() -> Arc<Typed<Pod>> {
    Arc::new(Typed::new())
}

#[tokio::test(start_paused = true)]
async fn one_informer_per_resource_however_many_ask() {
    let (client, uris) = server("");
    let factory = SharedInformerFactory::new(client);
    // Whoever comes first decides how the informer is made.
    let first = factory.informer_for(pods(), |parts| {
        let InformerParts { kind, list_watch, .. } = parts;
        SharedInformer::new(kind, list_watch.fields("status.phase!=Failed"), InformerOptions::default())
    });
    let second = factory.informer_for(pods(), |_| unreachable!("made already"));
    let third = factory.informer(Typed::<Pod>::new());
    assert!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first, &third));
    assert!(!first.store().has_index(NAMESPACE_INDEX));
    let nodes = factory.informer(Typed::<Node>::new());
    assert_eq!(nodes.kind().gvr().resource, "nodes");
    let resource = |kind| ApiResource::from_gvk(&GroupVersionKind::gvk("example.dev", "v1", kind));
    let widgets = factory.informer(Dynamic::namespaced(resource("Widget")));
    let gadgets = factory.informer(Dynamic::namespaced(resource("Gadget")));
    assert!(!Arc::ptr_eq(&widgets, &gadgets), "the same type of descriptor, but another resource");
    assert!(Arc::ptr_eq(&widgets, &factory.informer(Dynamic::namespaced(resource("Widget")))));
    assert!(widgets.store().has_index(NAMESPACE_INDEX) && !nodes.store().has_index(NAMESPACE_INDEX));

    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.start(&stop);
    assert!(factory.wait_for_cache_sync(&stop).await.is_synced());
    let expected = [
        "/api/v1/nodes?limit=500&resourceVersion=0",
        "/api/v1/pods?fieldSelector=status.phase%21%3DFailed&limit=500&resourceVersion=0",
        "/apis/example.dev/v1/gadgets?limit=500&resourceVersion=0",
        "/apis/example.dev/v1/widgets?limit=500&resourceVersion=0",
    ];
    assert_eq!(lists(&uris), expected);
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_made_after_a_start_waits_for_the_next() {
    let (client, uris) = server("");
    let factory = SharedInformerFactory::new(client);
    let pods = factory.informer(Typed::<Pod>::new());
    let stop = CancellationToken::new();
    factory.start(&stop);
    let nodes = factory.informer(Typed::<Node>::new());
    let result = factory.wait_for_cache_sync(&stop).await;
    assert_eq!(result.synced, [pods.kind().gvr().clone()]);
    assert!(pods.is_started() && !nodes.is_started());
    factory.start(&stop);
    let result = factory.wait_for_cache_sync(&stop).await;
    assert_eq!((result.synced.len(), result.failed.len()), (2, 0));
    assert_eq!(lists(&uris).len(), 2);
    stop.cancel();
    pods.stopped().await;
    nodes.stopped().await;
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_names_what_failed_and_why() {
    let (client, _) = server("/nodes");
    let factory = SharedInformerFactory::new(client);
    let pods = factory.informer(Typed::<Pod>::new());
    let nodes = factory.informer(Typed::<Node>::new());
    let stop = CancellationToken::new();
    factory.start(&stop);
    let patience = stop.child_token();
    let give_up = patience.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        give_up.cancel();
    });
    let result = factory.wait_for_cache_sync(&patience).await;
    assert!(!result.is_synced());
    assert_eq!(result.synced, [pods.kind().gvr().clone()]);
    assert_eq!(result.failed.len(), 1);
    assert_eq!(&result.failed[0].resource, nodes.kind().gvr());
    let reason = result.failed[0].reason.as_deref();
    assert_eq!(reason, Some("failed to list: the server refused with 403 Forbidden: not for you"));
    factory.shutdown().await;
    // Nothing is left to wait for.
    let result = factory.wait_for_cache_sync(&CancellationToken::new()).await;
    assert_eq!((result.synced.len(), result.failed.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn handlers_sync_later_than_stores() {
    let (client, _) = server("");
    let factory = SharedInformerFactory::new(client);
    let pods = factory.informer(Typed::<Pod>::new());
    let options = HandlerOptions {
        panic_policy: PanicPolicy::SkipAfter(Duration::from_secs(10)),
        ..HandlerOptions::default()
    };
    let slow = HandlerFuncs::<Pod>::new().with_add(|_, _| panic!("on purpose"));
    pods.add_event_handler(slow, options.clone()).unwrap();
    let removed = HandlerFuncs::<Pod>::new().with_add(|_, _| panic!("on purpose"));
    let removed = pods.add_event_handler(removed, options).unwrap();
    let stop = CancellationToken::new();
    let start = Instant::now();
    factory.start(&stop);
    assert!(factory.wait_for_cache_sync(&stop).await.is_synced());
    assert!(start.elapsed() < Duration::from_secs(1));
    pods.remove_event_handler(&removed);
    assert!(factory.wait_for_handlers_sync(&stop).await.is_synced());
    assert!(start.elapsed() >= Duration::from_secs(10));
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn namespace_resyncs_and_tweaks_reach_the_informers() {
    let (client, uris) = server("");
    let nodes = Typed::<Node>::new();
    let factory = SharedInformerFactory::builder(client)
        .tweak(|selectors| selectors.labels = Some("app=web".to_owned()))
        .custom_resync(nodes.gvr().clone(), Duration::from_secs(30))
        .default_resync(Duration::from_mins(1))
        .namespace("ns")
        .build();
    let mut periods = Vec::new();
    factory.informer_for(Arc::new(nodes), |parts| {
        periods.push(parts.resync.as_secs());
        parts.build(Indexers::new())
    });
    factory.informer_for(pods(), |parts| {
        periods.push(parts.resync.as_secs());
        parts.build(Indexers::new())
    });
    assert_eq!(periods, [30, 60]);
    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.wait_for_cache_sync(&stop).await;
    let expected = [
        "/api/v1/namespaces/ns/pods?labelSelector=app%3Dweb&limit=500&resourceVersion=0",
        "/api/v1/nodes?labelSelector=app%3Dweb&limit=500&resourceVersion=0",
    ];
    assert_eq!(lists(&uris), expected);
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_everything_and_nothing_starts_after_it() {
    let (client, uris) = server("");
    let factory = SharedInformerFactory::new(client);
    let pods = factory.informer(Typed::<Pod>::new());
    let registration = pods.add_event_handler(HandlerFuncs::new(), HandlerOptions::default()).unwrap();
    let stop = CancellationToken::new();
    factory.start(&stop);
    registration.synced().await;
    factory.shutdown().await;
    registration.stopped().await;
    assert!(pods.is_stopped() && !stop.is_cancelled());
    let before = uris.lock().len();
    let namespaces = factory.informer(Typed::<Namespace>::new());
    factory.start(&stop);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!namespaces.is_started());
    assert_eq!(uris.lock().len(), before);
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_panics_is_reported_and_the_others_go_on() {
    let (client, _) = server("");
    let factory = SharedInformerFactory::new(client);
    let pods = factory.informer(Typed::<Pod>::new());
    let nodes = factory.informer(Typed::<Node>::new());
    let handler = HandlerFuncs::<Pod>::new().with_add(|_, _| panic!("on purpose"));
    pods.add_event_handler(handler, HandlerOptions::default()).unwrap();
    let stop = CancellationToken::new();
    factory.start(&stop);
    assert_eq!(factory.failed().await, "the informer of v1/pods panicked: on purpose");
    assert_eq!(factory.failed().await, "the informer of v1/pods panicked: on purpose");
    nodes.synced().await;
    assert!(!nodes.is_stopped());
    factory.shutdown().await;
}

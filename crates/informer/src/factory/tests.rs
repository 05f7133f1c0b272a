//! Factories, against a service in place of a server.

use std::convert::Infallible;

use http::{Request, Response};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::failure::InformerFailure;
use crate::handler::HandlerFuncs;
use crate::kind::{Dynamic, Typed};
use crate::listener::{HandlerOptions, PanicPolicy};
use crate::store::NAMESPACE_INDEX;

type Uris = Arc<Mutex<Vec<String>>>;

/// A server that rejects watch-lists, lists one object of each kind, rejects URIs that contain
/// `refuse`, and then sends nothing.
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
async fn a_factory_has_one_informer_per_resource() {
    let (client, uris) = server("");
    let factory = SharedInformerFactory::new(client);
    // The first call decides how the informer is built.
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
async fn informers_created_after_start_wait_for_the_next_start() {
    let (client, uris) = server("");
    let factory = SharedInformerFactory::new(client);
    let pods = factory.informer(Typed::<Pod>::new());
    let stop = CancellationToken::new();
    factory.start(&stop);
    let nodes = factory.informer(Typed::<Node>::new());
    let result = factory.wait_for_cache_sync(&stop).await;
    assert_eq!(
        result.by_resource(),
        BTreeMap::from([(pods.kind().gvr(), true)]),
        "other informers are not included"
    );
    assert_eq!(pods.store().len(), 1, "the store has the first list");
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
async fn waiting_for_caches_names_failures_and_causes() {
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
    assert_eq!(reason, Some("failed to list: the server rejected the request: 403 Forbidden: not for you"));
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
async fn factory_shutdown_ends_informers_and_prevents_starts() {
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
async fn failed_reports_a_panic_and_other_informers_continue() {
    let (client, _) = server("");
    let factory = SharedInformerFactory::new(client);
    let pods = factory.informer(Typed::<Pod>::new());
    let nodes = factory.informer(Typed::<Node>::new());
    let handler = HandlerFuncs::<Pod>::new().with_add(|_, _| panic!("on purpose"));
    pods.add_event_handler(handler, HandlerOptions::named("broken")).unwrap();
    let stop = CancellationToken::new();
    factory.start(&stop);
    let failure =
        InformerFailure::HandlerPanicked { handler: "broken".to_owned(), message: "on purpose".to_owned() };
    for failed in [factory.failed().await, factory.failed().await] {
        assert_eq!((&failed.resource, &failed.failure), (pods.kind().gvr(), &failure));
        let text = "the informer of v1/pods failed: event handler \"broken\" panicked: on purpose";
        assert_eq!(failed.to_string(), text);
    }
    nodes.synced().await;
    assert!(!nodes.is_stopped());
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_order_of_a_factorys_settings_does_not_matter() {
    type Setting = fn(FactoryBuilder) -> FactoryBuilder;
    let settings: [Setting; 5] = [
        |builder| builder.namespace("ns"),
        |builder| builder.default_resync(Duration::from_mins(1)),
        |builder| builder.custom_resync(Typed::<Pod>::new().gvr().clone(), Duration::from_secs(30)),
        |builder| builder.tweak(|selectors| selectors.labels = Some("app=web".to_owned())),
        |builder| builder.watch_list(false),
    ];
    for first in 0..settings.len() {
        for backwards in [false, true] {
            let mut order = settings;
            order.rotate_left(first);
            if backwards {
                order.reverse();
            }
            let (client, uris) = server("");
            let builder = SharedInformerFactory::builder(client);
            let factory = order.iter().fold(builder, |builder, setting| setting(builder)).build();
            let mut periods = Vec::new();
            factory.informer_for(pods(), |parts| {
                periods.push(parts.resync.as_secs());
                parts.build(Indexers::new())
            });
            factory.informer_for(Arc::new(Typed::<Namespace>::new()), |parts| {
                periods.push(parts.resync.as_secs());
                parts.build(Indexers::new())
            });
            assert_eq!(periods, [30, 60], "the custom period applies only to its resource");
            let stop = CancellationToken::new();
            factory.start(&stop);
            factory.wait_for_cache_sync(&stop).await;
            let expected = [
                "/api/v1/namespaces/ns/pods?labelSelector=app%3Dweb&limit=500&resourceVersion=0",
                "/api/v1/namespaces?labelSelector=app%3Dweb&limit=500&resourceVersion=0",
            ];
            assert_eq!(lists(&uris), expected);
            assert!(!uris.lock().iter().any(|uri| uri.contains("sendInitialEvents")));
            factory.shutdown().await;
        }
    }
}

#[test]
fn concurrent_requests_build_one_informer() {
    // Building a client requires a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let guard = runtime.enter();
    let factory = SharedInformerFactory::new(server("").0);
    drop(guard);
    let built = std::sync::atomic::AtomicUsize::new(0);
    let barrier = std::sync::Barrier::new(8);
    let informers: Vec<_> = std::thread::scope(|scope| {
        let ask = || {
            barrier.wait();
            let pods = factory.informer_for(pods(), |parts| {
                built.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                parts.build(Indexers::new())
            });
            (pods, factory.informer(Typed::<Node>::new()))
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(built.into_inner(), 1);
    let (pods, nodes) = &informers[0];
    assert!(informers.iter().all(|(one, other)| Arc::ptr_eq(one, pods) && Arc::ptr_eq(other, nodes)));
}

#[tokio::test(start_paused = true)]
async fn a_factory_name_counts_resources_once_until_shutdown() {
    let name = InformerName::new("a-factory").unwrap();
    let factory = SharedInformerFactory::builder(server("").0).informer_name(name.clone()).build();
    let mut identities = Vec::new();
    factory.informer_for(pods(), |parts| {
        identities.push(parts.identity.clone());
        parts.build(Indexers::new())
    });
    factory.informer_for(Arc::new(crate::Metadata::new(pods().gvr().clone())), |parts| {
        identities.push(parts.identity.clone());
        parts.build(Indexers::new())
    });
    let counted: Vec<bool> = identities.iter().map(InformerIdentity::is_reserved).collect();
    assert_eq!(counted, [true, false]);
    assert_eq!((identities[0].name(), identities[0].resource()), ("a-factory", Some(pods().gvr())));
    assert!(InformerName::new("a-factory").is_err());
    factory.start(&CancellationToken::new());
    factory.shutdown().await;
    assert!(!identities[0].is_reserved() && InformerName::new("a-factory").is_ok());
    let nameless = SharedInformerFactory::new(server("").0);
    nameless.informer_for(pods(), |parts| {
        assert!(!parts.identity.is_reserved());
        parts.build(Indexers::new())
    });
}

#[tokio::test(start_paused = true)]
async fn every_shutdown_call_waits_for_handlers_in_progress() {
    let (client, _) = server("");
    let factory = Arc::new(SharedInformerFactory::new(client));
    let pods = factory.informer(Typed::<Pod>::new());
    let options = HandlerOptions {
        panic_policy: PanicPolicy::SkipAfter(Duration::from_secs(10)),
        ..HandlerOptions::default()
    };
    // Busy for ten seconds, in the only way a handler can be while the clock is paused.
    let busy = HandlerFuncs::<Pod>::new().with_add(|_, _| panic!("on purpose"));
    let registration = pods.add_event_handler(busy, options).unwrap();
    let stop = CancellationToken::new();
    let start = Instant::now();
    factory.start(&stop);
    assert!(factory.wait_for_cache_sync(&stop).await.is_synced());
    let shutdowns = [(); 2].map(|()| {
        let factory = Arc::clone(&factory);
        tokio::spawn(async move {
            factory.shutdown().await;
            start.elapsed()
        })
    });
    for shutdown in shutdowns {
        assert!(shutdown.await.unwrap() >= Duration::from_secs(10));
    }
    registration.stopped().await;
    // Nothing was started, so there is nothing to wait for.
    let (client, _) = server("");
    SharedInformerFactory::new(client).shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_does_not_take_a_failed_informer_for_synced() {
    let (client, _) = server("/nodes");
    let factory = SharedInformerFactory::new(client);
    let pods = factory.informer(Typed::<Pod>::new());
    // Never syncs, so that the failure must end the wait.
    let nodes = factory.informer(Typed::<Node>::new());
    let handler = HandlerFuncs::<Pod>::new().with_add(|_, _| panic!("on purpose"));
    pods.add_event_handler(handler, HandlerOptions::named("broken")).unwrap();
    let stop = CancellationToken::new();
    factory.start(&stop);
    for result in [factory.wait_for_handlers_sync(&stop).await, factory.wait_for_cache_sync(&stop).await] {
        assert!(pods.has_synced(), "the store itself has its first list");
        let failed: Vec<_> = result.failed.iter().map(|failure| &failure.resource).collect();
        assert_eq!((failed, result.synced), (vec![nodes.kind().gvr(), pods.kind().gvr()], vec![]));
        let reason = "event handler \"broken\" panicked: on purpose";
        assert_eq!(result.failed[1].reason.as_deref(), Some(reason));
    }
    factory.shutdown().await;
}

#[test]
fn a_start_outside_a_runtime_starts_nothing() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let within = runtime.enter();
    let factory = SharedInformerFactory::new(server("").0);
    drop(within);
    let pods = factory.informer(Typed::<Pod>::new());
    let stop = CancellationToken::new();
    let outside = std::panic::catch_unwind(AssertUnwindSafe(|| factory.start(&stop)));
    assert!(outside.is_err() && !pods.is_started());
    let mut run = Box::pin(Arc::clone(&pods).run(stop.clone()));
    let mut poll = || run.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(std::panic::catch_unwind(AssertUnwindSafe(&mut poll)).is_err() && !pods.is_started());
    runtime.block_on(async {
        factory.start(&stop);
        assert!(factory.wait_for_cache_sync(&stop).await.is_synced());
        factory.shutdown().await;
    });
}

#[tokio::test(start_paused = true)]
async fn selectors_of_an_informer_add_to_the_factorys() {
    let (client, uris) = server("");
    let tweak = |selectors: &mut Selectors| {
        selectors.fields = Some("spec.nodeName=n1".to_owned());
        selectors.labels = Some("app=web".to_owned());
    };
    let factory = SharedInformerFactory::builder(client).tweak(tweak).build();
    factory.informer_for(pods(), |mut parts| {
        parts.list_watch = parts.list_watch.fields("status.phase!=Failed").labels("").labels("tier");
        parts.build(Indexers::new())
    });
    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.wait_for_cache_sync(&stop).await;
    let selectors =
        "fieldSelector=spec.nodeName%3Dn1%2Cstatus.phase%21%3DFailed&labelSelector=app%3Dweb%2Ctier";
    assert_eq!(lists(&uris), [format!("/api/v1/pods?{selectors}&limit=500&resourceVersion=0")]);
    factory.shutdown().await;
}

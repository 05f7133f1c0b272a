//! The factory, and what consumers share.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube_informers::testing::settle;
use kube_informers::{
    Deleted, DoneChecker, EventHandler, GenericInformer, GenericObject, GroupVersionResource, HandlerFuncs,
    HandlerOptions, InformerOptions, Kind, NAMESPACE_INDEX, ObjectKey, SharedInformer, SharedInformerFactory,
    Typed, wait_for,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Cluster, log_of, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const NON_TERMINAL: &str = "status.phase!=Succeeded,status.phase!=Failed";

fn pods() -> Arc<Typed<Pod>> {
    Arc::new(Typed::new())
}

/// The scheduler's pod informer: pods that have not terminated, and no index.
fn filtered_pods(factory: &SharedInformerFactory) -> Arc<SharedInformer<Typed<Pod>>> {
    factory.informer_for(pods(), |parts| {
        let list_watch = parts.list_watch.fields(NON_TERMINAL);
        SharedInformer::new(parts.kind, list_watch, InformerOptions::default())
    })
}

#[tokio::test(start_paused = true)]
async fn many_consumers_share_one_list_and_one_watch() {
    for watch_list in [true, false] {
        let cluster = Cluster::new();
        cluster.send("POST", PODS, &pod("a", &json!({}))).await;
        let factory = SharedInformerFactory::builder(cluster.client.clone()).watch_list(watch_list).build();
        let consumers: Vec<_> = (0..3).map(|_| log_of(&factory.informer(Typed::<Pod>::new()))).collect();
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(consumers.iter().all(|log| log.lock().is_empty()), "nothing is delivered before the start");
        assert!(cluster.beginnings().is_empty(), "no requests are sent");

        let stop = CancellationToken::new();
        factory.start(&stop);
        assert!(factory.wait_for_handlers_sync(&stop).await.is_synced());
        cluster.send("POST", PODS, &pod("b", &json!({}))).await;
        let late = log_of(&factory.informer(Typed::<Pod>::new()));
        let labels = json!({"metadata": {"labels": {"app": "web"}}});
        cluster.send("PATCH", &format!("{PODS}/b"), &labels).await;
        cluster.send("DELETE", &format!("{PODS}/a"), &json!({"gracePeriodSeconds": 0})).await;
        let expected =
            // A pod is marked before it is deleted.
            ["add default/a initially", "add default/b", "update default/b", "update default/a", "delete default/a"];
        for log in &consumers {
            assert_eq!(*log.lock(), expected);
        }
        assert_eq!(late.lock()[2..], expected[2..]);
        assert_eq!((cluster.beginnings().len(), cluster.watches().len()), (1, 1), "{watch_list}");
        factory.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_registration_wins_and_terminated_pods_leave_it() {
    for watch_list in [true, false] {
        let cluster = Cluster::new();
        for name in ["runs", "ends"] {
            cluster.send("POST", PODS, &pod(name, &json!({}))).await;
        }
        let factory = SharedInformerFactory::builder(cluster.client.clone()).watch_list(watch_list).build();
        let first = filtered_pods(&factory);
        let plain = factory.informer(Typed::<Pod>::new());
        assert!(Arc::ptr_eq(&first, &plain));
        assert!(!plain.store().has_index(NAMESPACE_INDEX), "the index was not configured");
        let log = log_of(&plain);
        let stop = CancellationToken::new();
        factory.start(&stop);
        assert!(factory.wait_for_handlers_sync(&stop).await.is_synced());
        let lister = plain.lister();
        assert_eq!((lister.list().len(), lister.namespace("default").list().len()), (2, 2));
        let before = plain.store().resource_version();

        let ended = json!({"status": {"phase": "Succeeded"}});
        cluster.send("PATCH", &format!("{PODS}/ends/status"), &ended).await;
        assert_eq!(log.lock().last().map(String::as_str), Some("delete default/ends"));
        assert!(lister.get("default/ends").is_none() && lister.get("default/runs").is_some());
        assert_ne!(plain.store().resource_version(), before, "the deletion has a newer version");

        let selector = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";
        let requests: Vec<String> = [cluster.beginnings(), cluster.watches()].concat();
        assert!(requests.iter().all(|request| request.contains(selector)), "{requests:?}");
        assert!(requests.iter().all(|request| request.starts_with("/api/v1/pods?")), "{requests:?}");
        let lists = requests.iter().filter(|request| !request.contains("watch=true")).count();
        assert_eq!(lists, usize::from(!watch_list));
        factory.shutdown().await;
    }
}

/// The changes of objects whose type the test does not name.
struct Seen(Arc<Mutex<Vec<String>>>);

impl EventHandler<GenericObject> for Seen {
    fn on_add(&mut self, object: &Arc<GenericObject>, _: bool) {
        self.0.lock().push(format!("add {}", object.key()));
    }

    fn on_update(&mut self, old: &Arc<GenericObject>, new: &Arc<GenericObject>) {
        let changed = old.meta().resource_version != new.meta().resource_version;
        self.0.lock().push(format!("update {} {changed}", new.key()));
    }

    fn on_delete(&mut self, deleted: &Deleted<GenericObject>) {
        let last = deleted.object().map(|object| object.key().to_string());
        self.0.lock().push(format!("delete {}", last.unwrap_or_default()));
    }
}

#[tokio::test(start_paused = true)]
async fn for_resource_returns_the_typed_informer_or_an_error() {
    let cluster = Cluster::new();
    for (name, app) in [("a", "web"), ("b", "api")] {
        cluster.send("POST", PODS, &pod(name, &json!({"app": app}))).await;
    }
    let factory = SharedInformerFactory::builder(cluster.client.clone())
        .known_type::<Pod>()
        .known_type::<Node>()
        .build();
    let resource = pods().gvr().clone();
    let generic = factory.for_resource(&resource).unwrap();
    let typed = factory.informer(Typed::<Pod>::new());
    assert!(Arc::ptr_eq(&generic.downcast().unwrap(), &typed));
    assert!(generic.downcast::<Typed<Node>>().is_none());
    assert_eq!(generic.resource(), &resource);
    let widgets = GroupVersionResource::namespaced("example.dev", "v1", "widgets");
    let error = factory.for_resource(&widgets).err().unwrap();
    assert!(error.to_string().starts_with("no type is registered for example.dev/v1/widgets: "), "{error}");

    let seen = Arc::<Mutex<Vec<String>>>::default();
    let handler = Seen(Arc::clone(&seen));
    let registration = generic.add_event_handler(handler, HandlerOptions::default()).unwrap();
    let stop = CancellationToken::new();
    assert!(!generic.has_synced() && generic.last_sync_resource_version().is_empty());
    factory.start(&stop);
    generic.synced().await;
    registration.synced().await;
    assert!(generic.has_synced() && !generic.last_sync_resource_version().is_empty());

    let lister = generic.lister();
    let names = |objects: Vec<GenericObject>| {
        let mut names: Vec<String> = objects.iter().map(|object| object.key().to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(lister.list()), ["default/a", "default/b"]);
    assert_eq!(names(lister.select(&"app=web".parse().unwrap())), ["default/a"]);
    let namespace = lister.namespace("default");
    assert_eq!(names(namespace.select(&"app!=web".parse().unwrap())), ["default/b"]);
    assert!(lister.namespace("other").list().is_empty());
    let object = namespace.get("a").unwrap();
    assert_eq!(object.meta().labels.as_ref().unwrap()["app"], "web");
    let stored = typed.store().get("default/a").unwrap();
    assert!(Arc::ptr_eq(&object.downcast::<Pod>().unwrap(), &stored), "the store's own");
    assert!(object.downcast::<Node>().is_none() && lister.get("a").is_none());
    assert_eq!(lister.get("default/b").unwrap().key(), &ObjectKey::new(Some("default"), "b"));

    cluster.send("PATCH", &format!("{PODS}/b"), &json!({"metadata": {"labels": {"x": "y"}}})).await;
    cluster.send("DELETE", &format!("{PODS}/b"), &json!({"gracePeriodSeconds": 0})).await;
    let mut log = std::mem::take(&mut *seen.lock());
    log[..2].sort();
    let expected = [
        "add default/a",
        "add default/b",
        "update default/b true",
        "update default/b true",
        "delete default/b",
    ];
    assert_eq!(log, expected);
    generic.remove_event_handler(&registration);
    registration.stopped().await;
    cluster.send("DELETE", &format!("{PODS}/a"), &json!({"gracePeriodSeconds": 0})).await;
    assert!(seen.lock().is_empty() && lister.list().is_empty());
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn generic_informers_wrap_any_informer() {
    let cluster = Cluster::new();
    cluster.load("{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {zone: z}}}");
    let factory = SharedInformerFactory::new(cluster.client.clone());
    let nodes = GenericInformer::new(factory.informer(Typed::<Node>::new()));
    factory.start(&CancellationToken::new());
    nodes.synced().await;
    settle().await;
    assert_eq!(nodes.lister().get("n1").unwrap().key().as_str(), "n1");
    assert_eq!(nodes.lister().select(&"zone in (z)".parse().unwrap()).len(), 1);
    assert!(nodes.lister().namespace("default").list().is_empty());
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn unsynced_informers_and_handlers_are_named() {
    let cluster = Cluster::new();
    cluster.send("POST", PODS, &pod("a", &json!({}))).await;
    let factory = SharedInformerFactory::new(cluster.client.clone());
    let pods = factory.informer(Typed::<Pod>::new());
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let generic = GenericInformer::new(Arc::clone(&pods));
    let options = HandlerOptions::named("seer");
    let handler = generic.add_event_handler(Seen(Arc::clone(&seen)), options).unwrap();
    factory.start(&CancellationToken::new());
    let nodes = factory.informer(Typed::<Node>::new());
    let never = std::future::pending::<&str>();
    wait_for("pods", [DoneChecker::informer(&pods), DoneChecker::handler(&handler)], never).await.unwrap();
    assert_eq!(*seen.lock(), ["add default/a"]);
    let unseen = nodes.add_event_handler(HandlerFuncs::new(), HandlerOptions::named("unseen")).unwrap();
    let patience = async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        "a minute is enough"
    };
    let all = [DoneChecker::handler(&unseen), DoneChecker::informer(&pods), DoneChecker::informer(&nodes)];
    let error = wait_for("caches", all, patience).await.unwrap_err();
    assert_eq!(error.to_string(), "gave up waiting for caches: unseen, v1/nodes: a minute is enough");
    factory.shutdown().await;
}

//! A descriptor with state, whose objects are not Kubernetes objects: from the wire to a handler,
//! through the public interface only.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use kube_informers::testing::settle;
use kube_informers::{
    ContentType, DecodeError, Deleted, EventHandler, FanOut, Filtering, GroupVersionResource, HandlerOptions,
    IndexFn, Indexers, InformerOptions, Kind, ObjectKey, SharedInformer, SharedInformerFactory,
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// What a scheduler might keep of a pod. Pods on a node share its name.
struct Record {
    key: ObjectKey,
    version: Box<str>,
    node: Option<Arc<str>>,
}

struct Records {
    gvr: GroupVersionResource,
    nodes: Mutex<HashMap<String, Arc<str>>>,
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default)]
    spec: WireSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta {
    name: String,
    namespace: String,
    resource_version: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    node_name: Option<String>,
}

impl Records {
    fn new() -> Self {
        Self { gvr: GroupVersionResource::namespaced("", "v1", "pods"), nodes: Mutex::default() }
    }
}

impl Kind for Records {
    type Object = Record;

    fn gvr(&self) -> &GroupVersionResource {
        &self.gvr
    }

    fn key(&self, record: &Record) -> ObjectKey {
        record.key.clone()
    }

    fn resource_version<'a>(&self, record: &'a Record) -> &'a str {
        &record.version
    }

    fn decode(&self, content_type: ContentType, bytes: &[u8]) -> Result<Record, DecodeError> {
        let wire: Wire = match content_type {
            ContentType::Json => serde_json::from_slice(bytes)?,
            other => return Err(DecodeError::UnsupportedContentType(other)),
        };
        let mut nodes = self.nodes.lock();
        let node = wire
            .spec
            .node_name
            .map(|name| Arc::clone(nodes.entry(name.clone()).or_insert_with(|| name.into())));
        let key = ObjectKey::new(Some(&wire.metadata.namespace), &wire.metadata.name);
        Ok(Record { key, version: wire.metadata.resource_version, node })
    }
}

/// The two halves of a scheduler, which write into one log.
struct Half(&'static str, Arc<Mutex<Vec<String>>>);

impl Half {
    fn note(&self, what: &str, key: &ObjectKey) {
        self.1.lock().push(format!("{} {what} {key}", self.0));
    }
}

impl EventHandler<Record> for Half {
    fn on_add(&mut self, record: &Arc<Record>, _: bool) {
        self.note("add", &record.key);
    }

    fn on_update(&mut self, _: &Arc<Record>, record: &Arc<Record>) {
        self.note("update", &record.key);
    }

    fn on_delete(&mut self, deleted: &Deleted<Record>) {
        if let Some(record) = deleted.object() {
            self.note("delete", &record.key);
        }
    }
}

fn pod(name: &str, version: &str, node: Option<&str>) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "ns", "resourceVersion": version}, "spec": {"nodeName": node}})
}

/// Responds to a watch with initial events with three pods, and with the binding of one of them.
fn client() -> Client {
    let bookmark =
        json!({"metadata": {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}}});
    let events = [
        ("ADDED", pod("a", "1", Some("n1"))),
        ("ADDED", pod("b", "2", None)),
        ("ADDED", pod("c", "3", Some("n1"))),
        ("BOOKMARK", bookmark),
        ("MODIFIED", pod("b", "6", Some("n1"))),
    ];
    let body: String =
        events.map(|(event, object)| format!("{}\n", json!({"type": event, "object": object}))).concat();
    let service = tower::service_fn(move |request: Request<Body>| {
        let first = request.uri().query().is_some_and(|query| query.contains("sendInitialEvents"));
        let body = body.clone();
        async move {
            if !first {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(Response::new(Body::from(body.into_bytes())))
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn custom_objects_go_from_the_wire_to_the_handlers() {
    let factory = SharedInformerFactory::new(client());
    let pods = factory.informer_for(Arc::new(Records::new()), |parts| {
        let by_node: IndexFn<Record> =
            Arc::new(|_, record, file| record.node.as_deref().into_iter().for_each(file));
        let options = InformerOptions::default().indexers(Indexers::from([("node".to_owned(), by_node)]));
        SharedInformer::new(parts.kind, parts.list_watch.fields("status.phase!=Failed"), options)
    });
    let log = Arc::<Mutex<Vec<String>>>::default();
    let both = FanOut::new()
        .then(Filtering {
            filter: |record: &Record| record.node.is_some(),
            handler: Half("cache", Arc::clone(&log)),
        })
        .then(Filtering {
            filter: |record: &Record| record.node.is_none(),
            handler: Half("queue", Arc::clone(&log)),
        });
    let registration = pods.add_event_handler(both, HandlerOptions::named("pods")).unwrap();

    let stop = CancellationToken::new();
    factory.start(&stop);
    // Spawned, which requires `Send` futures.
    let factory = tokio::spawn(async move {
        assert!(factory.wait_for_cache_sync(&stop).await.is_synced());
        assert!(factory.wait_for_handlers_sync(&stop).await.is_synced());
        factory
    });
    let factory = factory.await.unwrap();
    settle().await;
    let expected =
        ["cache add ns/a", "queue add ns/b", "cache add ns/c", "cache add ns/b", "queue delete ns/b"];
    assert_eq!(*log.lock(), expected);
    let on_node = pods.store().by_index("node", "n1").unwrap();
    assert_eq!(on_node.len(), 3);
    let nodes = on_node.iter().filter_map(|record| record.node.as_ref());
    assert!(nodes.clone().zip(nodes.skip(1)).all(|(one, next)| Arc::ptr_eq(one, next)), "interned");
    assert_eq!(pods.last_sync_resource_version(), "6");
    assert_eq!((pods.undecodable(), registration.pending()), (0, 0));
    factory.shutdown().await;
    registration.stopped().await;
}

//! A service in place of an API server.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

/// A response of the service.
pub(crate) struct Answer {
    code: u16,
    chunks: Vec<String>,
    stay_open: bool,
}

impl Answer {
    pub(crate) fn json(body: &Value) -> Self {
        Self { code: 200, chunks: vec![body.to_string()], stay_open: false }
    }

    pub(crate) fn refusal(code: u16, reason: &str) -> Self {
        Self { code, ..Self::json(&status(code, reason)) }
    }

    /// Events of a watch that then ends.
    pub(crate) fn events(events: &[(&str, Value)]) -> Self {
        let frame =
            |(event, object): &(&str, Value)| format!("{}\n", json!({"type": event, "object": object}));
        Self { code: 200, chunks: events.iter().map(frame).collect(), stay_open: false }
    }

    pub(crate) fn and_stay_open(self) -> Self {
        Self { stay_open: true, ..self }
    }
}

pub(crate) fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "as told"})
}

pub(crate) fn bookmark(version: &str, initial_events_end: bool) -> Value {
    let annotations =
        if initial_events_end { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version, "annotations": annotations}})
}

pub(crate) fn pod(name: &str, version: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "ns", "resourceVersion": version}})
}

pub(crate) fn list(version: &str, items: &[Value]) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items})
}

/// The requests so far, with their times.
pub(crate) type Requests = Arc<Mutex<Vec<(Duration, String)>>>;

/// The verb of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    List,
    Watch,
    WatchList,
}

impl Verb {
    pub(crate) fn of(uri: &str) -> Self {
        match (uri.contains("watch=true"), uri.contains("sendInitialEvents=true")) {
            (false, _) => Self::List,
            (true, false) => Self::Watch,
            (true, true) => Self::WatchList,
        }
    }
}

/// A client of a service that responds with the closure, whose argument counts earlier requests
/// with the verb.
pub(crate) fn client(answer: impl Fn(Verb, usize) -> Answer + Clone + Send + 'static) -> (Client, Requests) {
    let (requests, since) = (Requests::default(), Instant::now());
    let log = Arc::clone(&requests);
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        let verb = Verb::of(&uri);
        let mut log = log.lock();
        let before = log.iter().filter(|(_, uri)| Verb::of(uri) == verb).count();
        log.push((since.elapsed(), uri));
        let answer = answer(verb, before);
        async move {
            // A chunk that never arrives keeps the body open.
            let chunks = answer.chunks.into_iter().map(Some).chain(answer.stay_open.then_some(None));
            let frames = stream::iter(chunks.collect::<Vec<_>>()).then(async |chunk| match chunk {
                // A body can build its frames, whose type is not a dependency of this crate.
                Some(text) => Body::from(text.into_bytes()).frame().await.unwrap(),
                None => std::future::pending().await,
            });
            let answer = Response::builder().status(answer.code).header("content-type", "application/json");
            Ok::<_, Infallible>(answer.body(StreamBody::new(frames)).unwrap())
        }
    });
    (Client::new(service, "default"), requests)
}

/// Versions by key.
pub(crate) fn content(store: &kube_informers::Store<Pod>) -> Vec<String> {
    let name = |pod: &Pod| {
        let metadata = &pod.metadata;
        format!("{}@{}", metadata.name.as_deref().unwrap(), metadata.resource_version.as_deref().unwrap())
    };
    let mut pods: Vec<_> = store.list().iter().map(|pod| name(pod)).collect();
    pods.sort_unstable();
    pods
}

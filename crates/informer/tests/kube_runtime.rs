//! A comparison with `kube_runtime`: its watcher and our reflector on the same server with the same
//! script.
//!
//! Asserts what the README claims, so that a version that behaves differently is noticed.
#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use kube::runtime::reflector::{Store as KubeStore, reflector, store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use kube_informers::{InformerOptions, KubeListWatch, SharedInformer, Typed};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const HOUR: Duration = Duration::from_hours(1);
/// More requests than this without any time between them are a busy loop.
const BUSY: usize = 1000;

/// A response of the server.
#[derive(Clone)]
struct Answer {
    code: u16,
    lines: Vec<Value>,
    stay_open: bool,
}

impl Answer {
    fn once(body: Value) -> Self {
        Self { code: 200, lines: vec![body], stay_open: false }
    }

    fn refused(code: u16, reason: &str) -> Self {
        Self { code, ..Self::once(status(code, reason)) }
    }

    /// A watch that ends.
    fn watch(lines: Vec<Value>) -> Self {
        Self { code: 200, lines, stay_open: false }
    }

    fn staying_open(self) -> Self {
        Self { stay_open: true, ..self }
    }
}

/// A request in short, as the script receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    watch: bool,
    initial_events: bool,
    version: Option<String>,
    limit: Option<String>,
}

impl Asked {
    fn new(query: &str) -> Self {
        let value = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        Self {
            watch: value("watch").is_some(),
            initial_events: value("sendInitialEvents").is_some(),
            version: value("resourceVersion"),
            limit: value("limit"),
        }
    }
}

type Log = Arc<Mutex<Vec<Asked>>>;

/// A server that responds with a script, whose arguments are the request and the number of earlier
/// ones like it.
fn server(script: impl Fn(&Asked, usize) -> Answer + Clone + Send + 'static) -> (Client, Log) {
    let log = Log::default();
    let asked_so_far = Arc::clone(&log);
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = Asked::new(request.uri().query().unwrap_or_default());
        let before = {
            let mut log = asked_so_far.lock();
            let before = log.iter().filter(|other| other.watch == asked.watch).count();
            log.push(asked.clone());
            before
        };
        let answer = script(&asked, before);
        async move {
            // Endless requests would otherwise keep the clock from advancing.
            if before > 10 * BUSY {
                std::future::pending::<()>().await;
            }
            let lines = answer.lines.into_iter().map(|line| format!("{line}\n"));
            let chunks =
                stream::iter(lines).then(async |line| Body::from(line.into_bytes()).frame().await.unwrap());
            let rest = if answer.stay_open {
                stream::pending().left_stream()
            } else {
                stream::empty().right_stream()
            };
            let answer = Response::builder().status(answer.code).header("content-type", "application/json");
            Ok::<_, Infallible>(answer.body(StreamBody::new(chunks.chain(rest))).unwrap())
        }
    });
    (Client::new(service, "default"), log)
}

fn pod(name: &str, version: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "resourceVersion": version}})
}

fn list(version: &str, names: &[&str]) -> Answer {
    let items: Vec<_> = names.iter().map(|name| pod(name, version)).collect();
    let metadata = json!({"resourceVersion": version});
    Answer::once(json!({"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": items}))
}

fn event(event_type: &str, object: &Value) -> Value {
    json!({"type": event_type, "object": object})
}

fn status(code: u16, reason: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
        "message": "scripted"})
}

/// A bookmark with this value of the annotation that ends the initial events.
fn bookmark(version: &str, end: &str) -> Value {
    let metadata = json!({"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": end}});
    event("BOOKMARK", &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}))
}

/// kube's watcher with its backoff, writing into its store.
fn theirs(client: Client, config: watcher::Config) -> KubeStore<Pod> {
    let (reader, writer) = store();
    let stream = reflector(writer, watcher(Api::<Pod>::all(client), config).default_backoff());
    tokio::spawn(stream.for_each(async |_| ()));
    reader
}

/// Our informer, with all defaults.
fn ours(client: Client) -> Arc<SharedInformer<Typed<Pod>>> {
    let kind = Arc::new(Typed::<Pod>::new());
    let source = KubeListWatch::new(client, Arc::clone(&kind));
    let informer = SharedInformer::new(kind, source, InformerOptions::default());
    tokio::spawn(Arc::clone(&informer).run(CancellationToken::new()));
    informer
}

fn kube_names(store: &KubeStore<Pod>) -> BTreeSet<String> {
    store.state().iter().map(|pod| pod.metadata.name.clone().unwrap()).collect()
}

fn our_names(informer: &SharedInformer<Typed<Pod>>) -> BTreeSet<String> {
    informer.store().list().iter().map(|pod| pod.metadata.name.clone().unwrap()).collect()
}

fn count(log: &Log, watch: bool) -> usize {
    log.lock().iter().filter(|asked| asked.watch == watch).count()
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn closing_watches_loop_in_kube_and_back_off_here() {
    let script = |asked: &Asked, _| match asked {
        Asked { initial_events: true, .. } => Answer::refused(422, "Invalid"),
        Asked { watch: true, .. } => Answer::watch(Vec::new()),
        _ => list("10", &["a"]),
    };
    let (client, log) = server(script);
    let began = Instant::now();
    let _store = theirs(client, watcher::Config::default());
    while count(&log, true) < BUSY {
        tokio::task::yield_now().await;
    }
    assert!(began.elapsed() < Duration::from_secs(1), "no time passed between {BUSY} requests");

    let (client, log) = server(script);
    let _informer = ours(client);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!((10..=20).contains(&log.lock().len()), "five cycles or so: {:?}", log.lock());
}

#[tokio::test(start_paused = true)]
async fn kube_lists_with_quorum_reads_and_we_from_the_cache() {
    let script = |asked: &Asked, _| match asked {
        Asked { initial_events: true, .. } => Answer::refused(422, "Invalid"),
        Asked { watch: true, .. } => Answer::watch(Vec::new()).staying_open(),
        _ => list("10", &["a"]),
    };
    let first_list = |log: &Log| log.lock().iter().find(|asked| !asked.watch).cloned().unwrap();
    let (client, log) = server(script);
    let _store = theirs(client, watcher::Config::default().any_semantic());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((first_list(&log).version, first_list(&log).limit.as_deref()), (None, Some("500")));

    let (client, log) = server(script);
    let _informer = ours(client);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        (first_list(&log).version.as_deref(), first_list(&log).limit.as_deref()),
        (Some("0"), Some("500"))
    );
}

#[tokio::test(start_paused = true)]
async fn watch_refused_with_410_loops_in_kube_and_lists_here() {
    let script = |asked: &Asked, _| match asked {
        Asked { initial_events: true, .. } => Answer::refused(422, "Invalid"),
        Asked { watch: true, version, .. } if version.as_deref() == Some("10") => {
            Answer::refused(410, "Expired")
        }
        Asked { watch: true, .. } => Answer::watch(Vec::new()).staying_open(),
        Asked { version, .. } if version.as_deref() == Some("10") => list("20", &["a", "b"]),
        _ => list("10", &["a"]),
    };
    let (client, log) = server(script);
    let store = theirs(client, watcher::Config::default());
    tokio::time::sleep(HOUR).await;
    assert_eq!(count(&log, false), 1, "one list in an hour");
    assert!(count(&log, true) > 50, "and many watches from the version that is gone");
    assert_eq!(kube_names(&store), names(["a"]), "which is all it knows");

    let (client, log) = server(script);
    let informer = ours(client);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(count(&log, false), 2);
    assert_eq!(our_names(&informer), names(["a", "b"]));
}

#[tokio::test(start_paused = true)]
async fn after_410_kube_lists_at_version_0_and_we_never_go_back() {
    let expired = event("ERROR", &status(410, "Expired"));
    let script = move |asked: &Asked, before| match asked {
        Asked { initial_events: true, .. } => Answer::refused(422, "Invalid"),
        Asked { watch: true, .. } if before <= 1 => Answer::watch(vec![expired.clone()]),
        Asked { watch: true, .. } => Answer::watch(Vec::new()).staying_open(),
        _ => list("10", &["a"]),
    };
    let versions = |log: &Log| -> Vec<_> {
        log.lock().iter().filter(|asked| !asked.watch).map(|asked| asked.version.clone()).collect()
    };
    let (client, log) = server(script.clone());
    let mut config = watcher::Config::default().any_semantic();
    config.page_size = None; // with pages it would be a quorum read, see above
    let _store = theirs(client, config);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(
        versions(&log)[1..].iter().all(|version| version.as_deref() == Some("0")),
        "any state will do: {log:?}"
    );
    assert!(versions(&log).len() > 1);

    let (client, log) = server(script);
    let _informer = ours(client);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(versions(&log), [Some("0".to_owned()), Some("10".to_owned())], "not older than what was seen");
}

#[tokio::test(start_paused = true)]
async fn rejected_watch_list_loops_in_kube_and_becomes_a_list_here() {
    let script = |asked: &Asked, _| match asked {
        Asked { initial_events: true, .. } => Answer::refused(422, "Invalid"),
        Asked { watch: true, .. } => Answer::watch(Vec::new()).staying_open(),
        _ => list("10", &["a"]),
    };
    let (client, log) = server(script);
    let store = theirs(client, watcher::Config::default().streaming_lists());
    tokio::time::sleep(HOUR).await;
    assert_eq!(count(&log, false), 0, "it never lists");
    assert!(store.is_empty());

    let (client, _) = server(script);
    let informer = ours(client);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(informer.has_synced());
}

#[tokio::test(start_paused = true)]
async fn deletions_in_initial_events_are_lost_by_kube_and_kept_here() {
    let script = |asked: &Asked, _| {
        let events = [
            event("ADDED", &pod("a", "8")),
            event("ADDED", &pod("b", "9")),
            event("DELETED", &pod("a", "10")),
            bookmark("10", "true"),
        ];
        Answer::watch(if asked.initial_events { events.into() } else { Vec::new() }).staying_open()
    };
    let (client, _) = server(script);
    let store = theirs(client, watcher::Config::default().streaming_lists());
    tokio::time::sleep(HOUR).await;
    assert_eq!(kube_names(&store), names(["a", "b"]), "a ghost");

    let (client, _) = server(script);
    let informer = ours(client);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(our_names(&informer), names(["b"]));
}

#[tokio::test(start_paused = true)]
async fn only_annotation_true_ends_our_initial_events_unlike_kube() {
    let script = |asked: &Asked, _| {
        let events = [event("ADDED", &pod("a", "8")), bookmark("9", "false")];
        Answer::watch(if asked.initial_events { events.into() } else { Vec::new() }).staying_open()
    };
    let (client, _) = server(script);
    let store = theirs(client, watcher::Config::default().streaming_lists());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(kube_names(&store), names(["a"]), "taken for all there is");

    let (client, _) = server(script);
    let informer = ours(client);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!informer.has_synced());
}

#[tokio::test(start_paused = true)]
async fn failing_lists_repeat_flat_in_kube_and_back_off_here() {
    let script = |asked: &Asked, _| match asked {
        Asked { initial_events: true, .. } => Answer::refused(422, "Invalid"),
        _ => Answer::refused(500, "InternalError"),
    };
    let (client, log) = server(script);
    let _store = theirs(client, watcher::Config::default());
    tokio::time::sleep(HOUR).await;
    assert!(count(&log, false) > 2000, "{} lists in an hour", count(&log, false));

    let (client, log) = server(script);
    let _informer = ours(client);
    tokio::time::sleep(HOUR).await;
    assert!((60..130).contains(&count(&log, false)), "{} lists in an hour", count(&log, false));
}

//! Informers on the real API server, under a load of writes and with network failures.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube_informers::QueueKind;
use serde_json::Value;
use supercargo_client::connection::connect;
use supercargo_controlplane::{ControlPlane, Options, assets_or_skip};
use tokio::time::sleep;

use super::load::{Load, NAMESPACES, Progress};
use super::model::{Content, Model, Told};
use super::proxy::Proxy;
use super::subject::{Setup, Subject};
use super::trouble::Trouble;
use crate::support::{Random, name_of, node_of, say};

const TEST: &str = "soak";
/// The number of pods, each of which exists for a while.
const PODS: usize = 10_000;
/// The maximum time for an informer to catch up on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);

const SETUPS: [Setup; 4] = [
    Setup {
        name: "JSON, as by default, checked",
        protobuf: false,
        watch_list: true,
        checked: true,
        queue: QueueKind::RealFifo { atomic: true },
    },
    Setup {
        name: "JSON, lists, DeltaFIFO",
        protobuf: false,
        watch_list: false,
        checked: false,
        queue: QueueKind::DeltaFifo { replaced: true },
    },
    Setup {
        name: "protobuf, as by default, checked",
        protobuf: true,
        watch_list: true,
        checked: true,
        queue: QueueKind::RealFifo { atomic: true },
    },
    Setup {
        name: "protobuf, lists, RealFIFO that is not atomic",
        protobuf: true,
        watch_list: false,
        checked: false,
        queue: QueueKind::RealFifo { atomic: false },
    },
];

/// The server's content: all pods, and those with a node.
struct Truth {
    all: Content,
    assigned: Content,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informers_stay_in_sync_with_a_failing_real_server() {
    let began = Instant::now();
    if assets_or_skip().is_none() {
        return;
    }
    // Without the server's cache for pods, compacted versions are gone for its clients, too.
    let apiserver_args = vec!["--watch-cache-sizes=pods#0".to_owned()];
    let plane = ControlPlane::start(Options { apiserver_args, ..Options::default() }).unwrap();
    let kubeconfig = plane.kubeconfig("admin").unwrap();
    let proxy = Proxy::start(port_of(&connection(&kubeconfig).await)).await.unwrap();
    let mut subjects = Vec::new();
    for setup in SETUPS {
        let mut config = connection(&kubeconfig).await;
        config.cluster_url = format!("https://127.0.0.1:{}", proxy.port()).parse().unwrap();
        subjects.push(Subject::start(setup, config));
    }
    let client = Client::try_from(connection(&kubeconfig).await).unwrap();
    say(TEST, began, "the server and its followers are there");

    let progress = Arc::new(Progress::default());
    let load = {
        let (client, progress) = (client.clone(), Arc::clone(&progress));
        let load = Load { pods: PODS, writers: 12, seed: 5 };
        tokio::spawn(async move { load.run(&client, &progress).await })
    };
    let mut trouble = Trouble {
        plane: &plane,
        proxy: &proxy,
        progress: &progress,
        random: Random::new(11),
        compactions: 0,
    };
    let mut events = Stages::default();
    while !load.is_finished() {
        trouble.make().await;
        events.go_on(&mut subjects, progress.created.load(Ordering::Relaxed)).await;
    }
    load.await.unwrap();
    // The last failure hides changes that no others follow.
    let compactions = trouble.compactions;
    say(TEST, began, &format!("{} writes are done, {compactions} compactions", progress.writes()));

    let truth = truth(&client).await;
    for subject in &subjects {
        catch_up(subject, &truth).await;
    }
    events.check(&subjects);
    let received = subjects.iter().map(|subject| check(subject, &truth)).fold(Told::default(), sum);
    let lists: usize = subjects.iter().map(|subject| subject.requests.lists()).sum();
    let watches: usize = subjects.iter().map(|subject| subject.requests.watches()).sum();
    let (cuts, left) = (proxy.cuts(), truth.all.len());
    say(
        TEST,
        began,
        &format!(
            "{PODS} pods, {} writes, {left} left; {} notifications to {} informers: {received:?}; {cuts} cuts, \
             {compactions} compactions, {lists} lists or watches with initial events, {watches} watches resumed",
            progress.writes(),
            received.all(),
            subjects.len(),
        ),
    );
    assert!(left > 300 && left < PODS / 2, "{left} pods are left");
    assert!(compactions >= 5 && cuts >= 50, "too little went wrong: {compactions} compactions, {cuts} cuts");
    // Sometimes the next failure precedes an informer's recovery.
    assert!(lists > subjects.len() * compactions / 2, "{lists} lists");
    assert!(watches > subjects.len() * 10, "{watches} watches");
    assert!(received.repeats > 0 && received.tombstones > 0 && received.replacements > 0, "{received:?}");
    for subject in subjects {
        subject.stop().await;
    }
}

/// Handlers that are added and removed, by the number of pods created so far.
#[derive(Default)]
struct Stages {
    gone: Vec<(Model, Told)>,
    joined: bool,
    back: bool,
}

impl Stages {
    async fn go_on(&mut self, subjects: &mut [Subject], created: usize) {
        if self.gone.is_empty() && created > PODS / 4 {
            for subject in subjects.iter_mut() {
                let model = subject.leave("removed").await;
                let received = model.received();
                self.gone.push((model, received));
            }
        }
        if !self.joined && created > PODS / 2 {
            for subject in subjects.iter_mut() {
                subject.join("late", None, false);
            }
            self.joined = true;
        }
        if !self.back && created > PODS * 3 / 4 {
            for subject in subjects.iter_mut() {
                subject.join("removed and back", None, false);
            }
            self.back = true;
        }
    }

    fn check(&self, subjects: &[Subject]) {
        assert!(self.joined && self.back && self.gone.len() == subjects.len(), "they came or went too late");
        for (model, received) in &self.gone {
            assert_eq!(model.received(), *received, "it was told of something after it had gone");
            assert!(received.adds > PODS / 5, "{received:?}");
            assert_eq!(model.faults(), Vec::<String>::new());
        }
    }
}

async fn connection(kubeconfig: &Path) -> kube::Config {
    connect(Some(kubeconfig)).await.unwrap()
}

fn port_of(config: &kube::Config) -> u16 {
    config.cluster_url.port_u16().unwrap()
}

async fn truth(client: &Client) -> Truth {
    let request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
    let body = client.send(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let list: Value = serde_json::from_slice(&body).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (mut all, mut assigned) = (BTreeMap::new(), BTreeMap::new());
    for pod in list["items"].as_array().unwrap() {
        let meta = &pod["metadata"];
        let key = format!("{}/{}", text(&meta["namespace"]), name_of(pod));
        let state = (text(&meta["uid"]), text(&meta["resourceVersion"]));
        if node_of(pod).is_some() {
            assigned.insert(key.clone(), state.clone());
        }
        all.insert(key, state);
    }
    Truth { all, assigned }
}

/// Waits until an informer's store matches the server, and its handlers are idle.
async fn catch_up(subject: &Subject, truth: &Truth) {
    let began = Instant::now();
    while subject.stored() != truth.all || subject.pending() > 0 {
        assert!(
            began.elapsed() < PATIENCE,
            "{}: {} pods in store, {} in truth; {} changes pending; {:?}",
            subject.name,
            subject.stored().len(),
            truth.all.len(),
            subject.pending(),
            subject.last_error()
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// Checks the final state of an informer and its handlers. Returns the number of their
/// notifications.
fn check(subject: &Subject, truth: &Truth) -> Told {
    let name = subject.name;
    assert!(subject.have_synced(), "{name}");
    let by_namespace: usize = NAMESPACES.iter().map(|namespace| subject.stored_in(namespace)).sum();
    assert_eq!(by_namespace, truth.all.len(), "{name}: the index");
    let mut all = Told::default();
    for (handler, model, filtered) in subject.models() {
        let received = model.received();
        eprintln!("{TEST}: {name}, {handler}: {received:?}");
        assert_eq!(model.faults(), Vec::<String>::new(), "{name}, {handler}");
        let expected = if filtered { &truth.assigned } else { &truth.all };
        assert!(model.content() == *expected, "{name}, {handler}: it knows of {}", model.content().len());
        assert!(received.adds >= received.deletes + expected.len(), "{name}, {handler}: {received:?}");
        all = sum(all, received);
    }
    all
}

fn sum(one: Told, other: Told) -> Told {
    Told {
        adds: one.adds + other.adds,
        updates: one.updates + other.updates,
        repeats: one.repeats + other.repeats,
        replacements: one.replacements + other.replacements,
        deletes: one.deletes + other.deletes,
        tombstones: one.tombstones + other.tombstones,
    }
}

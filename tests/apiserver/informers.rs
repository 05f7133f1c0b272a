//! Clients that watch the server in memory must follow it, despite all faults.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use kube::Client;
use kube::runtime::watcher;
use serde_json::Value;
use supercargo_apiserver::faults::{Fault, Matcher, Rule};
use supercargo_apiserver::status::Status;
use supercargo_apiserver::{ApiServer, Settings};
use supercargo_client::connection::connect;
use supercargo_controlplane::{Assets, Program, assets_or_skip};
use tempfile::TempDir;
use tower::ServiceExt as _;

use super::changes::{Changes, RESOURCES};
use super::follower::{ClientGo, Follower, Held, KubeWatchers, drop_empty};
use super::kube_informers::KubeInformers;
use super::target::{RUNTIME, Target, listen};
use crate::support::say;

/// The total number of changes.
const CHANGES: usize = 100_000;

/// The number of faults per phase.
const TROUBLES: usize = 4;

/// The timeout for clients to catch up. client-go waits for half a minute after some failures, and
/// up to twice as long with jitter.
const PATIENCE: Duration = Duration::from_mins(3);

/// The fault of a phase.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// No fault.
    Calm,
    /// Watches end cleanly.
    Cut,
    /// Watches end in the middle of an event.
    CutMidFrame,
    /// New watches end after a few events.
    ShortWatches,
    /// Lists and watches are delayed.
    Slow,
    /// The server restarts and keeps its history.
    Restart,
    /// Bookmarks are suppressed.
    HeldBookmarks,
    /// The history is dropped, so that returning clients must list again.
    Compact,
    /// The server restarts and drops its history.
    RestartForgetful,
    /// Lists and watches fail with various errors.
    Refused,
}

/// Each round restarts client-go, because its back-off grows with each failure and resets only
/// after two minutes.
const ROUNDS: [&[Trouble]; 3] = [
    &[Trouble::Calm, Trouble::Cut, Trouble::Compact, Trouble::CutMidFrame],
    &[Trouble::HeldBookmarks, Trouble::Restart, Trouble::RestartForgetful],
    &[Trouble::Slow, Trouble::ShortWatches, Trouble::Refused],
];

impl Trouble {
    fn begin(self, server: &ApiServer) {
        let each = |fault: Fault, times: u64| {
            for verb in ["list", "watch"] {
                let matcher = Matcher { verb: verb.to_owned(), ..Matcher::default() };
                server.faults().add(Rule::new(matcher, fault.clone()).times(times));
            }
        };
        let watches = || Matcher { verb: "watch".to_owned(), ..Matcher::default() };
        let cut = |mid_frame| server.cut_watches(Matcher::default(), mid_frame);
        match self {
            Self::Calm => {}
            Self::Cut => cut(false),
            Self::CutMidFrame => cut(true),
            Self::ShortWatches => {
                let fault = |mid_frame| Fault::CutWatch { after: 20, mid_frame };
                server.faults().add(Rule::new(watches(), fault(false)).times(20));
                server.faults().add(Rule::new(watches(), fault(true)).skip(20).times(5));
                cut(false);
            }
            Self::Slow => {
                each(Fault::Delay(Duration::from_millis(30)), 20);
                cut(false);
            }
            Self::Restart => server.restart(true),
            Self::HeldBookmarks => {
                server.faults().add(Rule::new(watches(), Fault::HoldBookmarks).times(20));
                cut(false);
            }
            Self::Compact => {
                cut(false);
                server.compact();
            }
            Self::RestartForgetful => server.restart(false),
            Self::Refused => {
                each(Fault::Answer(Status::timeout("time ran out")), 2);
                each(Fault::Reset, 2);
                let client_go = Matcher { user_agent: "clientgo".to_owned(), ..watches() };
                let too_many = Fault::Answer(Status::too_many_requests("later", 1));
                server.faults().add(Rule::new(client_go, too_many).times(2));
                cut(false);
            }
        }
    }

    /// Whether the fault increases client-go's back-off.
    fn is_grave(self) -> bool {
        matches!(self, Self::Compact | Self::RestartForgetful | Self::Refused)
    }
}

#[test]
fn informers_follow_100_000_changes_with_faults() {
    let began = Instant::now();
    let server = ApiServer::new(Settings::default());
    let endpoint = listen(&server);
    let folder = TempDir::new().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    endpoint.write_kubeconfig(&kubeconfig).unwrap();
    let outside = Target::new("in-memory", &kubeconfig).client;
    let inside = {
        let _within = RUNTIME.enter();
        Client::new(server.service(), "default")
    };
    let streaming = watcher::Config::default().streaming_lists();
    let mut watchers = vec![
        KubeWatchers::start("kube's watcher", &outside, &watcher::Config::default()),
        KubeWatchers::start("kube's watcher of streamed lists", &inside, &streaming),
    ];
    let config = || RUNTIME.block_on(connect(Some(&kubeconfig))).unwrap();
    let mut ours = vec![
        KubeInformers::start("kube-informers", config()),
        KubeInformers::start_in_protobuf("kube-informers in protobuf", config()),
    ];
    let program = assets_or_skip().map(|_| Assets::locate().unwrap().path(Program::ClientGo).unwrap());
    let start = || -> Vec<ClientGo> {
        let Some(program) = &program else { return Vec::new() };
        let start =
            |name, content, resources| ClientGo::start(name, program, &kubeconfig, content, resources);
        vec![
            start("client-go", "json", &RESOURCES),
            start("client-go in protobuf", "protobuf", &RESOURCES[..2]),
        ]
    };
    let mut changes = Changes::new(&server, 7);
    let phases: usize = ROUNDS.iter().map(|round| round.len()).sum();
    let mut refused = 0;
    for round in ROUNDS {
        let mut informers = start();
        for trouble in round {
            phase(&server, &mut changes, CHANGES / phases, *trouble);
            say("informers", began, &format!("{} changes, {trouble:?}", changes.made));
            let truth = RUNTIME.block_on(held(&server));
            for follower in followers(&mut watchers, &mut ours, &mut informers) {
                catch_up(follower, &truth, *trouble);
                assert_eq!(
                    follower.inconsistencies(),
                    Vec::<String>::new(),
                    "{}, {trouble:?}",
                    follower.name()
                );
            }
        }
        for resource in ["pods", "nodes"] {
            let objects = RUNTIME.block_on(objects(&server, resource));
            for informer in &mut informers {
                assert_eq!(informer.objects(resource), objects, "{}", informer.name());
            }
            for informer in &ours {
                let held = informer.objects(resource);
                assert!(held.is_none_or(|held| held == objects), "{}: other {resource}", informer.name());
            }
        }
        refused += informers.iter_mut().map(ClientGo::errors).sum::<usize>();
    }
    assert_eq!(changes.made, CHANGES);
    let failed: Vec<usize> = watchers.iter_mut().map(KubeWatchers::errors).collect();
    let own: Vec<(usize, usize)> = ours.iter().map(KubeInformers::requests).collect();
    say(
        "informers",
        began,
        &format!(
            "failed lists and watches: {failed:?} of kube's, {refused} of client-go's; ours listed and resumed {own:?} times"
        ),
    );
    assert!(
        failed.iter().all(|failed| *failed > 0) && (refused > 0 || program.is_none()),
        "nothing went wrong"
    );
    // Each informer lists once at the start, and again after the history was dropped, unless it may
    // have seen the latest change. Other faults require no list.
    for informers in &ours {
        let (listed, resumed) = informers.requests();
        let lists = informers.count() + 2 * (informers.count() - 1);
        assert!(listed >= lists && resumed > listed, "{listed} lists, {resumed} watches");
    }
}

/// Makes changes, with the fault in the middle.
fn phase(server: &ApiServer, changes: &mut Changes, count: usize, trouble: Trouble) {
    let times = if trouble.is_grave() { 1 } else { TROUBLES };
    let share = count / times;
    for _ in 0..times {
        RUNTIME.block_on(changes.make(share / 2));
        trouble.begin(server);
        RUNTIME.block_on(changes.make(share - share / 2));
    }
    server.faults().clear();
    // Running watches keep their faults.
    server.cut_watches(Matcher::default(), false);
}

fn followers<'a>(
    watchers: &'a mut [KubeWatchers],
    ours: &'a mut [KubeInformers],
    informers: &'a mut [ClientGo],
) -> impl Iterator<Item = &'a mut dyn Follower> {
    let watchers = watchers.iter_mut().map(|watcher| watcher as &mut dyn Follower);
    let ours = ours.iter_mut().map(|informer| informer as &mut dyn Follower);
    watchers.chain(ours).chain(informers.iter_mut().map(|informer| informer as &mut dyn Follower))
}

/// Waits until a client has the server's state.
fn catch_up(follower: &mut dyn Follower, truth: &Held, trouble: Trouble) {
    let began = Instant::now();
    loop {
        let held = follower.held();
        let wrong: Vec<String> =
            held.iter().flat_map(|(resource, held)| wrong(resource, &truth[resource], held)).collect();
        if wrong.is_empty() && !held.is_empty() {
            return;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{}, {trouble:?}: out of step: {} differ, as {:?}",
            follower.name(),
            wrong.len(),
            &wrong[..wrong.len().min(5)]
        );
        thread::sleep(Duration::from_millis(20));
    }
}

type Versions = BTreeMap<String, String>;

fn wrong(resource: &str, truth: &Versions, held: &Versions) -> Vec<String> {
    let missing = truth.iter().filter(|(key, version)| held.get(*key) != Some(version));
    let missing =
        missing.map(|(key, version)| format!("{resource} {key} is {version}, not {:?}", held.get(key)));
    let gone = held.keys().filter(|key| !truth.contains_key(*key));
    missing.chain(gone.map(|key| format!("{resource} {key} is gone"))).collect()
}

/// The resource versions of the server's objects.
async fn held(server: &ApiServer) -> Held {
    let mut held = Held::new();
    for resource in RESOURCES {
        let version = |(key, object): (String, Value)| {
            let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            (key, version.to_owned())
        };
        held.insert(resource.to_owned(), objects(server, resource).await.into_iter().map(version).collect());
    }
    held
}

/// The server's objects of a resource, by `namespace/name`.
async fn objects(server: &ApiServer, resource: &str) -> BTreeMap<String, Value> {
    let mut list = get(server, &format!("/api/v1/{resource}")).await;
    let keyed = |mut object: Value| {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = match text("namespace") {
            "" => text("name").to_owned(),
            namespace => format!("{namespace}/{}", text("name")),
        };
        drop_empty(&mut object);
        (key, object)
    };
    list["items"].as_array_mut().unwrap().drain(..).map(keyed).collect()
}

async fn get(server: &ApiServer, path: &str) -> Value {
    let request = Request::get(path).body(Empty::<Bytes>::new()).unwrap();
    let answer = server.service().oneshot(request).await.unwrap();
    serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

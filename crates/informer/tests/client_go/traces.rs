//! The same server, the same requests and the same outcome as client-go.
//!
//! `client-go-traces.json` records what client-go did. It omits times, which are random: within a
//! cycle, requests follow each other immediately, and the policy determines the waits between
//! cycles.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube_informers::{
    HandlerFuncs, HandlerOptions, InformerOptions, KubeListWatch, ReflectorOptions, SharedInformer, Typed,
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::server::{Answer, Verb, bookmark, client, list, pod, status};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Traces {
    client_go: String,
    seconds: u64,
    #[serde(rename = "traces")]
    all: Vec<Trace>,
}

#[derive(Deserialize)]
struct Trace {
    name: String,
    server: Server,
    cycles: Vec<Cycle>,
    outcome: Outcome,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Server {
    watch_list: String,
    list: String,
    /// One after another; the last repeats.
    watches: Vec<String>,
}

/// Requests that follow each other immediately.
#[derive(Deserialize)]
struct Cycle {
    times: usize,
    requests: Vec<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    errors: usize,
    adds: usize,
    updates: usize,
    same_version: usize,
    deletes: usize,
    synced: bool,
    last_version: String,
    store_version: String,
}

fn traces() -> Traces {
    let traces: Traces = serde_json::from_str(include_str!("client-go-traces.json")).unwrap();
    assert_eq!((traces.client_go.as_str(), traces.all.len()), ("v0.36.3", 7));
    traces
}

impl Server {
    fn answer(&self, verb: Verb, before: usize) -> Answer {
        let what = match verb {
            Verb::List => &self.list,
            Verb::WatchList => &self.watch_list,
            Verb::Watch => &self.watches[before.min(self.watches.len() - 1)],
        };
        let added = || ("ADDED", pod("a", "1"));
        match (what.as_str(), what.split_once(' ')) {
            ("a", _) => Answer::json(&list("10", &[pod("a", "1")])),
            ("refused", _) => Answer::refusal(422, "Invalid"),
            ("end", _) => Answer::events(&[]),
            ("quiet", _) => Answer::events(&[]).and_stay_open(),
            ("no end", _) => Answer::events(&[added()]).and_stay_open(),
            (_, Some(("end", version))) => {
                Answer::events(&[added(), ("BOOKMARK", bookmark(version, true))]).and_stay_open()
            }
            (_, Some(("bookmark", version))) => Answer::events(&[("BOOKMARK", bookmark(version, false))]),
            (_, Some(("refused", "410"))) => Answer::refusal(410, "Expired"),
            (_, Some(("refused", "500"))) => Answer::refusal(500, "InternalError"),
            (_, Some(("event", "410"))) => Answer::events(&[("ERROR", status(410, "Expired"))]),
            _ => unreachable!("no such answer: {what}"),
        }
    }
}

/// Runs an informer against the server. Returns its requests and its outcome.
async fn run(server: &Server, options: ReflectorOptions, seconds: u64) -> (Vec<(Duration, String)>, Outcome) {
    let server = server.clone();
    let (client, requests) = client(move |verb, before| server.answer(verb, before));
    let kind = Arc::new(Typed::<Pod>::new());
    let options = InformerOptions::default().reflector(options);
    let informer = SharedInformer::new(Arc::clone(&kind), KubeListWatch::new(client, kind), options);
    let counts: Arc<[AtomicUsize; 5]> = Arc::default();
    let count = |index: usize| {
        let counts = Arc::clone(&counts);
        move || {
            counts[index].fetch_add(1, Ordering::Relaxed);
        }
    };
    let (error, add, update, same, delete) = (count(0), count(1), count(2), count(3), count(4));
    informer.set_watch_error_handler(Arc::new(move |_, _| error())).unwrap();
    let handler = HandlerFuncs::<Pod>::new()
        .with_add(move |_, _| add())
        .with_update(move |old, new| {
            update();
            if old.metadata.resource_version == new.metadata.resource_version {
                same();
            }
        })
        .with_delete(move |_| delete());
    let registration = informer.add_event_handler(handler, HandlerOptions::default()).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&informer).run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    assert_eq!(informer.has_synced(), registration.has_synced());
    let [errors, adds, updates, same_version, deletes] =
        [0, 1, 2, 3, 4].map(|index| counts[index].load(Ordering::Relaxed));
    let outcome = Outcome {
        errors,
        adds,
        updates,
        same_version,
        deletes,
        synced: informer.has_synced(),
        last_version: informer.last_sync_resource_version(),
        store_version: informer.store().resource_version(),
    };
    stop.cancel();
    running.await.unwrap();
    let requests = requests.lock().clone();
    (requests, outcome)
}

/// Replaces the timeout of a watch by `T`, after checking its range.
fn normalised(uri: &str) -> String {
    let Some((before, rest)) = uri.split_once("timeoutSeconds=") else {
        return uri.to_owned();
    };
    let (seconds, after) = rest.split_at(rest.find('&').unwrap_or(rest.len()));
    assert!((300..600).contains(&seconds.parse::<u32>().unwrap()), "{uri}");
    format!("{before}timeoutSeconds=T{after}")
}

/// client-go waits for the end of initial events forever.
fn as_client_go() -> ReflectorOptions {
    // With this seed, as many cycles fit into the time as in client-go's recording.
    ReflectorOptions::default().initial_events_timeout(None).seed(1)
}

#[tokio::test(start_paused = true)]
async fn requests_and_outcomes_are_those_of_client_go() {
    let Traces { seconds, all, .. } = traces();
    for Trace { name, server, cycles, outcome } in all {
        let (requests, ours) = run(&server, as_client_go(), seconds).await;
        assert_eq!(ours, outcome, "{name}");
        let cycles: Vec<_> = cycles.iter().flat_map(|cycle| vec![&cycle.requests; cycle.times]).collect();
        let expected: Vec<_> = cycles.iter().copied().flatten().cloned().collect();
        let uris: Vec<_> = requests.iter().map(|(_, uri)| normalised(uri)).collect();
        assert_eq!(uris, expected, "{name}");

        let (mut at, mut base) = (Duration::ZERO, 0.8);
        let mut requests = requests.iter();
        for (n, cycle) in cycles.iter().enumerate() {
            let times: Vec<_> = requests.by_ref().take(cycle.len()).map(|(time, _)| *time).collect();
            let lasted = times[times.len() - 1].saturating_sub(times[0]);
            assert!(lasted < Duration::from_millis(10), "{name}: {times:?}");
            if n > 0 {
                let wait = times[0].saturating_sub(at).as_secs_f64();
                assert!((base..2.0 * base + 0.01).contains(&wait), "{name}: waited {wait} for {base}");
                base *= 2.0;
            }
            at = times[times.len() - 1];
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_without_end_is_replaced_by_a_list() {
    let traces = traces().all;
    let trace = traces.iter().find(|trace| trace.name.starts_with("G6")).unwrap();
    let (requests, outcome) = run(&trace.server, ReflectorOptions::default(), 90).await;
    let uris: Vec<_> = requests.iter().map(|(_, uri)| normalised(uri)).collect();
    let [list, watch] = &traces[0].cycles[0].requests[1..] else { panic!("a list and a watch") };
    assert_eq!(uris.iter().collect::<Vec<_>>(), [&trace.cycles[0].requests[0], list, watch]);
    assert_eq!(requests[1].0.as_secs(), 60);
    let synced = Outcome {
        adds: 1,
        synced: true,
        last_version: "10".to_owned(),
        store_version: "10".to_owned(),
        ..trace.outcome
    };
    assert_eq!(outcome, synced);
}

#[tokio::test(start_paused = true)]
async fn a_source_without_watch_list_is_never_asked_for_one() {
    let (client, requests) = client(|verb, _| match verb {
        Verb::List => Answer::json(&list("10", &[pod("a", "1")])),
        _ => Answer::events(&[]),
    });
    let kind = Arc::new(Typed::<Pod>::new());
    let source = KubeListWatch::new(client, Arc::clone(&kind)).watch_list(false);
    let options = InformerOptions::default().reflector(as_client_go());
    tokio::spawn(SharedInformer::new(kind, source, options).run(CancellationToken::new()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let uris: Vec<_> = requests.lock().iter().map(|(_, uri)| normalised(uri)).collect();
    let traces = traces().all;
    let [list, watch] = &traces[0].cycles[0].requests[1..] else { panic!("a list and a watch") };
    let relist = &traces[0].cycles[1].requests[1];
    assert_eq!(uris.iter().collect::<Vec<_>>(), [list, watch, relist, watch]);
}

#[tokio::test(start_paused = true)]
async fn the_detector_lists_at_the_version_of_initial_events() {
    let traces = traces().all;
    let trace = traces.iter().find(|trace| trace.name.starts_with("G10")).unwrap();
    let options = ReflectorOptions::default().detect_inconsistency(true);
    let (requests, outcome) = run(&trace.server, options, 30).await;
    let uris: Vec<_> = requests.iter().map(|(_, uri)| normalised(uri)).collect();
    let list = "/api/v1/pods?resourceVersion=12&resourceVersionMatch=Exact";
    assert_eq!(uris, [trace.cycles[0].requests[0].as_str(), list]);
    assert_eq!(outcome, trace.outcome);
}

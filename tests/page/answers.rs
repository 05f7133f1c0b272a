//! Answers as the state behind them changes, on a page whose server is scripted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use http::StatusCode;
use serde_json::{Value, json};
use supercargo_page::{Node, Overview, Summary};
use supercargo_serving::{Loopback, QueryPage, QueryResponse, Site};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::browser::Browser;
use super::hostile::{files, page};
use crate::support::eventually;

const PATIENCE: Duration = Duration::from_secs(20);
/// The most blocks that the page draws, and a cluster with more.
const MOST_BLOCKS: usize = 200;
const POOLS: usize = 250;

/// What the server does, and how often it was asked.
#[derive(Default)]
struct Script {
    /// Whether the node has been deleted.
    is_gone: AtomicBool,
    asked: parking_lot::Mutex<BTreeMap<&'static str, usize>>,
}

impl Script {
    /// Counts a question. The first is 1.
    fn count(&self, path: &'static str) -> usize {
        let mut asked = self.asked.lock();
        let number = asked.entry(path).or_default();
        *number += 1;
        *number
    }

    fn asked(&self, path: &str) -> usize {
        self.asked.lock().get(path).copied().unwrap_or_default()
    }
}

/// The node's second pod is another one each time.
fn node(number: usize) -> Value {
    let pod = |name: String| json!({ "namespace": "default", "name": name, "cpu": "1", "memory": "1Gi", "priority": 0, "assumed": false });
    json!({
        "name": "n", "zone": "a", "pool": "", "cordoned": false, "taints": [],
        "labels": [{ "key": "asked", "value": number.to_string() }],
        "resources": [{ "name": "cpu", "requested": "9", "allocatable": "4", "share": 255 }],
        "pods": [pod("same".to_owned()), pod(format!("pod-{number}"))], "nominated": [],
    })
}

fn why() -> Value {
    let on = |node: &str| json!({ "node": node, "score": 10_000, "plugins": { "NodeResourcesFit": { "raw": 1, "normalized": 100, "weight": 100 } } });
    json!({
        "headline": "default/p is on node n", "hindrances": [], "keyReason": "", "triedAgainIf": [],
        "pod": { "namespace": "default", "name": "p", "node": "n" }, "nodes": 2, "message": "",
        "feasible": [on("n"), on("m")], "preemption": null, "refusals": [], "fixes": [],
    })
}

fn overview() -> Value {
    let node = |i: usize| Node {
        name: format!("n{i:03}").into(),
        zone: "a".into(),
        pool: "".into(),
        cpu: 255,
        memory: 0,
        pods: 0,
        is_cordoned: false,
    };
    let mut overview = Overview::new((0..POOLS).map(node).collect(), Summary::default()).snapshot();
    // No server of this version sends as many.
    let block = |i: usize| json!({ "zone": "a", "pool": format!("p{i:03}"), "tiles": 1 });
    overview["blocks"] = (0..POOLS).map(block).collect();
    overview["sequence"] = json!(1);
    overview["asOf"] = json!("2026-06-15T12:00:00Z");
    overview
}

/// The overview stays as it is, while the state gets newer.
fn stream() -> QueryResponse {
    let first = format!("event: snapshot\ndata: {}\n\n", overview());
    let later = futures::stream::unfold(1, async |second| {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let data = json!({ "sequence": 1, "asOf": format!("2026-06-15T12:{:02}:{:02}Z", second / 60 % 60, second % 60) });
        Some((format!("event: heartbeat\ndata: {data}\n\n").into(), second + 1))
    });
    QueryResponse::stream("text/event-stream", futures::stream::iter([first.into()]).chain(later).boxed())
}

/// An answer with the time of its state.
fn dated(value: Value) -> QueryResponse {
    let as_of = "2026-06-15T12:00:00Z".to_owned();
    QueryResponse::answer(value.to_string(), true).with("supercargo-as-of", as_of)
}

fn site(script: &Arc<Script>) -> Site {
    let answer = |path: &'static str, answer: fn(&Script, usize) -> QueryResponse| -> (String, QueryPage) {
        let script = Arc::clone(script);
        (format!("/insight/{path}"), page(move || answer(&script, script.count(path))))
    };
    let data = [
        ("/insight/stream".to_owned(), page(stream)),
        answer("node", |script, number| {
            if script.is_gone.load(Ordering::SeqCst) {
                return QueryResponse::error(StatusCode::NOT_FOUND, "not found".to_owned());
            }
            dated(node(number))
        }),
        answer("why", |_, _| dated(why())),
        answer("pod", |_, _| {
            dated(json!({ "place": "active", "attempts": 1, "since": "2026-06-15T12:00:00Z", "priority": 0 }))
        }),
        answer("what-if", |_, number| {
            dated(
                json!({ "headline": format!("run {number}"), "podsOfNodes": 0, "atRest": true, "pods": [] }),
            )
        }),
        answer("fits", |_, number| {
            dated(json!({ "headline": format!("fits {number}"), "byNode": {}, "limitedBy": [] }))
        }),
        answer("resilience", |_, number| {
            dated(json!({ "headline": format!("fails {number}"), "by": "node", "failures": [] }))
        }),
        answer("empty", |_, _| {
            let status = json!({ "kind": "Status", "code": 403, "message": "you may not ask" });
            QueryResponse::error(StatusCode::FORBIDDEN, status.to_string())
        }),
    ];
    Site { open: files(), data: data.into() }
}

/// A scripted server, whose link is open in the browser.
fn open(browser: &Browser, runtime: &tokio::runtime::Runtime) -> (Arc<Script>, String, DropGuard) {
    let (script, stop) = (Arc::default(), CancellationToken::new());
    let server = runtime.block_on(Loopback::bind("/insight/")).unwrap();
    let link = server.link();
    runtime.spawn(server.serve(site(&script), Arc::new(drop), stop.clone()));
    browser.look((1280, 800), "light");
    browser.open(&link);
    let page = link.split('#').next().unwrap().to_owned();
    (script, page, stop.drop_guard())
}

#[test]
fn answers_follow_the_state_and_leave_what_is_in_use() {
    let Some(browser) = Browser::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (script, page, _stop) = open(&browser, &runtime);
    browser.wait_for("h1", "250 nodes hold 0 pods");
    // The number of canvases has a limit, and so has a share.
    assert_eq!(browser.run("return document.querySelectorAll('canvas').length"), MOST_BLOCKS);
    browser.wait_for(".map", "50 more pools in the table only");
    browser.run("document.querySelector('canvas').focus()");
    browser.wait_for(".readout", "CPU > 127 %");

    // Numbers change, and the element with the focus stays.
    browser.open(&format!("{page}#/health"));
    browser.wait_for(".answer", "15 Jun 2026");
    browser.run("window.kept = [...document.querySelectorAll('.scroll')].at(-1); kept.focus()");
    let time = || browser.run("return kept.textContent");
    let before = time();
    eventually("a newer time", PATIENCE, || (time() != before).then_some(()), || time().to_string());
    assert_eq!(browser.run("return document.activeElement === kept && kept.isConnected"), true);

    // The overview stays the same, and the node does not.
    browser.open(&format!("{page}#/node/n"));
    browser.wait_for(".as-of", "As of 15 Jun 2026");
    browser.wait_for("table", "> 127 %");
    browser.wait_for(".labels", "asked=2");
    // A link in use stays, with what is around it.
    browser.run("window.kept = [...document.querySelectorAll('td a, th a')].at(-1); kept.focus()");
    let kept = browser.run("return kept.textContent");
    browser.wait_for(".as-of", "Part of it is older");
    let (before, is_kept) =
        (script.asked("node"), || browser.run("return document.activeElement === kept && kept.isConnected"));
    assert_eq!(is_kept(), true);
    browser.wait_for(".labels", &format!("asked={}", before + 1));
    assert_eq!((is_kept(), browser.run("return kept.textContent")), (json!(true), kept));
    browser.run("kept.blur()");
    let newest = format!("default/pod-{}", script.asked("node"));
    browser.wait_for("section:nth-of-type(2)", &newest);
    assert_eq!(browser.text(".as-of span + span"), "");
    // An answer about a node that is gone does not stay.
    script.is_gone.store(true, Ordering::SeqCst);
    browser.wait_for("h1", "Node n not found");
    assert_eq!(browser.run("return [...document.querySelectorAll('.labels, .problem')].length"), 0);
    assert_eq!(browser.run("return document.querySelector('.as-of').hidden"), true);

    // Weights: the largest is twice the scheduler's, and two nodes are alike.
    browser.open(&format!("{page}#/pod/default/p"));
    browser.wait_for(".key[role=status]", "These tie: n, m, with 10000 each.");
    let slider = "const it = document.querySelector('input[type=range]'); return [it.max, it.value]";
    assert_eq!(browser.run(slider), json!(["200", "100"]));
    browser.wait_for(".facts", "15 Jun 2026");
}

#[test]
fn questions_are_asked_again_only_when_wanted() {
    let Some(browser) = Browser::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (script, page, _stop) = open(&browser, &runtime);
    browser.open(&format!("{page}#/what-if?drain=n"));
    browser.wait_for("h1", "run 1");
    browser.click(".as-of button");
    browser.wait_for("h1", "run 2");
    // So does the link of the view that is shown.
    browser.open(&format!("{page}#/pending"));
    browser.run("document.querySelector('article').id = 'old'");
    browser.click("a[href='#/pending']");
    browser.wait_for("article:not(#old) h1", "404");

    // Each question of a view with three is asked by itself.
    browser.open(&format!("{page}#/capacity?pod=default%2Fp"));
    browser.wait_for("h1", "fits 1");
    let by = |at: usize| browser.click(&format!(".segments button:nth-child({at})"));
    by(1);
    browser.wait_for("main", "fails 1");
    by(2);
    browser.wait_for("main", "fails 2");
    by(2);
    browser.wait_for("main", "fails 3");
    assert_eq!(
        browser.run("return location.hash"),
        "#/capacity?pod=default%2Fp&by=topology.kubernetes.io%2Fzone"
    );
    assert_eq!(browser.run("return document.activeElement.textContent"), "Zones");
    browser.run("history.back()");
    browser.wait_for("main", "fails 4");
    // A refusal that is a `Status` is shown by its message.
    browser.click("section:last-of-type > button");
    browser.wait_for(".problem", "you may not ask");
    assert_eq!(browser.text(".problem"), "you may not ask");
    assert_eq!((script.asked("fits"), script.asked("empty")), (1, 1));
    assert_eq!(script.asked("what-if"), 2);
}

#[test]
fn a_browser_without_storage_and_a_lost_server_have_no_blank_page() {
    let Some(browser) = Browser::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let forbid = "for (const name of ['localStorage', 'sessionStorage']) {
        Object.defineProperty(window, name, { get() { throw new DOMException('forbidden', 'SecurityError'); } });
    }";
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": forbid }));
    let (_script, page, _stop) = open(&browser, &runtime);
    browser.wait_for("h1", "250 nodes hold 0 pods");
    browser.click("#theme");
    browser.wait_for("#theme", "Light");
    browser.devtools("Network.enable", &json!({}));
    browser.devtools("Network.setBlockedURLs", &json!({ "urls": ["*/session"] }));
    browser.open("about:blank");
    browser.open(&format!("{page}#secret=x"));
    browser.wait_for(".problem", "The server cannot be reached");
}

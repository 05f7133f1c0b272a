//! Answers as the state behind them changes, on a page whose server is scripted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
/// The most rows that a table shows at first, and a table with more.
const MOST_ROWS: usize = 200;
const ROWS: usize = 250;

/// What the server does, and how often it was asked.
#[derive(Default)]
struct Script {
    /// Whether the node has been deleted.
    is_gone: AtomicBool,
    /// Whether a tile changes with each state.
    is_changing: AtomicBool,
    /// Whether streams send nothing after their first part.
    is_quiet: AtomicBool,
    /// The last stream that is to end.
    ended: AtomicUsize,
    /// The number of streams that nobody reads any more.
    closed: AtomicUsize,
    /// The link that has not been used.
    next_link: parking_lot::Mutex<String>,
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

/// A stream while somebody reads it.
struct Read(Arc<Script>);

impl Drop for Read {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Ordering::SeqCst);
    }
}

/// Waits until the number after `before` in the text of an element is at least this.
fn wait_for_number(browser: &Browser, selector: &str, before: &str, least: usize) {
    let number = || {
        let text = browser.text(selector);
        let (_, rest) = text.split_once(before)?;
        rest.split(|it: char| !it.is_ascii_digit()).next()?.parse::<usize>().ok()
    };
    let enough = || number().filter(|number| *number >= least);
    eventually(&format!("{before}{least} or more"), PATIENCE, enough, || browser.text("main"));
}

/// The node's second pod is another one each time. A table of its pods does not show all at first.
fn node(number: usize) -> Value {
    let pod = |name: String| json!({ "namespace": "default", "name": name, "cpu": "1", "memory": "1Gi", "priority": 0, "assumed": false });
    let others = (2..ROWS).map(|i| format!("other-{i}"));
    let names = ["same".to_owned(), format!("pod-{number}")].into_iter().chain(others);
    json!({
        "name": "n", "zone": "a", "pool": "", "cordoned": false, "taints": [],
        "labels": [{ "key": "asked", "value": number.to_string() }],
        "resources": [{ "name": "cpu", "requested": "9", "allocatable": "4", "share": 255 }],
        "pods": names.map(pod).collect::<Vec<_>>(), "nominated": [],
    })
}

/// A score of both nodes is another one each time.
fn why(number: usize) -> Value {
    let plugins = json!({
        "ImageLocality": { "raw": 1, "normalized": number, "weight": 1 },
        "NodeResourcesFit": { "raw": 1, "normalized": 100, "weight": 100 },
    });
    let on = |node: &str| json!({ "node": node, "score": 10_000, "plugins": plugins });
    json!({
        "headline": "default/p is on node n", "hindrances": [], "keyReason": "", "triedAgainIf": [],
        "pod": { "namespace": "default", "name": "p", "node": "n" }, "nodes": 2, "message": "",
        "fitting": 2, "feasible": [on("n"), on("m")], "alike": [], "preemption": null, "refusals": [], "fixes": [],
    })
}

/// The first node has this many pods.
fn cluster(pods: u32) -> Overview {
    let node = |i: usize| Node {
        name: format!("n{i:03}").into(),
        zone: "a".into(),
        pool: "".into(),
        cpu: 255,
        memory: 0,
        pods: if i == 0 { pods } else { 0 },
        is_cordoned: false,
    };
    Overview::new((0..POOLS).map(node).collect(), Summary::default())
}

fn overview() -> Value {
    let mut overview = cluster(0).snapshot();
    // No server of this version sends as many.
    let block = |i: usize| json!({ "zone": "a", "pool": format!("p{i:03}"), "tiles": 1 });
    overview["blocks"] = (0..POOLS).map(block).collect();
    overview
}

/// A part of a stream. Each has a state that is newer, and another one than in other streams.
fn event(kind: &str, mut data: Value, (stream, second): (usize, u32)) -> bytes::Bytes {
    data["sequence"] = json!(1);
    data["asOf"] =
        json!(format!("2026-06-15T{:02}:{:02}:{:02}Z", 11 + stream, second / 60 % 60, second % 60));
    format!("event: {kind}\ndata: {data}\n\n").into()
}

/// The overview stays as it is unless the script says otherwise, while the state gets newer.
fn stream(script: &Arc<Script>, number: usize) -> QueryResponse {
    let first = event("snapshot", overview(), (number, 0));
    let later = futures::stream::unfold((Read(Arc::clone(script)), 1), move |(read, second)| async move {
        let script = &read.0;
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            if script.ended.load(Ordering::SeqCst) >= number {
                return None;
            }
            if !script.is_quiet.load(Ordering::SeqCst) {
                break;
            }
        }
        let at = (number, second);
        let part = if script.is_changing.load(Ordering::SeqCst) {
            let [before, after] = [second - 1, second].map(cluster);
            event("changes", after.changes_since(&before).unwrap().json(&after), at)
        } else {
            event("heartbeat", json!({}), at)
        };
        Some((part, (read, second + 1)))
    });
    QueryResponse::stream("text/event-stream", futures::stream::iter([first]).chain(later).boxed())
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
    let streams = Arc::clone(script);
    let data = [
        ("/insight/stream".to_owned(), page(move || stream(&streams, streams.count("stream")))),
        answer("node", |script, number| {
            if script.is_gone.load(Ordering::SeqCst) {
                return QueryResponse::error(StatusCode::NOT_FOUND, "not found".to_owned());
            }
            dated(node(number))
        }),
        answer("why", |_, number| dated(why(number))),
        answer("pod", |_, number| {
            if number > 1 {
                return QueryResponse::error(StatusCode::TOO_MANY_REQUESTS, "busy".to_owned());
            }
            dated(json!({ "place": "active", "attempts": 1, "since": "2026-06-15T12:00:00Z", "priority": 0 }))
        }),
        answer("what-if", |_, number| {
            if number == 3 {
                return QueryResponse::stream("application/json", futures::stream::pending().boxed());
            }
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
        answer("empty", |_, number| match number {
            1 => {
                let status = json!({ "kind": "Status", "code": 403, "message": "you may not ask" });
                QueryResponse::error(StatusCode::FORBIDDEN, status.to_string())
            }
            2 => dated(json!({ "headline": "none of 0", "nodes": [] })),
            _ => QueryResponse::unprocessable("error: there is no node".to_owned()),
        }),
    ];
    Site { open: files(), data: data.into() }
}

/// A scripted server, whose link is open in the browser.
fn open(browser: &Browser, runtime: &tokio::runtime::Runtime) -> (Arc<Script>, String, DropGuard) {
    let (script, stop): (Arc<Script>, _) = (Arc::default(), CancellationToken::new());
    let server = runtime.block_on(Loopback::bind("/insight/")).unwrap();
    let link = server.link();
    let next = Arc::clone(&script);
    let next_link = Arc::new(move |link| *next.next_link.lock() = link);
    runtime.spawn(server.serve(site(&script), next_link, stop.clone()));
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
    browser.wait_for(".map", "200 of 250 shown as tiles");
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
    wait_for_number(&browser, ".labels", "asked=", 2);
    // A link in use stays, with what is around it.
    browser.run("window.kept = [...document.querySelectorAll('td a, th a')].at(-1); kept.focus()");
    let kept = browser.run("return kept.textContent");
    let older = "Part of this answer is older. It updates when you leave it.";
    browser.wait_for(".as-of", older);
    let (before, is_kept) =
        (script.asked("node"), || browser.run("return document.activeElement === kept && kept.isConnected"));
    assert_eq!(is_kept(), true);
    wait_for_number(&browser, ".labels", "asked=", before + 1);
    assert_eq!((is_kept(), browser.run("return kept.textContent")), (json!(true), kept));
    browser.run("kept.blur()");
    wait_for_number(&browser, "section:nth-of-type(2)", "default/pod-", script.asked("node"));
    assert_eq!(browser.text(".as-of span + span"), "");
    // More rows stay, and so does a text that is read.
    let rows = || browser.run("return document.querySelector('section:nth-of-type(2) tbody').rows.length");
    assert_eq!(rows(), MOST_ROWS);
    browser.click("section:nth-of-type(2) .more");
    assert_eq!(rows(), ROWS);
    assert_eq!(browser.run("return document.activeElement.className"), "scroll");
    browser.run("document.activeElement.blur()");
    wait_for_number(&browser, "section:nth-of-type(2)", "default/pod-", script.asked("node") + 1);
    assert_eq!(rows(), ROWS);
    browser.click(".elsewhere summary");
    browser.wait_for(".elsewhere pre", "pod-");
    browser.run("window.kept = document.querySelector('.elsewhere pre'); kept.focus()");
    let read = browser.text(".elsewhere pre");
    wait_for_number(&browser, ".labels", "asked=", script.asked("node") + 1);
    assert_eq!(browser.text(".elsewhere pre"), read);
    browser.run("kept.blur()");
    wait_for_number(&browser, ".elsewhere pre", "\"pod-", script.asked("node"));
    // An answer about a node that is gone does not stay.
    script.is_gone.store(true, Ordering::SeqCst);
    browser.wait_for("h1", "Node n not found");
    assert_eq!(browser.run("return [...document.querySelectorAll('.labels, .problem')].length"), 0);
    assert_eq!(browser.run("return document.querySelector('.as-of').hidden"), true);

    // Weights: the largest is twice the scheduler's, and two nodes are alike.
    browser.open(&format!("{page}#/pod/default/p"));
    browser.wait_for(".key[role=status]", "These tie: n, m, with 1000");
    let slider = "const it = document.querySelector('[aria-label=\"Weight of NodeResourcesFit\"]');";
    assert_eq!(browser.run(&format!("{slider} return [it.max, it.value]")), json!(["200", "100"]));
    browser.wait_for(".facts", "15 Jun 2026");
    // A weight that is chosen while its part is older stays.
    browser.run(&format!("{slider} it.focus()"));
    browser.wait_for(".as-of", older);
    browser.run(&format!("{slider} it.value = 150; it.dispatchEvent(new Event('input')); it.blur()"));
    let note = || browser.text(".as-of span + span");
    eventually("a newer part", PATIENCE, || note().is_empty().then_some(()), note);
    assert_eq!(browser.run(&format!("{slider} return it.value")), "150");
    browser.wait_for(".key[role=status]", "With these weights, these tie: n, m, with 1500");
    // Facts stay while the scheduler is busy.
    let asked = || script.asked("pod");
    eventually("an answer", PATIENCE, || (asked() > 2).then_some(()), || asked().to_string());
    assert!(browser.text(".facts").contains("15 Jun 2026"));
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
    // A question whose answer does not come ends, and can be asked again.
    browser
        .run("window.limit = AbortSignal.timeout; AbortSignal.timeout = () => limit.call(AbortSignal, 100)");
    browser.click(".as-of button");
    browser.wait_for(".problem", "The server did not answer in time.");
    browser.run("AbortSignal.timeout = limit");
    browser.click(".as-of button");
    browser.wait_for("h1", "run 4");
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
    // What has failed can be asked again.
    let again = "section:last-of-type .as-of button";
    browser.click(again);
    browser.wait_for("section:last-of-type .as-of", "As of 15 Jun 2026");
    browser.click(again);
    browser.wait_for("section:last-of-type .key", "There is no node");
    assert_eq!(browser.text("section:last-of-type .as-of"), "Run again");
    browser.click(again);
    let asked = || script.asked("empty");
    eventually("a question", PATIENCE, || (asked() == 4).then_some(()), || asked().to_string());
    assert_eq!((script.asked("fits"), script.asked("what-if")), (1, 4));
}

#[test]
fn a_stream_that_ends_is_no_alarm_and_sleep_is() {
    let Some(browser) = Browser::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (script, page, _stop) = open(&browser, &runtime);
    browser.open(&format!("{page}#/health"));
    browser.wait_for("h1", "The scheduler answers");
    // The last state of a quiet cluster is older than a pause between streams.
    script.is_quiet.store(true, Ordering::SeqCst);
    wait_for_number(&browser, ".answer", "Last update", 3);
    browser.run(
        "window.alarms = [];
        const banner = document.getElementById('banner');
        new MutationObserver(() => { if (!banner.hidden) alarms.push(banner.textContent); })
            .observe(banner, { attributes: true, childList: true, subtree: true });",
    );
    let streams = || script.asked("stream");
    let wait_for_stream = |number| {
        eventually("a stream", PATIENCE, || (streams() >= number).then_some(()), || streams().to_string());
    };
    script.ended.store(1, Ordering::SeqCst);
    wait_for_stream(2);
    assert_eq!(browser.run("return alarms"), json!([]));
    browser.wait_for("#state", "live");

    // The computer sleeps for an hour: the state is old, and the stream is opened again.
    browser.run("const now = Date.now; Date.now = () => now() + 3_600_000");
    wait_for_stream(3);
    browser.wait_for("#state", "live");
    let ages =
        browser.run(r"return alarms.filter((text) => /What you see is 36\d\d s old/.test(text)).length");
    assert!(ages.as_u64() > Some(0), "{}", browser.run("return alarms"));
    assert_eq!(browser.run("return document.getElementById('banner').hidden"), true);
}

#[test]
fn a_tab_that_is_hidden_for_long_has_no_stream_and_comes_back() {
    let Some(browser) = Browser::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (script, page, _stop) = open(&browser, &runtime);
    browser.open(&format!("{page}#/node/n"));
    browser.wait_for("#state", "live");
    wait_for_number(&browser, ".labels", "asked=", 1);
    // A minute is a moment.
    browser.run(
        "const later = window.setTimeout;
        window.setTimeout = (then, millis, ...rest) => later(then, millis === 60_000 ? 50 : millis, ...rest);
        window.seen = (state) => {
            Object.defineProperty(document, 'visibilityState', { configurable: true, value: state });
            document.dispatchEvent(new Event('visibilitychange'));
        };
        window.alarms = [];
        const banner = document.getElementById('banner');
        new MutationObserver(() => { if (!banner.hidden) alarms.push(banner.textContent); })
            .observe(banner, { attributes: true });",
    );
    // Shorter than that, the stream stays.
    browser.run("seen('hidden'); seen('visible')");
    wait_for_number(&browser, ".labels", "asked=", script.asked("node") + 1);
    assert_eq!(script.asked("stream"), 1);
    browser.run("seen('hidden')");
    let closed = || script.closed.load(Ordering::SeqCst);
    eventually("the end of the stream", PATIENCE, || (closed() == 1).then_some(()), || closed().to_string());
    assert_eq!(script.asked("stream"), 1);
    browser.run("seen('visible')");
    let streams = || script.asked("stream");
    eventually("a stream", PATIENCE, || (streams() == 2).then_some(()), || streams().to_string());
    wait_for_number(&browser, ".labels", "asked=", script.asked("node") + 1);
    assert_eq!((browser.run("return alarms"), browser.text("#state")), (json!([]), "live".to_owned()));
}

#[test]
fn another_link_works_in_the_same_tab() {
    let Some(browser) = Browser::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (script, _page, _stop) = open(&browser, &runtime);
    browser.wait_for("h1", "250 nodes hold 0 pods");
    let link = || script.next_link.lock().clone();
    let next = eventually("a link", PATIENCE, || Some(link()).filter(|link| !link.is_empty()), String::new);
    browser.run("sessionStorage.clear(); window.kept = true");
    browser.open(&next);
    eventually("the link is used", PATIENCE, || (link() != next).then_some(()), link);
    browser.wait_for("h1", "250 nodes hold 0 pods");
    assert_eq!(browser.run("return [location.hash, window.kept ?? null]"), json!(["", null]));
}

#[test]
fn a_table_of_nodes_keeps_its_rows_and_says_when_it_is_older() {
    let Some(browser) = Browser::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (script, _page, _stop) = open(&browser, &runtime);
    browser.wait_for("h1", "250 nodes hold 0 pods");
    browser.click(".twin summary");
    browser.wait_for(".twin .more", "200 of 250 shown");
    let rows = || browser.run("return document.querySelector('.twin tbody').rows.length");
    assert_eq!(rows(), MOST_ROWS);
    browser.click(".twin .more");
    assert_eq!(rows(), POOLS);
    assert_eq!(browser.run("return document.activeElement.matches('.twin .scroll')"), true);
    // It stays as it is while it has the focus.
    let note = "return document.querySelector('.twin > p').hidden";
    assert_eq!(browser.run(note), true);
    browser.run("window.kept = document.querySelector('.twin .table')");
    script.is_changing.store(true, Ordering::SeqCst);
    let is_hidden = |hidden: bool| (browser.run(note) == hidden).then_some(());
    eventually("a note", PATIENCE, || is_hidden(false), || browser.text(".twin > p"));
    assert_eq!(browser.run("return kept.isConnected"), true);
    browser.run("document.activeElement.blur()");
    let is_replaced = || (browser.run("return kept.isConnected") == false).then_some(());
    eventually("a newer table", PATIENCE, is_replaced, || browser.text(".twin > p"));
    assert_eq!((browser.run(note), rows()), (json!(true), json!(POOLS)));
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

#[test]
fn a_paused_page_stays_as_it_is() {
    let Some(browser) = Browser::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (script, page, _stop) = open(&browser, &runtime);
    browser.wait_for("h1", "250 nodes hold 0 pods");
    script.is_changing.store(true, Ordering::SeqCst);
    let headline = || browser.text("h1");
    let changes = || (!headline().contains("hold 0 pods")).then_some(());
    eventually("the overview changes", PATIENCE, changes, headline);
    browser.open(&format!("{page}#/node/n"));
    wait_for_number(&browser, ".labels", "asked=", 2);

    // There is no stream, and nothing asks for it or for the node.
    browser.click("#pause");
    browser.wait_for("#state", "paused");
    let closed = || (script.closed.load(Ordering::SeqCst) == 1).then_some(());
    eventually("the stream ends", PATIENCE, closed, String::new);
    let (shown, asked) = (browser.text("main"), script.asked("node"));
    // Another view of the same state can be opened.
    browser.open(&format!("{page}#/capacity?pod=default%2Fp"));
    browser.wait_for("h1", "fits 1");
    assert_eq!((script.asked("stream"), script.asked("node")), (1, asked));
    browser.open(&format!("{page}#/node/n"));
    browser.wait_for(".labels", &format!("asked={}", asked + 1));
    assert_ne!(browser.text("main"), shown);
    assert_eq!(browser.run("return document.getElementById('banner').hidden"), true);

    browser.click("#pause");
    wait_for_number(&browser, ".labels", "asked=", asked + 2);
    assert_eq!((browser.text("#state"), script.asked("stream")), ("live".to_owned(), 2));
}

//! Names and messages by strangers, on every view.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use serde_json::{Value, json};
use supercargo_page::{ASSETS, Asset, HEADERS, INDEX, Node, Overview, Queue, Reason, Summary};
use supercargo_serving::{Loopback, QueryPage, QueryResponse, Site};
use tokio_util::sync::CancellationToken;

use super::browser::Browser;

/// Markup, a key of all objects, and characters that turn or end a line or are not seen.
const NAMES: [&str; 6] = [
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    "__proto__",
    "constructor",
    "left\u{202e}thgir\u{2066}\u{200f}\u{61c}\u{0}\u{ad}\u{180e}\u{3164}\u{fffa}\u{e0041}\n=cmd()",
    "javascript:window.hacked=1",
];

/// A page with the headers that the real one has.
pub(super) fn page(answer: impl Fn() -> QueryResponse + Send + Sync + 'static) -> QueryPage {
    let answer = Arc::new(answer);
    Arc::new(move |_| {
        let answer = Arc::clone(&answer);
        Box::pin(async move {
            HEADERS.iter().fold(answer(), |answer, (name, value)| answer.with(name, (*value).to_owned()))
        })
    })
}

fn overview() -> Value {
    let node = |(i, name): (usize, &&str)| Node {
        name: (*name).into(),
        zone: NAMES[(i + 1) % 6].into(),
        pool: NAMES[(i + 2) % 6].into(),
        cpu: 100,
        memory: 50,
        pods: 3,
        is_cordoned: i == 0,
    };
    let reasons = NAMES.iter().map(|name| Reason { plugins: vec![(*name).to_owned()], pods: 1 }).collect();
    let queue = Queue { unschedulable: 6, ..Queue::default() };
    let summary = Summary { queue, reasons, ..Summary::default() };
    let mut overview = Overview::new(NAMES.iter().enumerate().map(node).collect(), summary).snapshot();
    overview["sequence"] = json!(1);
    overview["asOf"] = json!("2026-01-01T00:00:00Z");
    overview
}

/// An answer for each question, whose texts are all by a stranger.
fn answers(name: &str) -> BTreeMap<&'static str, Value> {
    let refusal =
        json!({ "plugin": name, "text": name, "nodes": 1, "nodeNames": [name], "alone": 1, "left": 0 });
    let obstacle = json!({ "pod": format!("{name}/{name}"), "reason": name });
    let pod = json!({ "namespace": name, "name": name, "cpu": name, "memory": name, "priority": 0, "assumed": true, "pending": true });
    let devices = json!({ "class": name, "node": name, "allocated": 1, "tainted": 2, "free": 3 });
    let group = json!({
        "namespace": name, "name": name, "composite": name == NAMES[1], "children": [name], "parent": name, "gang": true,
        "minCount": 5, "topologyKey": name, "priority": 0, "pods": 2, "scheduled": 1, "waits": true,
        "members": [{ "name": name, "node": name }, { "name": name, "node": null }],
        "reason": { "status": name, "reason": name, "message": name },
    });
    let decision = |node: Option<&str>| {
        json!({
            "time": "2026-01-01T00:00:00.000Z", "namespace": name, "name": name, "node": node,
            "message": name, "attempt": 1, "waitedMillis": 3,
        })
    };
    let mut workloads = serde_json::Map::new();
    workloads.insert(name.to_owned(), json!(2));
    let mut scores = serde_json::Map::new();
    scores.insert(name.to_owned(), json!({ "raw": 1, "normalized": 2, "weight": 3 }));
    // One name has no node, so that the view shows fixes; the others have two.
    let on = |node: &str, score: u8| json!({ "node": node, "score": score, "plugins": scores });
    let feasible = if name == NAMES[0] { vec![] } else { vec![on(name, 6), on("n", 5)] };
    BTreeMap::from([
        (
            "why",
            json!({
                "headline": name, "hindrances": [name], "keyReason": name, "triedAgainIf": [name],
                "pod": { "namespace": name, "name": name, "node": null }, "nodes": 1, "message": name,
                "fitting": feasible.len(), "feasible": feasible,
                "alike": [{ "refusals": [0], "nodes": 1, "suchAs": [name] }], "preemption": null, "refusals": [refusal],
                "fixes": [{ "text": name }],
            }),
        ),
        (
            "pending",
            json!({ "headline": name, "reasons": [
                { "reason": name, "pods": 2, "workloads": workloads, "example": format!("{name}/{name}"), "fix": name },
            ] }),
        ),
        (
            "what-if",
            json!({ "headline": name, "podsOfNodes": 1, "atRest": false, "pods": [
                { "namespace": name, "name": name, "from": name, "to": name, "end": "Node", "preempted": true, "worse": false, "reason": "" },
                { "namespace": name, "name": name, "from": name, "end": name, "preempted": false, "worse": true, "reason": name },
            ] }),
        ),
        ("fits", json!({ "headline": name, "byNode": workloads, "limitedBy": [refusal] })),
        (
            "resilience",
            json!({ "headline": name, "by": "node", "failures": [{ "fails": name, "affected": 1, "down": 1, "first": obstacle }] }),
        ),
        (
            "empty",
            json!({ "headline": name, "nodes": [{ "node": name, "removable": false, "pods": 1, "obstacle": obstacle }] }),
        ),
        (
            "node",
            json!({
                "name": name, "zone": name, "pool": name, "cordoned": true,
                "taints": [{ "key": name, "value": name, "effect": name }],
                "labels": [{ "key": name, "value": name }],
                "resources": [{ "name": name, "requested": name, "allocatable": name, "share": 300 }],
                "devices": [devices],
                "pods": [pod], "nominated": [pod],
            }),
        ),
        (
            "pod",
            json!({ "place": name, "attempts": 1, "since": name, "firstTried": name, "backoffUntil": name, "priority": 0 }),
        ),
        ("decisions", json!({ "decisions": [decision(Some(name)), decision(None)] })),
        ("devices", json!({ "allocatedClaims": 1, "waitingClaims": 1, "devices": [devices] })),
        ("groups", json!({ "all": 1, "waiting": 1, "groups": [group] })),
        (
            "timeline",
            json!({ "headline": name, "logBegins": "2026-01-01T00:00:00.000Z", "events": [
                { "event": "Added", "time": "2026-01-01T00:00:00.000Z", "text": name },
                { "event": name, "time": "2026-01-01T00:00:00.000Z", "text": name },
            ] }),
        ),
        ("search", json!({ "nodes": [name], "pods": [pod] })),
    ])
}

/// The files of the page.
pub(super) fn files() -> BTreeMap<String, QueryPage> {
    let file = |path: String, asset: &'static Asset| {
        (path, page(move || QueryResponse::file(asset.content_type, asset.text)))
    };
    let assets = ASSETS.iter().map(|asset| file(format!("/insight/assets/{}", asset.name), asset));
    assets.chain([file("/insight/".to_owned(), &INDEX)]).collect()
}

/// A server whose cluster is all strange.
fn site(name: &'static str) -> Site {
    let answer = |(path, value): (&str, Value)| {
        (format!("/insight/{path}"), page(move || QueryResponse::answer(value.to_string(), true)))
    };
    let stream = page(|| {
        let event = format!("event: snapshot\ndata: {}\n\n", overview());
        let parts = futures::stream::iter([event.into()]).chain(futures::stream::pending());
        QueryResponse::stream("text/event-stream", parts.boxed())
    });
    Site {
        open: files(),
        data: answers(name).into_iter().map(answer).chain([("/insight/stream".to_owned(), stream)]).collect(),
    }
}

#[test]
fn names_and_messages_are_text_on_every_view() {
    let Some(browser) = Browser::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for name in NAMES {
        let stop = CancellationToken::new();
        let server = runtime.block_on(Loopback::bind("/insight/")).unwrap();
        let link = server.link();
        runtime.spawn(server.serve(site(name), Arc::new(drop), stop.clone()));
        browser.open(&link);
        browser.wait_for("h1", "6 nodes hold 18 pods; 6 pods wait");
        browser.run("document.querySelector('.twin').open = true; document.querySelector('canvas').focus()");
        browser.wait_for(".twin", "All nodes");
        looks_harmless(&browser, "overview");
        let encoded =
            percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string();
        let beside = percent_encoding::utf8_percent_encode(
            &format!("drain={encoded}"),
            percent_encoding::NON_ALPHANUMERIC,
        )
        .to_string();
        let page = link.split('#').next().unwrap();
        for (view, ready) in [
            ("pending".to_owned(), ".board"),
            (format!("pending?namespace={encoded}"), ".board"),
            (format!("pod/{encoded}/{encoded}"), if name == NAMES[0] { ".fixes" } else { ".slider" }),
            (format!("pod/{encoded}/{encoded}"), ".lanes"),
            (format!("node/{encoded}"), ".labels"),
            ("decisions".to_owned(), ".dot.failed"),
            ("groups".to_owned(), ".cells"),
            ("devices".to_owned(), ".racks"),
            (format!("what-if?drain={encoded}&copy={encoded}"), "table"),
            (format!("what-if?fail={encoded}&beside=fail%3Dx&beside={beside}"), ".meter"),
            (format!("capacity?pod={encoded}&by={encoded}&empty={encoded}"), "section:last-of-type table"),
            ("health".to_owned(), "table"),
            (format!("{encoded}/{encoded}?{encoded}={encoded}"), "h1"),
            ("%/%?%".to_owned(), "h1"),
        ] {
            browser.open(&format!("{page}#/{view}"));
            crate::support::eventually(
                &format!("{ready} on {view}"),
                std::time::Duration::from_secs(20),
                || {
                    (browser.run(&format!("return document.querySelector('main {ready}') !== null")) == true)
                        .then_some(())
                },
                || browser.text("main"),
            );
            browser.run("document.querySelectorAll('details').forEach((it) => { it.open = true; })");
            browser.find();
            browser.keys("n");
            browser.wait_for("#found:not([hidden])", "pending pod");
            looks_harmless(&browser, &view);
        }
        // Its stream ends before the server does.
        browser.open("about:blank");
        stop.cancel();
    }
}

fn looks_harmless(browser: &Browser, view: &str) {
    let seen = browser.run(
        r"return [
            window.hacked ?? null,
            document.querySelectorAll('img, script:not([src]), iframe').length,
            [...document.querySelectorAll('a[href]')].filter((it) => !it.getAttribute('href').startsWith('#')).length,
            /[\0\ufffa\p{Bidi_Control}\p{Default_Ignorable_Code_Point}]/u.test(document.body.textContent),
            ({}).hacked === undefined && Object.keys(Object.prototype).length === 0,
        ]",
    );
    assert_eq!(seen, json!([null, 0, 0, false, true]), "{view}");
    assert_eq!(browser.console(), [] as [String; 0], "{view}");
}

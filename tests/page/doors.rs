//! The page without a browser: who gets it, and with which headers.

use std::time::Duration;

use supercargo_page::HEADERS;

use super::bed::Door;
use crate::support::{eventually, get, output};

/// A node of the demo.
const NODE: &str = "\"a-01\"";

#[test]
fn only_the_files_are_for_everybody() {
    let demo = Door::open(&["demo", "--ui", "--speed=8", "--pods=20"]);
    let (origin, secret) = demo.link.split_once("/insight/#secret=").unwrap();
    for path in ["/insight/", "/insight/assets/main.js", "/insight/assets/page.css"] {
        let (status, headers, text) = get(&format!("{origin}{path}"), &[]);
        assert_eq!(status, 200, "{path}: {text}");
        for (name, value) in HEADERS {
            assert_eq!(headers[*name], *value, "{path}: {name}");
        }
        // A page of files alone knows nothing.
        assert!(!text.contains(NODE) && !text.contains(secret), "{path}");
    }
    for path in ["overview", "stream", "node?name=a-01", "search?text=a", "pending", "why?pod=web-01"] {
        assert_eq!(get(&format!("{origin}/insight/{path}"), &[]).0, 401, "{path}");
    }
    let (status, _, token) = get(&format!("{origin}/session"), &[("supercargo-secret", secret)]);
    assert_eq!(status, 200, "{token}");
    let bearer = format!("Bearer {token}");
    let ask = |path: &str| get(&format!("{origin}/insight/{path}"), &[("authorization", &bearer)]);
    let know = || (ask("overview").0 == 200).then_some(());
    eventually("the scheduler knows the cluster", Duration::from_secs(20), know, String::new);
    let (status, headers, text) = ask("stream");
    assert_eq!((status, &headers["content-type"]), (200, &"text/event-stream".parse().unwrap()), "{text}");
    assert!(text.starts_with("event: snapshot\ndata: {\"asOf\":\"") && text.contains(NODE), "{text}");
    assert_eq!(ask("node?name=a-01").0, 200);
    assert_eq!(ask("node?name=__proto__").0, 404);
    assert_eq!(ask("node").0, 404);
    assert_eq!(ask("search?text=%F0%9F%A6%80").0, 200);
    assert_eq!(ask("what-if").0, 400);
    assert_eq!(ask("why?pod=nobody&output=json").0, 422);
}

#[test]
fn ui_says_why_there_is_no_page() {
    let ended = output(&["ui", "--server=https://127.0.0.1:1", "--insecure-skip-tls-verify"]);
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(error.starts_with("error: cannot ask https://127.0.0.1:1"), "{error}");
}

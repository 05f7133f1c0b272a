//! A scheduler that goes away while its page is open.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use supercargo_apiserver::{ApiServer, Listen};

use super::bed::Door;
use super::browser::Browser;
use crate::e2e::ask;
use crate::support::{Supercargo, free_port, node, pods};

fn start(kubeconfig: &Path, port: u16) -> Supercargo {
    let port = format!("--secure-port={port}");
    let open = "--authorization-always-allow-paths=/insight/*";
    let supercargo =
        Supercargo::start(kubeconfig, None, &["--bind-address=127.0.0.1", &port, "--insight", open]);
    supercargo.wait_until_scheduling();
    supercargo
}

#[test]
fn a_lost_scheduler_is_shown_with_the_age_and_found_again() {
    let Some(browser) = Browser::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = ApiServer::default();
    let endpoint = runtime.block_on(server.listen(Listen::default())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    endpoint.write_kubeconfig(&kubeconfig).unwrap();
    let create =
        |path: &str, object: &Value| drop(runtime.block_on(ask(&server, Method::POST, path, object)));
    create("/api/v1/nodes", &node("node-a", &[], &[("cpu", "1")]));
    let (pods, more) = (pods("p", 12), pods("q", 1));
    let create_pod = |pod: &Value| create("/api/v1/namespaces/default/pods", pod);

    let port = free_port();
    let supercargo = start(&kubeconfig, port);
    let url = format!("--server=https://127.0.0.1:{port}");
    let page = Door::open(&["ui", &url, "--insecure-skip-tls-verify"]);
    browser.look((1280, 800), "light");
    browser.open(&page.link);
    browser.wait_for("h1", "1 node holds 0 pods; no pod waits");
    pods[..4].iter().for_each(create_pod);
    browser.wait_for("h1", "1 node holds 4 pods; no pod waits");
    pods[4..].iter().for_each(create_pod);
    browser.wait_for("h1", "1 node holds 10 pods; 2 pods wait");
    browser.wait_for(".reasons", "too little is free");
    // A link with the focus stays when its number changes.
    browser.run("window.kept = document.querySelector('.reasons a'); kept.focus()");
    create_pod(&more[0]);
    browser.wait_for(".reasons a .amount", "3");
    assert_eq!(browser.run("return document.activeElement === window.kept"), true);
    assert_eq!(browser.run("return document.getElementById('banner').hidden"), true);
    assert_eq!(browser.console(), [] as [String; 0]);

    drop(supercargo);
    browser.wait_for("#banner:not([hidden]) #why", "Trying again.");
    browser.wait_for("#state", "offline");
    // The age ticks, and is no part of the alert, which is read once.
    let changes = browser.run(
        r"return new Promise((resolve) => {
            const [ages, alerts] = [new Set(), []];
            new MutationObserver((changes) => alerts.push(...changes)).observe(document.getElementById('why'), { childList: true, characterData: true, subtree: true });
            const age = document.getElementById('age');
            new MutationObserver(() => {
                ages.add(/is \d+ s old/.exec(age.textContent)?.[0]);
                if (ages.size === 3) resolve([ages.has(undefined), alerts.length, age.closest('[role=alert], [role=status], [aria-live]')]);
            }).observe(age, { childList: true });
        })",
    );
    assert_eq!(changes, json!([false, 0, null]));
    // The last picture stays.
    assert_eq!(browser.text("h1"), "1 node holds 10 pods; 3 pods wait");
    let _supercargo = start(&kubeconfig, port);
    browser.wait_for("#state", "live");
    assert_eq!(browser.run("return document.getElementById('banner').hidden"), true);
    create("/api/v1/nodes", &node("node-b", &[], &[("cpu", "1")]));
    browser.wait_for("h1", "2 nodes hold 13 pods; no pod waits");

    // The chosen tile is the same node when others come before it, and keeps the focus.
    browser.run("window.kept = document.querySelector('canvas'); kept.focus()");
    browser.wait_for(".readout", "node-a");
    create("/api/v1/nodes", &node("node-0", &[], &[("cpu", "1")]));
    browser.wait_for("h1", "3 nodes hold 13 pods");
    browser.wait_for(".block", "3");
    assert!(browser.text(".readout").starts_with("node-a:"), "{}", browser.text(".readout"));
    assert_eq!(browser.run("return document.activeElement === window.kept"), true);
    // Another tab gets the same data only by a link of its own.
    browser.run("sessionStorage.clear()");
    browser.open("about:blank");
    browser.open(page.page());
    browser.wait_for("#banner:not([hidden])", "Open the link that the command printed last");
}

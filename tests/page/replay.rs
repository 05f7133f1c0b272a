//! A record on the page, with the bar that moves through its time.

use http::Method;
use serde_json::Value;
use supercargo_apiserver::{ApiServer, Listen};

use super::bed::Door;
use super::browser::Browser;
use crate::e2e::ask;
use crate::support::{Supercargo, answer, node, pods, segment};

/// WebDriver's code points.
const LEFT: char = '\u{e012}';
const END: char = '\u{e010}';
const HOME: char = '\u{e011}';

/// Records a run in which two of twelve pods find no room.
fn record(folder: &std::path::Path) -> String {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = ApiServer::default();
    let endpoint = runtime.block_on(server.listen(Listen::default())).unwrap();
    let kubeconfig = folder.join("kubeconfig");
    endpoint.write_kubeconfig(&kubeconfig).unwrap();
    let create =
        |path: &str, object: &Value| drop(runtime.block_on(ask(&server, Method::POST, path, object)));
    create("/api/v1/nodes", &node("node-a", &[], &[("cpu", "1")]));
    let records = folder.join("records");
    std::fs::create_dir(&records).unwrap();
    let prefix = records.join("record").display().to_string();
    let supercargo = Supercargo::start(&kubeconfig, None, &["--record", &prefix, "--secure-port=0"]);
    supercargo.wait_until_scheduling();
    for pod in &pods("p", 12) {
        create("/api/v1/namespaces/default/pods", pod);
    }
    for failed in ["default/p-10", "default/p-11"] {
        supercargo.wait_for_line(&[failed]);
    }
    supercargo.stop();
    segment(&records).display().to_string()
}

/// How many arrow keys go from the end of a record to before its first pod.
fn parts_since_pods(record: &str) -> usize {
    let text = std::fs::read_to_string(record).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let millis = |line: &Value| line["now"]["wall"].as_u64().unwrap() / 1000;
    let pods = lines.iter().find(|line| line["call"]["Handle"]["QueuedPod"].is_object()).unwrap();
    let [first, pods, last] = [&lines[0], pods, lines.last().unwrap()].map(millis);
    let part = (last - first).div_ceil(200).max(1);
    usize::try_from((last - pods) / part).unwrap() + 2
}

#[test]
fn a_record_is_shown_at_each_of_its_times() {
    let Some(browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let record = record(folder.path());
    let page = Door::open(&["ui", "--from", &record]);
    browser.look((1280, 800), "light");
    browser.open(&page.link);
    browser.wait_for("h1", "1 node holds 10 pods; 2 pods wait");
    browser.wait_for("#state", "replay");
    browser.check("a record");
    assert_eq!(browser.run("return document.querySelector('.cycles').children.length"), 120);

    // By keyboard to the beginning and back, and the focus stays on the bar.
    browser.run("document.querySelector('.scrub input').focus()");
    browser.keys(&HOME.to_string());
    browser.wait_for("h1", " 0 pods; no pod waits");
    browser.keys(&END.to_string());
    browser.wait_for("h1", "1 node holds 10 pods; 2 pods wait");
    assert_eq!(browser.run("return document.activeElement.type"), "range");
    // An arrow key goes a part of the record, not a millisecond.
    let part =
        "const it = document.querySelector('.scrub input'); return (it.max - it.value) / (it.max - it.min)";
    browser.keys(&LEFT.to_string());
    let part = browser.run(part).as_f64().unwrap();
    assert!((0.004..0.02).contains(&part), "{part}");
    browser.keys(&END.to_string());

    // Other views follow the bar, too.
    browser.open(&format!("{}#/pod/default/p-0", page.page()));
    browser.wait_for("h1", "default/p-0 is on node");
    browser.wait_for(".lanes", "Binding");
    browser.run("document.querySelector('.scrub input').focus()");
    browser.keys(&HOME.to_string());
    browser.wait_for("h1", "does not exist");
    // Playing all of it takes a minute, so it begins shortly before the pods.
    browser.keys(&END.to_string());
    browser.wait_for("h1", "default/p-0 is on node");
    browser.keys(&LEFT.to_string().repeat(parts_since_pods(&record)));
    browser.wait_for("h1", "does not exist");
    browser.click(".scrub button");
    browser.wait_for(".scrub button", "Pause");
    browser.wait_for("h1", "default/p-0 is on node");
    assert_eq!(browser.run("return document.getElementById('banner').hidden"), true);
    browser.look((360, 740), "dark");
    browser.check_reflow("a record");
    // A pod that does not exist yet is an answer, and the browser notes its status.
    let console = browser.console();
    assert!(console.iter().all(|line| line.contains("422")), "{console:?}");

    // A capture has one time.
    let (_, captured, _) = answer(&["capture", "--from", &record]);
    let capture = folder.path().join("capture");
    std::fs::write(&capture, captured).unwrap();
    let page = Door::open(&["ui", "--from", &capture.display().to_string()]);
    browser.open(&page.link);
    browser.wait_for("h1", "1 node holds 10 pods; 2 pods wait");
    browser.wait_for(".scrub", "A capture of ");
    assert!(browser.run("return document.querySelector('.scrub input')").is_null());
}

#[test]
fn a_file_that_is_no_record_is_refused() {
    let (code, _, error) = answer(&["ui", "--from", file!()]);
    assert_eq!(code, Some(1), "{error}");
    let expected = concat!(file!(), ": it is neither a record nor a capture");
    assert!(error.contains(expected), "{error}");
}

#[test]
fn options_of_another_state_are_refused() {
    for (args, problem) in [
        (["--from=x", "--context=y"], "cannot be used with"),
        (["--from=x", "--kubeconfig=y"], "cannot be used with"),
        (["--server=https://x", "--feature-gates=AllAlpha=true"], "require --from"),
        (["--server=https://x", "--emulated-version=1.36"], "require --from"),
    ] {
        let (code, _, error) = answer(&[&["ui"], &args[..]].concat());
        assert!(code != Some(0) && error.contains(problem), "{args:?}: {error}");
    }
}

//! `supercargo timeline` and `replay --timeline` on an API server in memory.

use http::Method;
use serde_json::{Value, json};
use supercargo_apiserver::{ApiServer, Listen};

use super::insight::start;
use super::wire::ask;
use crate::support::{answer, free_port, node, pod, segment};

/// The page shows the answer of this test.
const GUIDE: &str = include_str!("../../docs/timeline.md");

/// The last column of the table, without times.
fn events(text: &str) -> Vec<String> {
    let mut events: Vec<String> = Vec::new();
    for line in text.lines() {
        match line.split_at_checked(34) {
            Some((time, event)) if time.starts_with("20") => events.push(event.to_owned()),
            Some((indent, more)) if indent.trim().is_empty() => {
                let last = events.last_mut().unwrap();
                *last += " ";
                *last += more;
            }
            _ => {}
        }
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_followed_by_a_running_supercargo_and_in_a_record() {
    let server = ApiServer::default();
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    endpoint.write_kubeconfig(&kubeconfig).unwrap();
    let create = async |path: &str, object: &Value| ask(&server, Method::POST, path, object).await;
    create("/api/v1/nodes", &node("small", &[], &[("cpu", "2"), ("pods", "10")])).await;
    let (record, port) = (folder.path().join("record").display().to_string(), free_port());
    let open = "--authorization-always-allow-paths=/insight/*";
    let supercargo = start(&kubeconfig, port, &["--insight", open, "--record", &record]);
    create("/api/v1/namespaces/default/pods", &pod("web").by("supercargo").asking("cpu", "4").build()).await;
    supercargo.wait_for_line(&["default/web"]);
    create("/api/v1/nodes", &node("large", &[], &[("cpu", "8"), ("pods", "10")])).await;
    supercargo.wait_for_line(&["Successfully assigned default/web"]);

    let url = format!("https://127.0.0.1:{port}");
    let running = ["--server", &url, "--insecure-skip-tls-verify"];
    let timeline = |arguments: &[&str]| answer(&[&["timeline"], arguments, &running].concat());
    let (code, printed, error) = timeline(&["web"]);
    assert_eq!((code, &*error), (Some(0), ""), "{printed}");
    assert!(printed.starts_with("default/web is on large: bound, "), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    let (code, json, _) = timeline(&["default/web", "--output=json"]);
    let parsed: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &parsed["events"][0]["event"]), (Some(0), &json!("Added")), "{json}");
    let (code, nothing, error) = timeline(&["nobody"]);
    assert_eq!((code, &*nothing), (Some(3), ""));
    assert_eq!(error, "error: the log has nothing about pod default/nobody\n");
    let (code, _, error) = answer(&["timeline", "web"]);
    assert!(code == Some(3) && error.contains("--leader or --server"), "{error}");
    supercargo.stop();

    let record = segment(folder.path()).display().to_string();
    let replay = |pod: &str| answer(&["replay", &record, "--timeline", pod]);
    let (code, replayed, error) = replay("default/web");
    assert_eq!((code, &*error), (Some(0), ""), "{replayed}");
    assert_eq!(events(&replayed), events(&printed));
    assert_eq!(replay("default/nobody").0, Some(3));

    let off = start(&kubeconfig, port, &["--insight", open, "--timeline-memory=0"]);
    let (code, _, error) = timeline(&["web"]);
    assert!(code == Some(3) && error.contains("--timeline-memory=0"), "{error}");
    off.stop();
    assert_eq!(events(GUIDE), events(&replayed), "docs/timeline.md does not have\n{replayed}");
}

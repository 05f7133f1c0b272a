//! Captures and records as the source of answers, on an API server in memory.

use std::fs;

use http::Method;
use serde_json::{Value, json};
use supercargo_apiserver::{ApiServer, Listen};

use super::insight::start;
use super::wire::ask;
use crate::support::{answer, free_port, node, pod, segment};

/// The answer without the time of the file.
fn without_time((code, text, error): (Option<i32>, String, String)) -> (Option<i32>, String, String) {
    let text = match text.strip_prefix("{\n  \"asOf\": \"20") {
        Some(json) => format!("{{\n{}", json.split_once('\n').unwrap().1),
        None => text.strip_prefix("As of 20").unwrap().split_once("\n\n").unwrap().1.to_owned(),
    };
    (code, text, error)
}

const OTHER_GATES: &str = "warning: the given feature gates replace other ones of the file\n";

/// The gates of the run at version 1.36 are in its capture, and in a capture of that.
fn check_gates(file: &str, captured: &str, again: &str) {
    let begin = |text: &str| serde_json::from_str::<Value>(text.lines().next().unwrap()).unwrap();
    let version = |text: &str| begin(text)["call"]["Begin"][2]["version"].clone();
    assert_eq!([version(captured), version(again)], ["1.36", "1.36"]);
    for version_of_file in ["1.36", "1.37"] {
        let given = format!("--emulated-version={version_of_file}");
        let (code, printed, warning) = answer(&["capture", "--from", file, &given]);
        assert_eq!((code, version(&printed)), (Some(0), version_of_file.into()));
        assert_eq!(warning, if version_of_file == "1.36" { "" } else { OTHER_GATES });
    }
    // Earlier versions did not write them.
    let mut old = begin(captured);
    old["call"]["Begin"].as_array_mut().unwrap().truncate(2);
    let (_, rest) = captured.split_once('\n').unwrap();
    let path = format!("{file}.old");
    fs::write(&path, format!("{old}\n{rest}")).unwrap();
    let (code, printed, warning) = answer(&["capture", "--from", &path]);
    assert_eq!((code, version(&printed), &*warning), (Some(0), "1.37".into(), ""));
}

/// No name is left, from the cluster or from a file, and questions have the same answers.
fn check_redacted(file: &str, of_running: (Option<i32>, String, String)) {
    let path = format!("{file}.redacted");
    let of_file = || answer(&["capture", "--redact", "--from", file]);
    let all = [of_running, of_file(), of_file()];
    for (code, text, error) in &all {
        assert_eq!((code, &**error), (&Some(0), ""));
        for name in ["node-a", "node-b", "small", "large"] {
            assert!(!text.contains(name), "{name} in {text}");
        }
        fs::write(&path, text).unwrap();
        let (code, pending, error) = answer(&["pending", "--from", &path, "--output=json"]);
        assert_eq!((code, &*error), (Some(1), ""));
        let pending: Value = serde_json::from_str(&pending).unwrap();
        let plain = answer(&["pending", "--from", file, "--output=json"]).1;
        let plain: Value = serde_json::from_str(&plain).unwrap();
        assert_eq!(pending["pods"], plain["pods"], "{pending:#}");
    }
    assert_ne!(all[1].1, all[2].1, "each has a secret of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_capture_and_a_record_answer_as_the_scheduler_did() {
    let server = ApiServer::default();
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let kubeconfig = folder.path().join("kubeconfig");
    endpoint.write_kubeconfig(&kubeconfig).unwrap();
    let create = async |path: &str, object: &Value| ask(&server, Method::POST, path, object).await;
    for (name, memory) in [("node-a", "4Gi"), ("node-b", "8Gi")] {
        create("/api/v1/nodes", &node(name, &[], &[("memory", memory), ("pods", "10")])).await;
    }
    let port = free_port();
    let open = "--authorization-always-allow-paths=/insight/*";
    let version = "--emulated-version=1.36";
    let supercargo = start(&kubeconfig, port, &["--insight", open, version, "--record", &path("record")]);
    for (name, memory) in [("small", "1Gi"), ("large", "16Gi")] {
        let pod = pod(name).by("supercargo").asking("memory", memory).build();
        create("/api/v1/namespaces/default/pods", &pod).await;
        supercargo.wait_for_line(&[&format!("default/{name}")]);
    }

    let url = format!("https://127.0.0.1:{port}");
    let running = ["--server", &url, "--insecure-skip-tls-verify"];
    supercargo.wait_for_line(&["Successfully assigned default/small"]);
    let (code, captured, error) = answer(&[&["capture"], &running[..]].concat());
    assert_eq!((code, &*error), (Some(0), ""), "{captured}");
    let capture = path("capture");
    fs::write(&capture, &captured).unwrap();
    let questions: [(i32, &[&str]); 7] = [
        (1, &["why", "large"]),
        (1, &["why", "large", "--output=json"]),
        (0, &["why", "small", "--node=node-a"]),
        (0, &["fits", "small", "--count=2"]),
        (1, &["pending"]),
        (1, &["what-if", "--fail=node-a", "--fail=node-b"]),
        (0, &["timeline", "small"]),
    ];
    let answers: Vec<_> =
        questions.iter().map(|(_, question)| answer(&[question, &running[..]].concat())).collect();
    let redacted = answer(&[&["capture", "--redact"], &running[..]].concat());
    supercargo.stop();
    check_redacted(&capture, redacted);
    for ((code, question), live) in questions.iter().zip(&answers) {
        let from_file = without_time(answer(&[question, &["--from", &capture][..]].concat()));
        assert_eq!(&from_file, live, "{question:?}");
        assert_eq!(live.0, Some(*code), "{question:?}");
    }
    // A capture of a capture.
    let (code, again, error) = answer(&["capture", "--from", &capture]);
    assert_eq!((code, &*error), (Some(0), ""));
    assert_eq!(again.lines().count(), captured.lines().count());
    check_gates(&capture, &captured, &again);
    let cut = path("cut");
    fs::write(&cut, captured.lines().take(3).collect::<Vec<_>>().join("\n") + "\n").unwrap();
    for (arguments, problem) in [
        (&["why", "large", "--from", &cut][..], "the capture is cut off after line 3"),
        (&["replay", &capture], "ask questions with --from"),
        (&["why", "large", "--watch", "--from", &capture], "--watch"),
    ] {
        let (code, printed, error) = answer(arguments);
        assert!(code == Some(2) && printed.is_empty() && error.contains(problem), "{code:?} {error}");
    }

    // The record knows every moment of the run.
    let record = segment(folder.path()).display().to_string();
    assert_eq!(without_time(answer(&["why", "large", "--from", &record])), answers[0]);
    let (code, _, warning) = answer(&["replay", &record]);
    assert_eq!((code, &*warning), (Some(0), ""));
    let (code, _, warning) = answer(&["replay", &record, "--emulated-version=1.37"]);
    assert_eq!((code, &*warning), (Some(0), OTHER_GATES));
    let (code, _, error) = answer(&["why", "large", "--from", &record, "--timeout=0s"]);
    assert!(code == Some(3) && error.contains("no answer within 0 s"), "{error}");
    let first: Value =
        serde_json::from_str(fs::read_to_string(&record).unwrap().lines().next().unwrap()).unwrap();
    let began = first["now"]["wall"].as_i64().unwrap() / 1_000_000;
    let at = |seconds: i64| format!("--at={}", jiff::Timestamp::from_second(began + seconds).unwrap());
    let (code, _, error) = answer(&["why", "large", "--from", &record, &at(-5)]);
    assert!(code == Some(3) && error.contains("begins after"), "{error}");
    let (code, printed, warning) = answer(&["why", "large", "--from", &record, &at(3600)]);
    assert!(warning.starts_with("warning: the record ends at 20"), "{warning}");
    assert_eq!(without_time((code, printed, String::new())), answers[0]);

    // Another configuration, without the plugin that refuses.
    let other = path("other.yaml");
    let plugins = json!({ "filter": { "disabled": [{ "name": "NodeResourcesFit" }] } });
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{ "schedulerName": "supercargo", "plugins": plugins }],
    });
    fs::write(&other, config.to_string()).unwrap();
    let (code, printed, error) = answer(&["why", "large", "--from", &capture, "--config", &other]);
    assert_eq!((code, &*error), (Some(0), ""), "{printed}");

    // Without a scheduler, the cluster is captured.
    let (code, read, error) = answer(&["capture", "--kubeconfig", &kubeconfig.display().to_string()]);
    assert_eq!((code, &*error), (Some(0), ""));
    fs::write(&capture, read).unwrap();
    assert_eq!(answer(&["why", "large", "--from", &capture]).0, Some(1));
    for (arguments, problem) in [
        (["why", "large", "--from", "/nothing"], "cannot read /nothing"),
        (["timeline", "nobody", "--from", &capture], "nothing about pod default/nobody"),
        (["why", "nobody", "--from", &capture], "does not exist"),
    ] {
        let (code, _, error) = answer(&arguments);
        assert!(code == Some(3) && error.contains(problem), "{error}");
    }
}

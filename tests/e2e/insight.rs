//! Questions to a running supercargo, on an API server in memory.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use supercargo_apiserver::{ApiServer, Listen};
use supercargo_controlplane::ChildProcess;

use super::wire::ask;
use crate::support::{Supercargo, answer, command, eventually, free_port, node, pod};

/// What is not in the cluster, in a file beside something else.
const MANIFEST: &str = "\
kind: Service
metadata: {name: web}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        env: [{name: TOKEN, value: secret}]
        resources: {limits: {memory: 5Gi}}
";

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Starts supercargo with these arguments. Only this test can reach it.
pub(super) fn start(kubeconfig: &Path, port: u16, args: &[&str]) -> Supercargo {
    let port = format!("--secure-port={port}");
    let supercargo =
        Supercargo::start(kubeconfig, None, &[&["--bind-address=127.0.0.1", &port], args].concat());
    supercargo.wait_until_scheduling();
    supercargo
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_supercargo_answers_as_a_command_does() {
    let server = ApiServer::default();
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    endpoint.write_kubeconfig(&kubeconfig).unwrap();
    let create = async |path: &str, object: &Value| ask(&server, Method::POST, path, object).await;
    for (name, memory) in [("node-a", "4Gi"), ("node-b", "8Gi")] {
        create("/api/v1/nodes", &node(name, &[], &[("memory", memory), ("pods", "10")])).await;
    }
    for (name, memory) in [("large", "16Gi"), ("small", "1Gi")] {
        create(PODS, &pod(name).by("supercargo").asking("memory", memory).build()).await;
    }

    let port = free_port();
    let open = "--authorization-always-allow-paths=/insight/*";
    let supercargo = start(&kubeconfig, port, &["--insight", open]);
    let (kubeconfig, url) = (kubeconfig.display().to_string(), format!("https://127.0.0.1:{port}"));
    supercargo.wait_for_line(&["Successfully assigned default/small"]);
    supercargo.wait_for_line(&["default/large"]);
    let from = |source: &[&str], arguments: &[&str]| answer(&[arguments, source].concat());
    let running = ["--server", &url, "--insecure-skip-tls-verify"];
    let file = folder.path().join("web.yaml");
    fs::write(&file, MANIFEST).unwrap();
    let file = file.display().to_string();
    let questions: [(i32, &[&str]); 10] = [
        (1, &["why", "large"]),
        (1, &["why", "default/large", "--node=node-b", "--output=json"]),
        (0, &["why", "small"]),
        (0, &["fits", "small", "--count=2"]),
        (0, &["why", "-f", &file]),
        (1, &["fits", "--filename", &file, "--count=2"]),
        (1, &["pending", "--namespace=default"]),
        (1, &["what-if", "--fail=node-a", "--fail=node-b", "--copy=small=3"]),
        (1, &["resilience"]),
        (0, &["empty", "--nodes=node-a"]),
    ];
    for (code, question) in questions {
        let (read, answered) = (from(&["--kubeconfig", &kubeconfig], question), from(&running, question));
        assert_eq!(answered, read, "{question:?}\n{}", supercargo.log_tail());
        assert_eq!((answered.0, &*answered.2), (Some(code), ""), "{question:?}: {}", answered.1);
    }

    let error = |arguments: &[&str]| {
        let (code, printed, error) = from(&running, arguments);
        assert_eq!((code, &*printed), (Some(3), ""), "{arguments:?}: {error}");
        error
    };
    assert_eq!(error(&["why", "nobody"]), "error: pod default/nobody does not exist or has ended\n");
    assert!(error(&["what-if", "--drain=node-c"]).contains("node-c"));
    let long = folder.path().join("long.yaml");
    fs::write(&long, MANIFEST.replace("app: web", &format!("app: {}", "x".repeat(20_000)))).unwrap();
    assert!(error(&["why", "-f", &long.display().to_string()]).contains("--standalone"));
    assert!(error(&["why", "-f", "/nothing"]).starts_with("error: cannot read /nothing: "));
    let (code, _, error) = answer(&["pending", "--server", &url]);
    assert!(code == Some(3) && error.contains("certificate"), "{error}");
    let (code, _, error) = answer(&["pending", "--server", &url, "--token-file=/nothing"]);
    assert!(code == Some(3) && error.contains("/nothing"), "{error}");

    // The scheduler binds the pod once there is room.
    let mut watch = Watch::start(&[&["why", "large", "--watch"], &running[..]].concat());
    watch.wait_for("default/large is pending");
    create("/api/v1/nodes", &node("node-c", &[], &[("memory", "32Gi"), ("pods", "10")])).await;
    assert_eq!(watch.code(), Some(0), "{}", watch.printed());
    watch.wait_for("default/large is on node node-c");

    drop(supercargo);
    let (code, _, error) = from(&running, &["why", "large"]);
    assert!(code == Some(3) && error.starts_with(&format!("error: cannot ask {url}")), "{error}");
    assert!(error.matches("client error").count() == 1 && !error.contains("ServiceError"), "{error}");

    // Without the flag there is no such path; without permission the path stays hidden.
    let port = free_port();
    let without = start(Path::new(&kubeconfig), port, &[open]);
    let url = format!("https://127.0.0.1:{port}");
    let (code, _, error) = answer(&["pending", "--server", &url, "--insecure-skip-tls-verify"]);
    assert!(code == Some(3) && error.contains("runs without --insight"), "{error}");
    drop(without);
    let port = free_port();
    let closed = start(Path::new(&kubeconfig), port, &["--insight"]);
    let url = format!("https://127.0.0.1:{port}");
    let (code, _, error) = answer(&["pending", "--server", &url, "--insecure-skip-tls-verify"]);
    assert!(code == Some(3) && error.contains("--token-file"), "{error}");
    drop(closed);
}

/// A command with `--watch`.
struct Watch {
    process: ChildProcess,
    folder: tempfile::TempDir,
}

impl Watch {
    fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let output = fs::File::create(folder.path().join("output")).unwrap();
        let mut command = command(args);
        command.stdout(output.try_clone().unwrap()).stderr(output);
        Self { process: ChildProcess::spawn(&mut command, Some(folder.path())).unwrap(), folder }
    }

    fn printed(&self) -> String {
        fs::read_to_string(self.folder.path().join("output")).unwrap()
    }

    fn wait_for(&self, text: &str) {
        let find = || self.printed().contains(text).then_some(());
        eventually(text, Duration::from_mins(1), find, || self.printed());
    }

    /// The exit code, once it has ended.
    fn code(&mut self) -> Option<i32> {
        let ended = || self.process.exited().unwrap();
        eventually("the watch ends", Duration::from_mins(1), ended, String::new).code()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_the_cluster_prints_what_changes() {
    let server = ApiServer::default();
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    endpoint.write_kubeconfig(&kubeconfig).unwrap();
    let kubeconfig = kubeconfig.display().to_string();
    let create = async |path: &str, object: &Value| ask(&server, Method::POST, path, object).await;
    create("/api/v1/nodes", &node("small", &[], &[("memory", "4Gi"), ("pods", "10")])).await;
    create(PODS, &pod("large").by("supercargo").asking("memory", "16Gi").build()).await;

    let mut why = Watch::start(&["why", "large", "-w", "--kubeconfig", &kubeconfig]);
    let mut pending = Watch::start(&["pending", "--watch", "--kubeconfig", &kubeconfig]);
    why.wait_for("default/large is pending");
    pending.wait_for("1 pod is pending");
    create("/api/v1/nodes", &node("wide", &[], &[("memory", "32Gi"), ("pods", "10")])).await;
    why.wait_for("default/large fits on 1 of 2 nodes; the best is wide");
    pending.wait_for("fits, and waits for its turn");
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "large" },
        "target": { "kind": "Node", "name": "wide" },
    });
    create(&format!("{PODS}/large/binding"), &binding).await;
    assert_eq!(why.code(), Some(0), "{}", why.printed());
    assert!(why.printed().contains("default/large is on node wide"), "{}", why.printed());
    pending.wait_for("No pod is pending");
    create(PODS, &pod("larger").by("supercargo").asking("memory", "64Gi").build()).await;
    pending.wait_for("supercargo why default/larger");

    // The exit code is that of the last answer.
    pending.process.signal("INT").unwrap();
    assert_eq!(pending.code(), Some(1), "{}", pending.printed());
    let printed = pending.printed();
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");

    for args in [&["pending"][..], &["pending", "--watch"]] {
        let (code, _, error) = answer(&[args, &["--feature-gates=GenericWorkloads=true"]].concat());
        assert_eq!(code, Some(2), "{error}");
    }
    let (code, _, error) = answer(&["why", "nobody", "--watch", "--kubeconfig", &kubeconfig]);
    assert!(code == Some(3) && error.contains("does not exist"), "{error}");
}

#[test]
fn ctrl_c_ends_a_watch_that_still_reads_its_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("manifest");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut why = Watch::start(&["why", "--watch", "-f", &pipe.display().to_string()]);
    // Opens once the command reads.
    let writer = fs::File::options().write(true).open(&pipe).unwrap();
    why.process.signal("INT").unwrap();
    assert_eq!(why.code(), None, "{}", why.printed());
    drop(writer);
}

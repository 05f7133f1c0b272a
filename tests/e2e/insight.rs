//! Questions to a running supercargo, on an API server in memory.

use std::path::Path;

use http::Method;
use serde_json::Value;
use supercargo_apiserver::{ApiServer, Listen};

use super::wire::ask;
use crate::support::{Supercargo, answer, free_port, node, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Starts supercargo with these arguments. Only this test can reach it.
fn start(kubeconfig: &Path, port: u16, args: &[&str]) -> Supercargo {
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
    let questions: [(i32, &[&str]); 8] = [
        (1, &["why", "large"]),
        (1, &["why", "default/large", "--node=node-b", "--output=json"]),
        (0, &["why", "small"]),
        (0, &["fits", "small", "--count=2"]),
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
    let (code, _, error) = answer(&["pending", "--server", &url]);
    assert!(code == Some(3) && error.contains("certificate"), "{error}");
    let (code, _, error) = answer(&["pending", "--server", &url, "--token-file=/nothing"]);
    assert!(code == Some(3) && error.contains("/nothing"), "{error}");
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

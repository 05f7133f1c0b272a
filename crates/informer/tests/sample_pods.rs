//! Runs the example `pods` to its end.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

#[allow(dead_code, missing_docs, reason = "a program whose entry point is unused here")]
#[path = "../examples/pods.rs"]
mod pods;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use parking_lot::Mutex;
use pods::Options;
use supercargo_apiserver::sim::{self, Simulation};
use supercargo_apiserver::{ApiServer, Listen};
use tokio_util::sync::CancellationToken;

/// The cluster in the beginning.
const CLUSTER: &str = "
{apiVersion: v1, kind: Node, metadata: {name: node-a}}
---
{apiVersion: v1, kind: Node, metadata: {name: node-b}}
---
apiVersion: v1
kind: Pod
metadata: {name: dns, namespace: kube-system}
spec: {nodeName: node-a, containers: [{name: dns, image: dns}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop}
spec: {nodeName: node-a, containers: [{name: web, image: web}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-2, namespace: shop}
spec: {nodeName: node-b, containers: [{name: web, image: web}]}
";

/// Starts a cluster whose pods come and go until the result is dropped.
fn cluster(server: &ApiServer) -> (Simulation, impl Drop + use<>) {
    server.load(CLUSTER).unwrap();
    let simulation = server.simulate(&sim::Options::default());
    let end = CancellationToken::new();
    let pods = Api::namespaced(Client::new(server.service(), "shop"), "shop");
    tokio::spawn(end.clone().run_until_cancelled_owned(come_and_go(pods)));
    (simulation, end.drop_guard())
}

/// Creates a pod every other second, and deletes the oldest.
async fn come_and_go(pods: Api<Pod>) {
    for number in 3_u32.. {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": format!("web-{number}")},
            "spec": {"nodeName": "node-b", "containers": [{"name": "web", "image": "web"}]},
        }));
        pods.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
        pods.delete(&format!("web-{}", number - 2), &DeleteParams::default()).await.unwrap();
    }
}

/// Output that the test reads.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Screen {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        text.lines().map(str::to_owned).collect()
    }
}

fn options(arguments: &[&str]) -> Result<Options, String> {
    Options::parse(arguments.iter().map(ToString::to_string))
}

/// The output during these seconds, with a paused clock.
async fn output_of(arguments: &[&str]) -> Vec<String> {
    let server = ApiServer::default();
    let screen = Screen::default();
    let changes = cluster(&server);
    let (client, output) = (Client::new(server.service(), "default"), Arc::new(Mutex::new(screen.clone())));
    pods::watch(&options(arguments).unwrap(), client, "home", output).await.unwrap();
    drop(changes);
    screen.lines()
}

fn count(lines: &[String], line: &str) -> usize {
    lines.iter().filter(|one| *one == line).count()
}

#[tokio::test(start_paused = true)]
async fn pods_example_prints_changes_and_the_lister_content() {
    let lines = output_of(&["--for", "5s"]).await;
    assert_eq!(lines[0], "Pods at home, resynced every 60s:");
    let mut initial = lines[1..4].to_vec();
    initial.sort();
    let keys = ["kube-system/dns", "shop/web-1", "shop/web-2"];
    assert_eq!(initial, keys.map(|key| format!("New Pod Added to Store: {key}")));
    let cache = [
        "The lister's cache has 3 pods:",
        "  kube-system/dns on node-a",
        "  shop/web-1 on node-a",
        "  shop/web-2 on node-b",
    ];
    assert_eq!(lines[4..8], cache);
    for key in ["shop/web-3", "shop/web-4"] {
        assert_eq!(count(&lines, &format!("New Pod Added to Store: {key}")), 1, "{lines:#?}");
        assert!(count(&lines, &format!("{key} Updated to {key}")) > 0, "it runs soon: {lines:#?}");
    }
    for key in ["shop/web-1", "shop/web-2"] {
        assert_eq!(count(&lines, &format!("Pod Deleted from Store: {key}")), 1, "{lines:#?}");
    }
    assert_eq!(lines.last().map(String::as_str), Some("The informer has stopped."));
}

#[tokio::test(start_paused = true)]
async fn pods_example_resyncs_after_a_minute() {
    let updates = async |arguments: &[&str]| {
        let lines = output_of(arguments).await;
        let quiet = "kube-system/dns Updated to kube-system/dns";
        assert!(!lines.iter().any(|line| line == "Pod Deleted from Store: kube-system/dns"));
        count(&lines, quiet)
    };
    let at_first = updates(&["--for", "59"]).await;
    assert_eq!(updates(&["--for", "61"]).await, at_first + 1);
    assert_eq!(updates(&["--for", "61", "--resync", "0"]).await, at_first);
    assert_eq!(updates(&["--for", "61", "--resync", "20s"]).await, at_first + 3);
    assert_eq!(updates(&["--for", "61", "--namespace", "shop"]).await, 0);
}

#[tokio::test]
async fn pods_example_connects_to_the_cluster_of_a_kubeconfig() {
    let server = ApiServer::default();
    let _changes = cluster(&server);
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pods_example_kubeconfig.json");
    endpoint.write_kubeconfig(&file).unwrap();
    let screen = Screen::default();
    let output = Arc::new(Mutex::new(screen.clone()));
    let arguments = ["--kubeconfig", file.to_str().unwrap(), "--for", "1"];
    let outcome = pods::run(&options(&arguments).unwrap(), output).await;
    std::fs::remove_file(file).unwrap();
    outcome.unwrap();
    let lines = screen.lines();
    assert!(lines[0].starts_with("Pods at https://127.0.0.1:"), "{lines:?}");
    assert_eq!(count(&lines, "The lister's cache has 3 pods:"), 1, "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("The informer has stopped."));
}

#[tokio::test]
async fn pods_example_reports_errors() {
    for (arguments, error) in [
        (&["--kubeconfig"][..], "--kubeconfig requires a value"),
        (&["--for", "ever"], "\"ever\" is not a number of seconds"),
        (&["--faster"], "unknown argument \"--faster\""),
    ] {
        let text = options(arguments).unwrap_err();
        assert!(text.starts_with(error) && text.contains("\nusage: pods "), "{text}");
    }
    let missing = options(&["--kubeconfig", "/nowhere/kubeconfig"]).unwrap();
    let error = pods::run(&missing, Arc::new(Mutex::new(Screen::default()))).await.unwrap_err();
    assert!(error.to_string().starts_with("kubeconfig /nowhere/kubeconfig: "), "{error}");
}

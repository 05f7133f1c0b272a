//! Operations on a running scheduler: reload its configuration and inspect it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_apiserver::{ApiServer, Endpoint, Listen, Settings};
use tempfile::TempDir;

use crate::support::{Cluster, Extender, Supercargo, config, eventually, node, node_of, pod};

/// An API server in memory with a node, and a folder for files.
struct TestBed {
    _endpoint: Endpoint,
    _runtime: tokio::runtime::Runtime,
    folder: TempDir,
    cluster: Cluster,
}

impl TestBed {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let server = ApiServer::new(Settings::default());
        let endpoint = runtime.block_on(server.listen(Listen::default())).unwrap();
        endpoint.write_kubeconfig(&kubeconfig).unwrap();
        let cluster = Cluster::at(&kubeconfig);
        cluster.create(&node("n1", &[], &[("cpu", "4")]));
        Self { _endpoint: endpoint, _runtime: runtime, folder, cluster }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Starts a scheduler that watches this configuration file.
    fn start(&self, file: &Path) -> Supercargo {
        let args = ["--config", file.to_str().unwrap(), "--config-reload-period=100ms"];
        let supercargo = Supercargo::start(&self.kubeconfig(), None, &args);
        supercargo.wait_until_scheduling();
        supercargo
    }

    fn wait_until_bound(&self, supercargo: &Supercargo, name: &str) {
        let bound = || node_of(&self.cluster.pod("default", name)).map(drop);
        eventually(&format!("{name} is bound"), Duration::from_secs(30), bound, || supercargo.log_tail());
    }
}

/// Replaces a file atomically, as the kubelet does.
fn replace(file: &Path, text: &str) {
    let next = file.with_extension("next");
    fs::write(&next, text).unwrap();
    fs::rename(&next, file).unwrap();
}

#[test]
fn reload_applies_valid_config_and_ignores_invalid() {
    let bed = TestBed::new();
    let file = bed.folder.path().join("config.yaml");
    replace(&file, &config(&["first"]));
    let supercargo = bed.start(&file);
    bed.cluster.create(&pod("early").by("second").build());
    bed.cluster.create(&pod("of-first").by("first").build());
    bed.wait_until_bound(&supercargo, "of-first");
    assert_eq!(node_of(&bed.cluster.pod("default", "early")), None);

    replace(&file, &config(&["first", "second"]));
    supercargo.wait_for_line(&["reloaded", "generation=2"]);
    bed.wait_until_bound(&supercargo, "early");

    replace(&file, &config(&["first"]).replace("schedulerName", "schedulerNam"));
    let refused = supercargo.wait_for_line(&["rejected"]);
    assert!(refused.contains(r#"unknown field; did you mean "schedulerName"?"#), "{refused}");
    let limited = config(&["first"]).replacen('{', r#"{"clientConnection":{"qps":7},"#, 1);
    replace(&file, &limited);
    supercargo.wait_for_line(&["clientConnection cannot change while supercargo runs"]);
    bed.cluster.create(&pod("late").by("second").build());
    bed.wait_until_bound(&supercargo, "late");
    supercargo.stop();
}

#[test]
fn sigusr2_compares_and_dumps_the_cache() {
    let bed = TestBed::new();
    let file = bed.folder.path().join("config.yaml");
    replace(&file, &config(&["first"]));
    let supercargo = bed.start(&file);
    bed.cluster.create(&pod("small").by("first").build());
    bed.cluster.create(&pod("large").by("first").asking("cpu", "8").build());
    bed.wait_until_bound(&supercargo, "small");
    supercargo.wait_for_log("Insufficient cpu");
    supercargo.signal("USR2");
    let summary = supercargo.wait_for_line(&["Dump of scheduling queue"]);
    assert!(summary.contains("activeQ:0; backoffQ:0; unschedulableEntities:1"), "{summary}");
    supercargo.wait_for_line(&["name: large, namespace: default"]);
    supercargo.wait_for_line(&["Node name: n1"]);
    supercargo.wait_for_line(&["Scheduled Pods(number: 1):"]);
    assert!(!supercargo.log().contains("Cache mismatch"), "{}", supercargo.log_tail());
    supercargo.stop();
}

/// The attributes of a span as text.
fn reported<'a>(span: &'a Value, key: &str) -> &'a str {
    let mut attributes = span["attributes"].as_array().unwrap().iter();
    let attribute = attributes.find(|attribute| attribute["key"] == key);
    attribute.and_then(|attribute| attribute["value"]["stringValue"].as_str()).unwrap_or_default()
}

/// The start and end of a span in nanoseconds.
fn times(span: &Value) -> (u64, u64) {
    let [from, to] = ["startTimeUnixNano", "endTimeUnixNano"].map(|field| span[field].as_str().unwrap());
    (from.parse().unwrap(), to.parse().unwrap())
}

#[test]
fn collector_receives_spans_of_a_successful_attempt() {
    let bed = TestBed::new();
    // It answers like a collector that accepts everything.
    let collector = Extender::start(|_, _| (200, json!({})));
    let endpoint = format!("--tracing-endpoint={}", collector.url());
    let supercargo = Supercargo::start(&bed.kubeconfig(), Some(&config(&["first"])), &[&endpoint]);
    supercargo.wait_until_scheduling();
    bed.cluster.create(&pod("small").by("first").build());
    bed.wait_until_bound(&supercargo, "small");
    // Remaining spans are sent before the end.
    supercargo.stop();

    let requests = collector.calls("traces");
    let spans: Vec<&Value> = requests
        .iter()
        .flat_map(|body| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap())
        .collect();
    let root = *spans.iter().find(|span| span["name"] == "scheduling attempt").unwrap();
    assert_eq!((reported(root, "k8s.pod.name"), reported(root, "k8s.node.name")), ("small", "n1"));
    assert_eq!(
        (reported(root, "supercargo.profile"), reported(root, "supercargo.result")),
        ("first", "scheduled")
    );
    let uid = bed.cluster.pod("default", "small")["metadata"]["uid"].clone();
    assert_eq!(reported(root, "k8s.pod.uid"), uid);
    let (began, ended) = times(root);
    assert!(began < ended);
    for point in ["Filter", "Score", "Bind"] {
        let is_it = |span: &&&Value| span["name"] == point && span["parentSpanId"] == root["spanId"];
        let span = *spans.iter().find(is_it).unwrap_or_else(|| panic!("no {point} in {spans:#?}"));
        let (from, to) = times(span);
        assert!(began <= from && from <= to && to <= ended, "{point}: {span:#?}");
    }
}

//! Replays a recorded run.

use std::fs;
use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use supercargo_apiserver::{ApiServer, Listen};
use supercargo_controlplane::shared_or_skip;

use super::wire::ask;
use crate::support::{Cluster, Supercargo, answer, config, node, pod, segment};

/// The page shows the answers of this file.
const GUIDE: &str = include_str!("../../docs/replay.md");

const LABEL: (&str, &str) = ("e2e", "replay");

/// Records a run in which pods are bound, wait, are deleted, are gated, and find a late node.
fn record(cluster: &Cluster, supercargo: &Supercargo) {
    let ns = "e2e-replay";
    let mine = |name: &str| pod(name).within(ns).by("e2e-replay").on(LABEL);
    for index in 0..40 {
        cluster.create(&mine(&format!("small-{index}")).asking("cpu", "50m").build());
    }
    let gates = json!([{ "name": "example.com/wait" }]);
    cluster.create(&mine("gated").spec("schedulingGates", gates).build());
    cluster.create(&mine("large").asking("cpu", "3").build());
    cluster.create(&mine("unwanted").asking("cpu", "64").build());
    cluster.condition(ns, "large", "Unschedulable");
    cluster.condition(ns, "unwanted", "Unschedulable");
    cluster.delete_pod(ns, "unwanted");
    cluster.patch_pod(ns, "gated", &json!({ "spec": { "schedulingGates": null } }));
    cluster.create(&node("replay-late", &[LABEL], &[("cpu", "4"), ("memory", "4Gi")]));
    assert_eq!(cluster.bound_node(ns, "large"), "replay-late");
    cluster.bound_node(ns, "gated");
    for index in 0..40 {
        cluster.bound_node(ns, &format!("small-{index}"));
    }
    supercargo.wait_for_line(&["Successfully assigned e2e-replay/large"]);
}

fn replay(record: &Path) -> (Option<i32>, String, String) {
    answer(&["replay", &record.display().to_string()])
}

#[test]
fn recorded_run_replays_and_altered_record_differs() {
    let Some(plane) = shared_or_skip() else { return };
    let cluster = Cluster::of(plane);
    cluster.namespace("e2e-replay");
    for index in 0..3 {
        let name = format!("replay-{index}");
        cluster.create(&node(&name, &[LABEL], &[("cpu", "2"), ("memory", "4Gi")]));
    }
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("record");
    // The record has it.
    let config = config(&["e2e-replay"]);

    let kubeconfig = plane.kubeconfig("system:kube-scheduler").unwrap();
    let supercargo = Supercargo::start(&kubeconfig, Some(&config), &["--record", prefix.to_str().unwrap()]);
    supercargo.wait_until_scheduling();
    record(&cluster, &supercargo);
    supercargo.stop();

    let path = segment(folder.path());
    let text = fs::read_to_string(&path).unwrap();
    let steps = text.lines().count();
    let (code, out, error) = replay(&path);
    assert_eq!(
        (code, out.as_str()),
        (Some(0), &*format!("{steps} steps, every decision the same\n")),
        "{error}"
    );
    assert!(text.lines().filter(|line| line.contains("Bind e2e-replay/")).count() >= 42);

    // The same pods on other nodes.
    let altered = folder.path().join("altered");
    let bind = text.lines().position(|line| line.contains("Bind e2e-replay/large")).unwrap();
    let mut lines: Vec<String> = text.lines().map(|line| line.to_owned() + "\n").collect();
    lines[bind] = lines[bind].replace(" to replay-late\"", " to replay-0\"");
    fs::write(&altered, lines.concat()).unwrap();
    let (code, _, error) = replay(&altered);
    assert_eq!(code, Some(1));
    assert!(error.contains(&format!("line {}: ", bind + 1)) && error.contains("replay-late"), "{error}");

    // A record that a crash has cut off.
    let cut = folder.path().join("cut");
    fs::write(&cut, &text[..text.len() - 20]).unwrap();
    let (code, out, error) = replay(&cut);
    assert_eq!(code, Some(0), "{error}");
    assert!(out.starts_with(&format!("{} steps, ", steps - 1)), "{out}");
    assert!(error.contains("the last line is cut off"), "{error}");
}

/// Packs nodes, and ignores taints.
const OTHER: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: supercargo
  plugins:
    filter:
      disabled: [{name: TaintToleration}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 10}]}
";

/// Each run has other times and steps.
fn without_first_difference(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("The first difference is in step ")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_configuration_decides_about_a_record() {
    let server = ApiServer::default();
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let kubeconfig = folder.path().join("kubeconfig");
    endpoint.write_kubeconfig(&kubeconfig).unwrap();
    let create = async |path: &str, object: &Value| ask(&server, Method::POST, path, object).await;
    for name in ["node-a", "node-b", "node-c"] {
        let mut node = node(name, &[], &[("cpu", "8"), ("memory", "8Gi"), ("pods", "10")]);
        if name == "node-c" {
            node["spec"]["taints"] = json!([{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }]);
        }
        create("/api/v1/nodes", &node).await;
    }
    let supercargo = Supercargo::start(&kubeconfig, None, &["--record", &path("record"), "--secure-port=0"]);
    supercargo.wait_until_scheduling();
    for (name, cpu) in [("web-1", "2"), ("web-2", "2"), ("wide", "7")] {
        let pod = pod(name).by("supercargo").asking("cpu", cpu).build();
        create("/api/v1/namespaces/default/pods", &pod).await;
        supercargo.wait_for_line(&[&format!("default/{name}")]);
    }
    supercargo.stop();

    let record = segment(folder.path()).display().to_string();
    let other = path("other.yaml");
    fs::write(&other, OTHER).unwrap();
    let (code, printed, error) = answer(&["replay", &record, "--with", &other]);
    assert_eq!((code, &*error), (Some(1), ""), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    assert!(GUIDE.contains(&printed) && GUIDE.contains(OTHER), "docs/replay.md does not have\n{printed}");
    let (code, printed, _) = answer(&["replay", &record, "--with", &other, "-ojson"]);
    let parsed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &parsed["otherNode"], &parsed["onlyOther"]), (Some(1), &json!(1), &json!(1)));

    let (code, printed, error) = answer(&["replay", &record, "--with", &other, "--closed-loop"]);
    assert_eq!((code, &*error), (Some(1), ""), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    let shown = without_first_difference(&printed);
    assert!(without_first_difference(GUIDE).contains(&shown), "docs/replay.md does not have\n{printed}");
    let (code, printed, error) = answer(&["replay", &record, "--closed-loop", "-ojson"]);
    let parsed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &*error), (Some(0), ""), "{printed}");
    assert_eq!((&parsed["firstDifference"], &parsed["modelled"]), (&Value::Null, &json!(true)));

    let (code, printed, error) = answer(&["replay", &record, "--influence"]);
    assert_eq!((code, &*error), (Some(0), ""), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    assert!(GUIDE.contains(&printed), "docs/replay.md does not have\n{printed}");
    let (_, printed, _) = answer(&["replay", &record, "--influence", "-ojson"]);
    let parsed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&parsed["attempts"], &parsed["placed"]), (&json!(3), &json!(2)), "{printed}");

    // The same configuration, with every default written out.
    let (_, default, _) = answer(&["config", "default"]);
    fs::write(path("same.yaml"), default).unwrap();
    let (code, printed, error) = answer(&["replay", &record, "--with", &path("same.yaml")]);
    assert_eq!((code, &*printed, &*error), (Some(0), "No decision differs, of 3 decisions\n", ""));

    let (code, printed, error) = answer(&["replay", &record, "-ojson"]);
    assert_eq!((code, &*printed), (Some(2), ""), "{error}");

    let (code, printed, error) = answer(&["replay", &record, "--with=/nothing"]);
    assert_eq!((code, &*printed), (Some(3), ""));
    assert!(error.contains("/nothing"), "{error}");
}

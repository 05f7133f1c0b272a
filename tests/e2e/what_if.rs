//! `supercargo what-if`, `resilience`, `empty` and `pending` on an API server in memory, with no
//! scheduler running.

use http::Method;
use serde_json::{Value, json};
use supercargo_apiserver::{ApiServer, Listen};

use super::wire::ask;
use crate::support::{answer, node, pod};

/// The pages show the answers of this test.
const GUIDES: &str = concat!(include_str!("../../docs/what-if.md"), include_str!("../../docs/why.md"));
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A pod of a ReplicaSet on a node.
fn replica(name: &str, memory: &str, on: &str) -> Value {
    let mut pod = pending(name, memory);
    pod["spec"]["nodeName"] = json!(on);
    pod
}

/// A pod of a ReplicaSet without a node.
fn pending(name: &str, memory: &str) -> Value {
    let mut pod = pod(name).by("supercargo").asking("memory", memory).build();
    let app = name.split('-').next().unwrap();
    pod["metadata"]["labels"] = json!({ "app": app });
    let owner =
        json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": true });
    pod["metadata"]["ownerReferences"] = json!([owner]);
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_simulated_changes_are_as_documented() {
    let server = ApiServer::default();
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    endpoint.write_kubeconfig(&kubeconfig).unwrap();
    let create = async |path: &str, object: &Value| ask(&server, Method::POST, path, object).await;
    for (name, memory) in [("node-a", "16Gi"), ("node-b", "8Gi"), ("node-c", "4Gi")] {
        let zone = if name == "node-a" { "one" } else { "two" };
        let labels = [("topology.kubernetes.io/zone", zone)];
        create("/api/v1/nodes", &node(name, &labels, &[("memory", memory), ("pods", "10")])).await;
    }
    for replica in [
        replica("web-1", "2Gi", "node-a"),
        replica("web-2", "2Gi", "node-a"),
        replica("db-1", "6Gi", "node-a"),
        replica("cache-1", "3Gi", "node-b"),
    ] {
        create(PODS, &replica).await;
    }
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
        "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": "web" } } },
    });
    create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).await;

    let kubeconfig = kubeconfig.display().to_string();
    let answer = |command: &str, arguments: &[&str]| {
        answer(&[&[command, "--kubeconfig", &kubeconfig], arguments].concat())
    };
    let what_if = |arguments: &[&str]| answer("what-if", arguments);
    let mut missing = String::new();
    let mut show = |printed: &str| {
        assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
        if !GUIDES.contains(printed) {
            missing += printed;
        }
    };
    let (code, printed, error) = what_if(&["--drain", "node-a"]);
    assert_eq!((code, &*error), (Some(1), ""), "{printed}");
    show(&printed);

    let (code, printed, error) = what_if(&["--fail", "topology.kubernetes.io/zone=one", "--add", "node-b"]);
    assert_eq!((code, &*error), (Some(0), ""), "{printed}");
    show(&printed);

    let (code, printed, _) = what_if(&["--copy=db-1=2", "--output=json"]);
    let parsed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &parsed["worseOff"]), (Some(1), &json!(1)), "{printed}");

    let (code, printed, error) = answer("resilience", &[]);
    assert_eq!((code, &*error), (Some(1), ""), "{printed}");
    show(&printed);
    let (code, printed, _) = answer("resilience", &["--by=topology.kubernetes.io/zone", "-ojson"]);
    let parsed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &parsed["failures"][0]["fails"]), (Some(1), &json!("one")), "{printed}");

    let (code, printed, error) = answer("empty", &[]);
    assert_eq!((code, &*error), (Some(0), ""), "{printed}");
    show(&printed);
    let (code, printed, _) = answer("empty", &["--nodes=node-a", "-ojson"]);
    let parsed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &parsed["nodes"][0]["removable"]), (Some(1), &json!(false)), "{printed}");

    let (code, printed, error) = answer("pending", &[]);
    assert_eq!((code, &*printed, &*error), (Some(0), "No pod is pending\n", ""));
    for name in ["etl-1", "etl-2"] {
        create(PODS, &pending(name, "12Gi")).await;
    }
    create(PODS, &pending("report-1", "1Ti")).await;
    let (code, printed, error) = answer("pending", &[]);
    assert_eq!((code, &*error), (Some(1), ""), "{printed}");
    show(&printed);
    let (code, printed, _) = answer("pending", &["--namespace=other", "-ojson"]);
    let parsed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &parsed["reasons"]), (Some(0), &json!([])), "{printed}");

    for (arguments, problem) in [
        (["--drain", "node-x"], "there is no node node-x"),
        (["--drain", "zone=x"], "no node has the label zone=x"),
        (["--add", "node-a=many"], "node-a=many: many is not a number"),
        (["--delete", "nobody"], "pod default/nobody does not exist or has ended"),
    ] {
        let (code, printed, error) = what_if(&arguments);
        assert_eq!((code, &*printed), (Some(3), ""));
        assert!(error.contains(problem), "{error}");
    }
    let (code, ..) = what_if(&[]);
    assert_eq!(code, Some(2), "without a change");
    assert!(missing.is_empty(), "the pages do not have\n{missing}");
}

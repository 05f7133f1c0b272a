//! `supercargo why` on a real control plane, with no scheduler running.

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, Options, assets_or_skip};

use crate::support::{Cluster, answer, node, own_plane, pod};

/// The page shows the answer of this test.
const GUIDE: &str = include_str!("../../docs/why.md");

#[test]
fn why_explains_a_pending_pod_and_its_advice_helps() {
    let Some(plane) = own_plane() else { return };
    let cluster = Cluster::of(&plane);
    let taint = [json!({ "key": "gpu", "value": "yes", "effect": "NoSchedule" })];
    cluster.create(&node("small", &[], &[("cpu", "2"), ("memory", "8Gi"), ("pods", "10")]));
    let mut tainted = node("tainted", &[], &[("cpu", "8"), ("memory", "8Gi"), ("pods", "10")]);
    tainted["spec"]["taints"] = json!(taint);
    cluster.create(&tainted);
    cluster.create(&pod("wide").by("supercargo").asking("cpu", "4").build());

    let kubeconfig = plane.kubeconfig("admin").unwrap().display().to_string();
    let answer = |command: &str, arguments: &[&str]| {
        answer(&[&[command, "--kubeconfig", &kubeconfig], arguments].concat())
    };
    let why = |arguments: &[&str]| answer("why", arguments);
    let (code, printed, error) = why(&["wide"]);
    assert_eq!((code, &*error), (Some(1), ""), "{printed}");
    let mut missing = String::new();
    let mut show = |printed: &str| {
        if !GUIDE.contains(printed) {
            missing += printed;
        }
    };
    show(&printed);
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");

    let (code, printed, _) = why(&["pod/wide", "--output=json"]);
    let parsed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &parsed["nodes"]), (Some(1), &json!(2)));
    let codes: Vec<&str> =
        parsed["refusals"].as_array().unwrap().iter().map(|it| it["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["TaintNotTolerated", "ResourceShort"]);

    let (code, printed, _) = answer("fits", &["wide"]);
    assert_eq!((code, printed.lines().next()), (Some(1), Some("0 more pods like default/wide fit")));

    let (code, printed, _) = why(&["default/nobody"]);
    assert_eq!((code, &*printed), (Some(3), ""));

    // What it advises: a toleration.
    let tolerations = json!([{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }]);
    cluster.create(
        &pod("tolerant").by("supercargo").asking("cpu", "4").spec("tolerations", tolerations.clone()).build(),
    );
    let (code, printed, _) = why(&["tolerant"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.starts_with("default/tolerant fits on 1 of 2 nodes; the best is tainted\n"), "{printed}");

    let (code, printed, _) = answer("fits", &["tolerant", "--count=2"]);
    assert_eq!(code, Some(0), "{printed}");
    show(&printed);

    let placed = pod("placed").asking("cpu", "1").spec("tolerations", tolerations);
    cluster.create(&placed.spec("nodeName", json!("small")).build());
    let (code, printed, _) = why(&["placed"]);
    assert_eq!(code, Some(0), "{printed}");
    show(&printed);
    assert!(missing.is_empty(), "docs/why.md does not have\n{missing}");
}

#[test]
fn why_explains_what_keeps_a_gang_from_starting() {
    if assets_or_skip().is_none() {
        return;
    }
    let plane = ControlPlane::start(Options {
        feature_gates: vec!["GenericWorkload=true".to_owned()],
        apiserver_args: vec!["--runtime-config=scheduling.k8s.io/v1beta1=true".to_owned()],
        ..Options::default()
    })
    .unwrap();
    let cluster = Cluster::of(&plane);
    cluster.create(&node("small", &[], &[("cpu", "5"), ("memory", "8Gi"), ("pods", "10")]));
    cluster.create(&json!({
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": { "name": "training", "namespace": "default" },
        "spec": { "schedulingPolicy": { "gang": { "minCount": 3 } } },
    }));
    for name in ["worker-0", "worker-1", "worker-2"] {
        let worker = pod(name).by("supercargo").asking("cpu", "2");
        cluster.create(&worker.spec("schedulingGroup", json!({ "podGroupName": "training" })).build());
    }
    let kubeconfig = plane.kubeconfig("admin").unwrap().display().to_string();
    let gates = "--feature-gates=GenericWorkload=true";
    let why = |arguments: &[&str]| {
        answer(&[&["why", "worker-0", "--kubeconfig", &*kubeconfig, gates], arguments].concat())
    };
    let (code, printed, error) = why(&[]);
    assert_eq!((code, &*error), (Some(1), ""), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    assert!(GUIDE.contains(&*printed), "docs/why.md does not have\n{printed}");
    let (_, printed, _) = why(&["--output=json"]);
    let parsed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(parsed["group"]["obstacle"], "Unschedulable");
    assert_eq!(parsed["group"]["refused"]["pod"], "default/worker-2");

    cluster.create(&node("more", &[], &[("cpu", "2"), ("memory", "8Gi"), ("pods", "10")]));
    let (code, printed, _) = why(&[]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("PodGroup default/training fits and starts"), "{printed}");
}

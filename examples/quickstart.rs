//! A scheduler at work, from nothing: starts the test control plane (etcd and kube-apiserver), makes nodes and pods, runs
//! supercargo, and shows where the pods go and why some of them wait.
//!
//! ```text
//! cargo run --release --example quickstart            # ends by itself
//! cargo run --release --example quickstart -- --keep  # stays up until Ctrl-C
//! ```

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use supercargo::run::{RunOptions, run};
use supercargo_controlplane::{ControlPlane, Method, Options};

const ZONES: [&str; 3] = ["a", "b", "c"];
const PODS: &str = "/api/v1/namespaces/default/pods";
const PATIENCE: Duration = Duration::from_mins(1);

fn main() -> Result<()> {
    let keep = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--keep") => true,
        Some(other) => bail!("unknown argument {other:?}; the only one is --keep"),
    };
    println!("Starting etcd and kube-apiserver (the first time they are built, which takes minutes) …");
    let plane = ControlPlane::start(Options::default())?;
    let nodes = nodes();
    let pods = pods();
    for node in &nodes {
        plane.request(Method::Post, "/api/v1/nodes", Some(node))?.json()?;
    }
    println!("{} nodes in {} zones are there. Starting supercargo.\n", nodes.len(), ZONES.len());
    let kubeconfig = plane.kubeconfig("admin")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let scheduler =
        runtime.spawn(run(RunOptions { kubeconfig: Some(kubeconfig.clone()), ..RunOptions::default() }));
    for pod in &pods {
        plane.request(Method::Post, PODS, Some(pod))?.json()?;
    }
    watch(&plane, pods.len())?;
    lift_the_gate(&plane)?;
    summarize(&plane)?;
    if keep {
        println!("\nStill up; Ctrl-C ends it. Try:\n\n  export KUBECONFIG={}", kubeconfig.display());
        println!("  kubectl get pods -o wide\n  kubectl get events");
        runtime.block_on(scheduler).context("the scheduler panicked")??;
    }
    // Its task would otherwise outlive the control plane by a moment and complain.
    runtime.shutdown_background();
    Ok(())
}

/// Two nodes a zone; one in zone c is for pods that tolerate it only.
fn nodes() -> Vec<Value> {
    let node = |zone: &str, i: usize| {
        let taints = if zone == "c" && i == 1 {
            json!([{"key": "dedicated", "effect": "NoSchedule"}])
        } else {
            json!([])
        };
        json!({
            "metadata": {"name": format!("node-{zone}{i}"), "labels": {"topology.kubernetes.io/zone": zone}},
            "spec": {"taints": taints},
            "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
        })
    };
    ZONES.iter().flat_map(|zone| (0..2).map(move |i| node(zone, i))).collect()
}

fn pod(name: &str, cpu: &str, spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "supercargo",
            "containers": [{"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": cpu}}}],
        },
    });
    if let (Some(target), Value::Object(extra)) = (pod["spec"].as_object_mut(), spec) {
        target.extend(extra);
    }
    pod
}

fn pods() -> Vec<Value> {
    let in_zone_b = json!({"nodeSelector": {"topology.kubernetes.io/zone": "b"}});
    let dedicated = json!({
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "nodeSelector": {"topology.kubernetes.io/zone": "c"},
    });
    let gated = json!({"schedulingGates": [{"name": "example.com/hold"}]});
    let mut pods: Vec<_> = (0..8).map(|i| pod(&format!("web-{i}"), "500m", json!({}))).collect();
    pods.extend((0..3).map(|i| pod(&format!("zone-b-{i}"), "250m", in_zone_b.clone())));
    pods.extend((0..2).map(|i| pod(&format!("dedicated-{i}"), "2", dedicated.clone())));
    pods.push(pod("gated", "100m", gated));
    pods.push(pod("too-big", "64", json!({})));
    pods
}

fn listed(plane: &ControlPlane) -> Result<Vec<Value>> {
    let list = plane.request(Method::Get, PODS, None)?.json()?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The pod's node, or why it waits; `None` when nobody has said anything yet.
fn verdict(pod: &Value) -> Option<String> {
    if let Some(node) = pod["spec"]["nodeName"].as_str() {
        return Some(format!("-> {node}"));
    }
    let conditions = pod["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == "PodScheduled")?;
    let message = condition["message"].as_str().unwrap_or_default();
    Some(format!("waits: {}: {message}", condition["reason"].as_str().unwrap_or_default()))
}

/// Prints decisions as they fall, until there is one for every pod.
fn watch(plane: &ControlPlane, expected: usize) -> Result<()> {
    let started = Instant::now();
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    while started.elapsed() < PATIENCE {
        for pod in listed(plane)? {
            if let Some(verdict) = verdict(&pod)
                && shown.insert(name_of(&pod).to_owned(), verdict.clone()).as_ref() != Some(&verdict)
            {
                println!("  {:<12} {verdict}", name_of(&pod));
            }
        }
        if shown.len() == expected {
            println!();
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("no decision for every pod within {} s", PATIENCE.as_secs())
}

fn lift_the_gate(plane: &ControlPlane) -> Result<()> {
    println!("Lifting the scheduling gate of pod gated:\n");
    let patch = json!({"spec": {"schedulingGates": []}});
    plane.request(Method::Patch, &format!("{PODS}/gated"), Some(&patch))?.json()?;
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let gated = plane.request(Method::Get, &format!("{PODS}/gated"), None)?.json()?;
        if let Some(node) = gated["spec"]["nodeName"].as_str() {
            println!("  gated        -> {node}\n\nWhat is where:\n");
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("pod gated was not bound within {} s", PATIENCE.as_secs())
}

fn summarize(plane: &ControlPlane) -> Result<()> {
    let mut by_node: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in listed(plane)? {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or("(waiting)").to_owned();
        by_node.entry(node).or_default().push(name_of(&pod).to_owned());
    }
    for (node, pods) in by_node {
        println!("  {node:<12} {}", pods.join(" "));
    }
    Ok(())
}

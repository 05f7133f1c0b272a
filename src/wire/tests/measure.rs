//! How long decoding takes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::{NODE, PENDING_POD, RUNNING_POD, TYPICAL_POD, node_kind, pod_json, pod_kind};

#[test]
fn the_largest_pods_decode_within_a_second() {
    let expression =
        |i: usize| json!({"key": format!("key-{i}"), "operator": "In", "values": [format!("v{i}"), "b"]});
    let terms: Vec<Value> = (0..10_000).map(|i| json!({"matchExpressions": [expression(i)]})).collect();
    let required = json!({"nodeSelectorTerms": terms});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});

    let containers: Vec<Value> = (0..6000)
        .map(|i| json!({"name": format!("c{i}"), "image": format!("i{i}"), "resources": {"requests": {"cpu": "1m"}}}))
        .collect();
    let reports: Vec<Value> = (0..6000)
        .map(|i| json!({"name": format!("c{i}"), "resources": {"requests": {"cpu": "2m"}}}))
        .collect();
    let environment = json!([{"name": "e", "env": [{"name": "LARGE", "value": "x\n".repeat(500_000)}]}]);
    let cases = [
        ("terms", json!({"affinity": affinity}), json!({})),
        ("containers", json!({"containers": containers}), json!({"containerStatuses": reports})),
        ("one text", json!({"containers": environment}), json!({})),
    ];
    for (name, spec, status) in cases {
        let json = pod_json(spec, status);
        let start = Instant::now();
        let pod = pod_kind().decode(&json).unwrap();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(1), "{name}, {} bytes: {took:?}", json.len());
        drop(pod);
    }
}

/// Compares with k8s-openapi; run with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a check"]
fn slim_against_full_decoding() {
    let (pods, nodes) = (pod_kind(), node_kind());
    for (name, json) in [("typical", TYPICAL_POD), ("running", RUNNING_POD), ("pending", PENDING_POD)] {
        let slim = time(|| drop(black_box(pods.decode(json))));
        let full = time(|| drop(black_box(serde_json::from_slice::<Pod>(json))));
        println!("{name} pod, {} bytes: slim {slim:?}, full {full:?}", json.len());
    }
    let slim = time(|| drop(black_box(nodes.decode(NODE))));
    let full = time(|| drop(black_box(serde_json::from_slice::<Node>(NODE))));
    println!("node, {} bytes: slim {slim:?}, full {full:?}", NODE.len());
}

/// The best average of several rounds; the others were disturbed.
fn time(decode: impl Fn()) -> Duration {
    const DECODES: u32 = 5000;
    let round = |_| {
        let start = Instant::now();
        (0..DECODES).for_each(|_| decode());
        start.elapsed() / DECODES
    };
    (0..20).map(round).min().expect("there is a round")
}

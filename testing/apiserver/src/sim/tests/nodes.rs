//! Nodes.

use super::*;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn taints(node: &Value) -> Vec<(String, String)> {
    let taint = |taint: &Value| (text(taint, "key").to_owned(), text(taint, "effect").to_owned());
    list(&node["spec"], "taints").iter().map(taint).collect()
}

#[tokio::test(start_paused = true)]
async fn node_becomes_ready() {
    let world = World::new();
    world.client.create(NODES, &json!({"metadata": {"name": "n"}})).await;
    let node = world.until(NODES, "n", |node| node["spec"]["podCIDR"] == "10.0.0.0/24").await;
    assert_eq!(condition(&node, "Ready"), "True");
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(condition(&node, kind), "False");
    }
    let status = &node["status"];
    assert_eq!(status["capacity"], status["allocatable"]);
    assert_eq!(status["capacity"]["cpu"], "32");
    assert_eq!(status["nodeInfo"]["kubeletVersion"], "v1.37.2");
    assert_eq!(status["addresses"][1], json!({"type": "Hostname", "address": "n"}));
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "n");
    assert!(taints(&node).is_empty());
}

#[tokio::test(start_paused = true)]
async fn existing_node_status_is_kept() {
    let world = World::new();
    let node = json!({
        "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "host", "kubernetes.io/arch": "arm64"}},
        "spec": {"podCIDR": "10.9.0.0/24", "taints": [{"key": "mine", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "2"}, "addresses": [{"type": "InternalIP", "address": "192.168.0.7"}]},
    });
    world.client.create(NODES, &node).await;
    world.until(NODES, "n", |node| condition(node, "Ready") == "True").await;
    world.until(NODES, "n", |node| node["metadata"]["labels"]["kubernetes.io/os"] == "linux").await;
    let found = world.client.get(&format!("{NODES}/n")).await.1;
    assert_eq!(found["metadata"]["labels"]["kubernetes.io/hostname"], "host");
    assert_eq!(found["status"]["nodeInfo"]["architecture"], "arm64");
    assert_eq!(found["spec"]["podCIDR"], "10.9.0.0/24");
    assert_eq!(found["status"]["allocatable"], json!({"cpu": "2"}));
    assert_eq!(found["status"]["addresses"], node["status"]["addresses"]);
    assert_eq!(taints(&found), [("mine".to_owned(), "NoSchedule".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn pods_wait_on_a_node_annotated_not_ready() {
    let world = World::new();
    world.node("n").await;
    world.until(NODES, "n", |node| condition(node, "Ready") == "True").await;
    let path = format!("{NODES}/n");
    let annotate = |value: Value| json!({"metadata": {"annotations": {"supercargo.dev/simulate": value}}});
    world.patch(&path, annotate("not-ready".into())).await;
    let node = world.until(NODES, "n", |node| taints(node).len() == 2).await;
    assert_eq!(condition(&node, "Ready"), "False");
    let key = "node.kubernetes.io/not-ready".to_owned();
    assert_eq!(taints(&node), [(key.clone(), "NoSchedule".to_owned()), (key, "NoExecute".to_owned())]);
    world.bound("p", "n", json!({})).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(world.client.get(&format!("{PODS}/p")).await.1["status"]["phase"], "Pending");
    world.patch(&path, annotate(Value::Null)).await;
    world.until(NODES, "n", |node| condition(node, "Ready") == "True" && taints(node).is_empty()).await;
    world.until_phase("p", "Running").await;
}

#[tokio::test(start_paused = true)]
async fn cordoned_node_is_tainted() {
    let world = World::new();
    world.node("n").await;
    let path = format!("{NODES}/n");
    world.patch(&path, json!({"spec": {"unschedulable": true}})).await;
    let taint = ("node.kubernetes.io/unschedulable".to_owned(), "NoSchedule".to_owned());
    world.until(NODES, "n", |node| taints(node) == [taint.clone()]).await;
    world.patch(&path, json!({"spec": {"unschedulable": null}})).await;
    world.until(NODES, "n", |node| taints(node).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn reported_pressure_taints_the_node() {
    let world = World::new();
    world.node("n").await;
    let node = world.until(NODES, "n", |node| condition(node, "Ready") == "True").await;
    let mut conditions = node["status"]["conditions"].clone();
    conditions[0]["status"] = "True".into();
    world.patch(&format!("{NODES}/n/status"), json!({"status": {"conditions": conditions}})).await;
    let taint = ("node.kubernetes.io/memory-pressure".to_owned(), "NoSchedule".to_owned());
    world.until(NODES, "n", |node| taints(node) == [taint.clone()]).await;
}

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_and_deleted_with_their_nodes() {
    let options = Options { heartbeat_period: Duration::from_secs(7), ..Options::default() };
    let world = World::with(&options);
    let node = world.node("n").await;
    let lease = world.until(LEASES, "n", |_| true).await;
    assert_eq!(lease["spec"]["holderIdentity"], "n");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
    let renewed = |now: &Value| now["spec"]["renewTime"] != lease["spec"]["renewTime"];
    let started = tokio::time::Instant::now();
    world.until(LEASES, "n", renewed).await;
    assert!(started.elapsed() <= Duration::from_secs(7));
    world.client.ok(Method::DELETE, &format!("{NODES}/n"), &Value::Null).await;
    assert_eq!(world.client.get(&format!("{LEASES}/n")).await.0, StatusCode::NOT_FOUND);
}

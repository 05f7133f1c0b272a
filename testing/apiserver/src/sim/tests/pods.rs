//! Bound pods.

use super::*;

fn annotated(simulate: &str, after: &str) -> Value {
    json!({"metadata": {"annotations": {
        "supercargo.dev/simulate": simulate, "supercargo.dev/simulate-after": after,
    }}})
}

#[tokio::test(start_paused = true)]
async fn bound_pod_runs_and_is_ready() {
    let world = World::new();
    world.node("n").await;
    let pod = json!({"spec": {"initContainers": [
        {"name": "setup", "image": "setup"}, {"name": "side", "image": "side", "restartPolicy": "Always"},
    ]}});
    world.bound("p", "n", pod).await;
    let pod = world.until_phase("p", "Running").await;
    for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&pod, kind), "True", "{kind}");
    }
    let status = &pod["status"];
    assert_eq!(status["hostIP"], "172.18.0.2");
    assert_eq!(status["podIP"], "10.0.0.1");
    assert_eq!(status["podIPs"], json!([{"ip": "10.0.0.1"}]));
    assert_eq!(status["qosClass"], "Burstable");
    assert_eq!(status["observedGeneration"], pod["metadata"]["generation"]);
    let container = &status["containerStatuses"][0];
    assert_eq!((&container["ready"], &container["started"]), (&json!(true), &json!(true)));
    assert!(container["state"]["running"]["startedAt"].is_string());
    assert_eq!(container["allocatedResources"], json!({"cpu": "1"}));
    let init = &status["initContainerStatuses"];
    assert_eq!(init[0]["state"]["terminated"]["reason"], "Completed");
    assert!(init[1]["state"]["running"].is_object());
}

#[tokio::test(start_paused = true)]
async fn pods_have_distinct_addresses_except_on_the_host_network() {
    let world = World::new();
    world.node("n").await;
    world.bound("a", "n", json!({})).await;
    world.bound("b", "n", json!({})).await;
    world.bound("c", "n", json!({"spec": {"hostNetwork": true}})).await;
    let mut addresses = Vec::new();
    for name in ["a", "b", "c"] {
        let pod = world.until_phase(name, "Running").await;
        addresses.push(pod["status"]["podIP"].as_str().unwrap().to_owned());
    }
    assert_ne!(addresses[0], addresses[1]);
    assert_eq!(addresses[2], "172.18.0.2");
}

#[tokio::test(start_paused = true)]
async fn annotations_control_how_pods_end() {
    let world = World::new();
    world.node("n").await;
    let started = tokio::time::Instant::now();
    world.bound("completes", "n", annotated("complete", "30s")).await;
    world.bound("fails", "n", annotated("fail", "40s")).await;
    let pod = world.until_phase("completes", "Succeeded").await;
    assert!(started.elapsed() >= Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!(condition(&pod, "Ready"), "False");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    let pod = world.until_phase("fails", "Failed").await;
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 1);
}

#[tokio::test(start_paused = true)]
async fn running_pod_can_be_annotated_to_complete() {
    let world = World::new();
    world.node("n").await;
    world.bound("p", "n", json!({})).await;
    world.until_phase("p", "Running").await;
    world.patch(&format!("{PODS}/p"), annotated("complete", "1s")).await;
    world.until_phase("p", "Succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn crashed_containers_restart() {
    let world = World::new();
    world.node("n").await;
    world.bound("p", "n", annotated("crash-loop", "1s")).await;
    let crashed = world.until(PODS, "p", |pod| condition(pod, "Ready") == "False").await;
    let waiting = &crashed["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CrashLoopBackOff");
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 2;
    let pod = world.until(PODS, "p", restarted).await;
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(condition(&pod, "Ready"), "True");
    assert_eq!(pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 1);
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_ends_and_is_removed() {
    let world = World::new();
    world.node("n").await;
    world.bound("p", "n", json!({})).await;
    world.until_phase("p", "Running").await;
    let started = tokio::time::Instant::now();
    let (gone, _) = tokio::join!(world.until_gone(PODS, "p"), async {
        world.client.ok(Method::DELETE, &format!("{PODS}/p"), &Value::Null).await
    });
    assert_eq!(gone["status"]["phase"], "Succeeded");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn finalizer_keeps_a_pod_that_has_ended() {
    let world = World::new();
    world.node("n").await;
    let pod = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    world.bound("p", "n", pod).await;
    world.until_phase("p", "Running").await;
    world.client.ok(Method::DELETE, &format!("{PODS}/p"), &Value::Null).await;
    let pod = world.until(PODS, "p", |pod| pod["metadata"]["deletionGracePeriodSeconds"] == 0).await;
    assert_eq!(pod["status"]["phase"], "Succeeded");
    world.patch(&format!("{PODS}/p"), json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(world.client.get(&format!("{PODS}/p")).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn pod_that_does_not_fit_is_rejected_until_there_is_room() {
    let world = World::new();
    world.node("n").await;
    for name in ["a", "b", "c", "d"] {
        world.bound(name, "n", json!({})).await;
        world.until_phase(name, "Running").await;
    }
    world.bound("e", "n", json!({})).await;
    let pod = world.until_phase("e", "Failed").await;
    assert_eq!(pod["status"]["reason"], "OutOfcpu");
    assert_eq!(
        pod["status"]["message"],
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, used: 4000, capacity: 4000"
    );
    world.patch(&format!("{PODS}/a"), annotated("complete", "1s")).await;
    world.until_phase("a", "Succeeded").await;
    world.bound("f", "n", json!({})).await;
    world.until_phase("f", "Running").await;
}

#[tokio::test(start_paused = true)]
async fn readiness_gates_delay_readiness() {
    let world = World::new();
    world.node("n").await;
    let gates = json!({"spec": {"readinessGates": [{"conditionType": "example.com/ready"}]}});
    world.bound("p", "n", gates).await;
    let pod = world.until_phase("p", "Running").await;
    assert_eq!((condition(&pod, "ContainersReady"), condition(&pod, "Ready")), ("True", "False"));
    let mut conditions = pod["status"]["conditions"].clone();
    conditions.as_array_mut().unwrap().push(json!({"type": "example.com/ready", "status": "True"}));
    world.patch(&format!("{PODS}/p/status"), json!({"status": {"conditions": conditions}})).await;
    world.until(PODS, "p", |pod| condition(pod, "Ready") == "True").await;
}

#[tokio::test(start_paused = true)]
async fn pod_that_exceeds_its_active_deadline_fails() {
    let world = World::new();
    world.node("n").await;
    world.bound("p", "n", json!({"spec": {"activeDeadlineSeconds": 3}})).await;
    let pod = world.until_phase("p", "Failed").await;
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
}

#[tokio::test(start_paused = true)]
async fn pod_waits_for_its_node_and_is_deleted_after_it() {
    let world = World::new();
    world.bound("p", "n", json!({})).await;
    let path = format!("{PODS}/p");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.client.get(&path).await.1["status"]["phase"], "Pending");
    world.node("n").await;
    world.until_phase("p", "Running").await;
    world.client.ok(Method::DELETE, &format!("{NODES}/n"), &Value::Null).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.client.get(&path).await.1["status"]["phase"], "Running");
    world.until_gone(PODS, "p").await;
}

#[tokio::test(start_paused = true)]
async fn simulation_resumes_the_state_of_a_previous_one() {
    let mut world = World::new();
    world.node("n").await;
    world.bound("a", "n", json!({})).await;
    let before = world.until_phase("a", "Running").await;
    world.simulation = world.client.server.simulate(&Options::default());
    world.bound("b", "n", json!({})).await;
    let pod = world.until_phase("b", "Running").await;
    assert_ne!(pod["status"]["podIP"], before["status"]["podIP"]);
    assert_eq!(world.client.get(&format!("{PODS}/a")).await.1, before);
    world.client.ok(Method::DELETE, &format!("{PODS}/a"), &Value::Null).await;
    world.until_gone(PODS, "a").await;
}

#[tokio::test(start_paused = true)]
async fn simulation_relists_after_a_compaction() {
    let world = World::new();
    world.node("n").await;
    world.bound("a", "n", json!({})).await;
    world.until_phase("a", "Running").await;
    world.client.ok(Method::DELETE, &format!("{PODS}/a"), &Value::Null).await;
    world.bound("b", "n", json!({})).await;
    world.client.server.compact();
    world.until_phase("b", "Running").await;
    world.until_gone(PODS, "a").await;
}

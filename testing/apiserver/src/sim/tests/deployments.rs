//! Deployments and replica sets.

use super::*;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

fn deployment(name: &str, replicas: i64, strategy: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "strategy": strategy,
        "template": template(name, "app:1"),
    }})
}

/// The condition of `kubectl rollout status`.
fn is_rolled_out(deployment: &Value) -> bool {
    let replicas = deployment["spec"]["replicas"].as_i64().unwrap();
    number(deployment, "observedGeneration") >= deployment["metadata"]["generation"].as_i64().unwrap()
        && number(deployment, "updatedReplicas") == replicas
        && number(deployment, "replicas") == replicas
        && number(deployment, "availableReplicas") == replicas
}

async fn set_image(world: &World, name: &str, image: &str) -> Value {
    let container = json!({"name": "main", "image": image});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    world.patch(&format!("{DEPLOYMENTS}/{name}"), patch).await
}

#[tokio::test(start_paused = true)]
async fn deployment_creates_a_replica_set_with_pods() {
    let (world, _scheduler) = World::scheduled(2).await;
    world.client.create(DEPLOYMENTS, &deployment("web", 3, Value::Null)).await;
    let done = world.until(DEPLOYMENTS, "web", |found| {
        is_rolled_out(found) && text_of(found, "Progressing", "reason") == "NewReplicaSetAvailable"
    });
    let done = done.await;
    assert_eq!(condition(&done, "Available"), "True");
    assert_eq!(done["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    let sets = world.list(REPLICA_SETS).await;
    assert_eq!(sets.len(), 1);
    let hash = text(&sets[0]["metadata"]["labels"], "pod-template-hash");
    assert_eq!(sets[0]["metadata"]["name"], format!("web-{hash}"));
    assert_eq!(sets[0]["metadata"]["ownerReferences"][0]["kind"], "Deployment");
    assert_eq!(sets[0]["spec"]["selector"]["matchLabels"], json!({"app": "web", "pod-template-hash": hash}));
    let pods = world.list(PODS).await;
    assert_eq!(pods.len(), 3);
    for pod in &pods {
        assert!(text(&pod["metadata"], "name").starts_with(&format!("web-{hash}-")));
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], sets[0]["metadata"]["uid"]);
        assert_eq!(condition(pod, "Ready"), "True");
    }
}

fn text_of<'a>(object: &'a Value, kind: &str, field: &str) -> &'a str {
    let conditions = list(&object["status"], "conditions");
    conditions.iter().find(|condition| text(condition, "type") == kind).map_or("", |one| text(one, field))
}

#[tokio::test(start_paused = true)]
async fn deployment_is_scaled_and_deleted() {
    let (world, _scheduler) = World::scheduled(2).await;
    world.client.create(DEPLOYMENTS, &deployment("web", 2, Value::Null)).await;
    world.until(DEPLOYMENTS, "web", is_rolled_out).await;
    let path = format!("{DEPLOYMENTS}/web");
    for replicas in [20, 1] {
        world.patch(&format!("{path}/scale"), json!({"spec": {"replicas": replicas}})).await;
        world.until(DEPLOYMENTS, "web", is_rolled_out).await;
        assert_eq!(world.pod_names().await.len(), usize::try_from(replicas).unwrap());
    }
    let last = world.pod_names().await.remove(0);
    let (gone, ()) = tokio::join!(world.until_gone(PODS, &last), world.delete(&path));
    assert_eq!(gone["metadata"]["name"], last.as_str());
    assert!(world.list(PODS).await.is_empty());
    assert!(world.list(REPLICA_SETS).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn deleted_and_failed_pods_are_replaced() {
    let (world, _scheduler) = World::scheduled(1).await;
    world.client.create(DEPLOYMENTS, &deployment("web", 2, Value::Null)).await;
    world.until(DEPLOYMENTS, "web", is_rolled_out).await;
    let names = world.pod_names().await;
    world.delete(&format!("{PODS}/{}", names[0])).await;
    let fail = json!({"metadata": {"annotations": {
        "supercargo.dev/simulate": "fail", "supercargo.dev/simulate-after": "1s",
    }}});
    world.patch(&format!("{PODS}/{}", names[1]), fail).await;
    world.until_phase(&names[1], "Failed").await;
    world.until(DEPLOYMENTS, "web", |found| number(found, "availableReplicas") < 2).await;
    world.until(DEPLOYMENTS, "web", is_rolled_out).await;
    let after = world.pod_names().await;
    assert_eq!(after.len(), 3, "the failed one stays: {after:?}");
    assert!(!after.contains(&names[0]));
}

#[tokio::test(start_paused = true)]
async fn rolling_update_respects_its_bounds_and_can_be_undone() {
    let (world, _scheduler) = World::scheduled(3).await;
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}});
    world.client.create(DEPLOYMENTS, &deployment("web", 6, strategy)).await;
    world.until(DEPLOYMENTS, "web", is_rolled_out).await;
    let before = world.list(REPLICA_SETS).await;
    let mut events = world.client.watch(&format!("{PODS}?watch=true")).await;
    set_image(&world, "web", "app:2").await;
    let mut pods = std::collections::BTreeMap::new();
    let is_done = |pods: &std::collections::BTreeMap<String, (bool, bool)>| {
        pods.len() == 6 && pods.values().all(|(is_new, is_ready)| *is_new && *is_ready)
    };
    let mut began = false;
    while !is_done(&pods) {
        let event = events.next().await.unwrap();
        let pod = &event["object"];
        let name = text(&pod["metadata"], "name").to_owned();
        let goes = pod["metadata"].get("deletionTimestamp").is_some();
        if event["type"] == "DELETED" || goes {
            pods.remove(&name);
        } else {
            let is_new = pod["spec"]["containers"][0]["image"] == "app:2";
            pods.insert(name, (is_new, condition(pod, "Ready") == "True"));
        }
        began |= pods.len() >= 6;
        assert!(pods.len() <= 8, "{pods:?}");
        let ready = pods.values().filter(|(_, is_ready)| *is_ready).count();
        assert!(!began || ready >= 5, "{pods:?}");
    }
    let done = world.until(DEPLOYMENTS, "web", is_rolled_out).await;
    assert_eq!(done["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    let sets = world.list(REPLICA_SETS).await;
    assert_eq!(sets.len(), 2);
    let old = sets.iter().find(|set| set["metadata"]["uid"] == before[0]["metadata"]["uid"]).unwrap();
    assert_eq!(old["spec"]["replicas"], 0);
    // As `kubectl rollout undo` does.
    set_image(&world, "web", "app:1").await;
    let done = world.until(DEPLOYMENTS, "web", |found| {
        is_rolled_out(found) && found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    });
    done.await;
    assert_eq!(world.list(REPLICA_SETS).await.len(), 2);
    let old = world.client.get(&format!("{REPLICA_SETS}/{}", text(&before[0]["metadata"], "name"))).await.1;
    assert_eq!(old["spec"]["replicas"], 6);
}

#[tokio::test(start_paused = true)]
async fn recreate_never_runs_two_templates_at_once() {
    let (world, _scheduler) = World::scheduled(1).await;
    world.client.create(DEPLOYMENTS, &deployment("web", 3, json!({"type": "Recreate"}))).await;
    world.until(DEPLOYMENTS, "web", is_rolled_out).await;
    let mut events = world.client.watch(&format!("{PODS}?watch=true")).await;
    set_image(&world, "web", "app:2").await;
    let (mut old, mut new) = (std::collections::BTreeSet::new(), 0);
    while new < 3 {
        let event = events.next().await.unwrap();
        let name = text(&event["object"]["metadata"], "name").to_owned();
        let is_new = event["object"]["spec"]["containers"][0]["image"] == "app:2";
        match event["type"].as_str().unwrap() {
            "DELETED" => {
                old.remove(&name);
            }
            "ADDED" if is_new => {
                assert!(old.is_empty(), "{old:?}");
                new += 1;
            }
            _ if !is_new => {
                old.insert(name);
            }
            _ => {}
        }
    }
    world.until(DEPLOYMENTS, "web", is_rolled_out).await;
}

#[tokio::test(start_paused = true)]
async fn unschedulable_deployment_is_not_available() {
    let world = World::new();
    world.client.create(DEPLOYMENTS, &deployment("web", 2, Value::Null)).await;
    let found = world.until(DEPLOYMENTS, "web", |found| number(found, "replicas") == 2).await;
    assert_eq!(condition(&found, "Available"), "False");
    assert_eq!(number(&found, "unavailableReplicas"), 2);
    assert_eq!(text_of(&found, "Progressing", "reason"), "ReplicaSetUpdated");
}

#[tokio::test(start_paused = true)]
async fn replica_sets_and_replication_controllers_keep_their_replicas() {
    const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";
    let (world, _scheduler) = World::scheduled(1).await;
    let set = json!({"metadata": {"name": "set"}, "spec": {
        "replicas": 2, "minReadySeconds": 10,
        "selector": {"matchLabels": {"app": "set"}}, "template": template("set", "app"),
    }});
    world.client.create(REPLICA_SETS, &set).await;
    let started = tokio::time::Instant::now();
    world.until(REPLICA_SETS, "set", |set| number(set, "availableReplicas") == 2).await;
    assert!(started.elapsed() >= Duration::from_secs(10), "{:?}", started.elapsed());
    let controller =
        json!({"metadata": {"name": "rc"}, "spec": {"replicas": 2, "template": template("rc", "app")}});
    world.client.create(CONTROLLERS, &controller).await;
    world.until(CONTROLLERS, "rc", |found| number(found, "readyReplicas") == 2).await;
}

//! Stateful sets, daemon sets, jobs and disruption budgets.

use super::*;

const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn stateful_set(policy: &str) -> Value {
    json!({"metadata": {"name": "db"}, "spec": {
        "replicas": 3, "serviceName": "db", "podManagementPolicy": policy,
        "selector": {"matchLabels": {"app": "db"}},
        "template": template("db", "db:1"),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }}],
    }})
}

fn image(name: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": name}]}}}})
}

/// The condition of `kubectl rollout status`.
fn is_updated(set: &Value) -> bool {
    number(set, "observedGeneration") >= set["metadata"]["generation"].as_i64().unwrap()
        && Some(number(set, "readyReplicas")) == set["spec"]["replicas"].as_i64()
        && set["status"]["updateRevision"] == set["status"]["currentRevision"]
}

#[tokio::test(start_paused = true)]
async fn stateful_set_starts_and_stops_pods_in_order() {
    let (world, _scheduler) = World::scheduled(2).await;
    let mut events = world.client.watch(&format!("{PODS}?watch=true")).await;
    world.client.create(STATEFUL_SETS, &stateful_set("OrderedReady")).await;
    let mut ready = 0;
    while ready < 3 {
        let event = events.next().await.unwrap();
        let pod = &event["object"];
        if event["type"] == "ADDED" {
            assert_eq!(pod["metadata"]["name"], format!("db-{ready}"));
            assert_eq!(pod["spec"]["hostname"], format!("db-{ready}"));
            assert_eq!(pod["spec"]["subdomain"], "db");
            assert_eq!(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"], ready.to_string());
        }
        let name = format!("db-{ready}");
        ready += i32::from(pod["metadata"]["name"] == name && condition(pod, "Ready") == "True");
    }
    let set = world.until(STATEFUL_SETS, "db", is_updated).await;
    assert_eq!((number(&set, "currentReplicas"), number(&set, "availableReplicas")), (3, 3));
    let claims = world.list(CLAIMS).await;
    let names: Vec<&str> = claims.iter().map(|claim| text(&claim["metadata"], "name")).collect();
    assert_eq!(names, ["data-db-0", "data-db-1", "data-db-2"]);
    let pod = world.client.get(&format!("{PODS}/db-1")).await.1;
    assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-db-1");
    let gone = async {
        let mut gone = Vec::new();
        while gone.len() < 2 {
            let event = events.next().await.unwrap();
            if event["type"] == "DELETED" {
                gone.push(text(&event["object"]["metadata"], "name").to_owned());
            }
        }
        gone
    };
    let path = format!("{STATEFUL_SETS}/db/scale");
    let scale = world.patch(&path, json!({"spec": {"replicas": 1}}));
    let (gone, _) = tokio::join!(gone, scale);
    assert_eq!(gone, ["db-2", "db-1"]);
}

#[tokio::test(start_paused = true)]
async fn stateful_set_is_updated_from_its_last_pod() {
    let (world, _scheduler) = World::scheduled(2).await;
    world.client.create(STATEFUL_SETS, &stateful_set("Parallel")).await;
    world.until(STATEFUL_SETS, "db", is_updated).await;
    let mut events = world.client.watch(&format!("{PODS}?watch=true")).await;
    world.patch(&format!("{STATEFUL_SETS}/db"), image("db:2")).await;
    let mut order = Vec::new();
    while order.len() < 3 {
        let event = events.next().await.unwrap();
        let pod = &event["object"];
        let name = text(&pod["metadata"], "name").to_owned();
        let is_new = pod["spec"]["containers"][0]["image"] == "db:2" && condition(pod, "Ready") == "True";
        if is_new && !order.contains(&name) {
            order.push(name);
        }
    }
    assert_eq!(order, ["db-2", "db-1", "db-0"]);
    let set = world.until(STATEFUL_SETS, "db", is_updated).await;
    assert_eq!(number(&set, "updatedReplicas"), 3);
}

#[tokio::test(start_paused = true)]
async fn stateful_set_replaces_a_failed_pod_under_its_name() {
    let (world, _scheduler) = World::scheduled(1).await;
    world.client.create(STATEFUL_SETS, &stateful_set("OrderedReady")).await;
    world.until(STATEFUL_SETS, "db", is_updated).await;
    let before = world.client.get(&format!("{PODS}/db-1")).await.1;
    let fail = json!({"metadata": {"annotations": {"supercargo.dev/simulate": "fail"}}});
    world.patch(&format!("{PODS}/db-1"), fail).await;
    let is_another = |pod: &Value| {
        pod["metadata"]["uid"] != before["metadata"]["uid"] && condition(pod, "Ready") == "True"
    };
    world.until(PODS, "db-1", is_another).await;
}

#[tokio::test(start_paused = true)]
async fn daemon_set_has_a_pod_on_each_eligible_node() {
    let (world, _scheduler) = World::scheduled(3).await;
    let taint = json!({"spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}});
    world.patch(&format!("{NODES}/n1"), taint).await;
    world.patch(&format!("{NODES}/n2"), json!({"spec": {"unschedulable": true}})).await;
    let set = json!({"metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "agent"}}, "template": template("agent", "agent:1"),
    }});
    world.client.create(DAEMON_SETS, &set).await;
    let has = |ready: i64| {
        move |set: &Value| {
            number(set, "numberReady") == ready
                && number(set, "desiredNumberScheduled") == ready
                && number(set, "updatedNumberScheduled") == ready
        }
    };
    world.until(DAEMON_SETS, "agent", has(2)).await;
    let on = async || {
        let pods = world.list(PODS).await;
        let mut nodes: Vec<String> =
            pods.iter().map(|pod| text(&pod["spec"], "nodeName").to_owned()).collect();
        nodes.sort();
        nodes
    };
    assert_eq!(on().await, ["n0", "n2"]);
    world.patch(&format!("{NODES}/n1"), json!({"spec": {"taints": null}})).await;
    world.node("n3").await;
    world.until(DAEMON_SETS, "agent", has(4)).await;
    assert_eq!(on().await, ["n0", "n1", "n2", "n3"]);
    let before = world.pod_names().await;
    world.patch(&format!("{DAEMON_SETS}/agent"), image("agent:2")).await;
    let is_newer = |set: &Value| number(set, "observedGeneration") == 2 && has(4)(set);
    world.until(DAEMON_SETS, "agent", is_newer).await;
    let after = world.pod_names().await;
    assert!(before.iter().all(|name| !after.contains(name)), "{before:?} {after:?}");
    world.delete(&format!("{NODES}/n3")).await;
    world.until(DAEMON_SETS, "agent", has(3)).await;
}

fn job(name: &str, spec: &Value, annotations: &Value) -> Value {
    let mut template = template(name, "job");
    template["spec"]["restartPolicy"] = "Never".into();
    template["metadata"]["annotations"] = annotations.clone();
    let mut job = json!({"metadata": {"name": name}, "spec": spec});
    job["spec"]["template"] = template;
    job
}

#[tokio::test(start_paused = true)]
async fn job_completes_with_its_pods() {
    let (world, _scheduler) = World::scheduled(2).await;
    let spec = json!({"parallelism": 2, "completions": 5});
    world.client.create(JOBS, &job("sum", &spec, &Value::Null)).await;
    let mut most = 0;
    let mut events = world.client.watch(&format!("{JOBS}?watch=true")).await;
    let done = loop {
        let job = events.next().await.unwrap()["object"].take();
        most = most.max(number(&job, "active"));
        if condition(&job, "Complete") == "True" {
            break job;
        }
    };
    assert_eq!(most, 2);
    assert_eq!((number(&done, "succeeded"), number(&done, "failed"), number(&done, "active")), (5, 0, 0));
    assert_eq!(condition(&done, "SuccessCriteriaMet"), "True");
    assert!(done["status"]["completionTime"].is_string() && done["status"]["startTime"].is_string());
    assert_eq!(world.list(PODS).await.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn job_fails_after_its_backoff_limit() {
    let (world, _scheduler) = World::scheduled(1).await;
    let annotations = json!({"supercargo.dev/simulate": "fail", "supercargo.dev/simulate-after": "1s"});
    world.client.create(JOBS, &job("bad", &json!({"backoffLimit": 2}), &annotations)).await;
    let done = world.until(JOBS, "bad", |job| condition(job, "Failed") == "True").await;
    assert_eq!(number(&done, "failed"), 3);
    assert_eq!(condition(&done, "Complete"), "");
}

#[tokio::test(start_paused = true)]
async fn indexed_job_has_a_pod_per_index_and_a_suspended_one_none() {
    let (world, _scheduler) = World::scheduled(1).await;
    let spec = json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed", "suspend": true});
    world.client.create(JOBS, &job("index", &spec, &Value::Null)).await;
    world.until(JOBS, "index", |job| condition(job, "Suspended") == "True").await;
    assert!(world.list(PODS).await.is_empty());
    world.patch(&format!("{JOBS}/index"), json!({"spec": {"suspend": false}})).await;
    let done = world.until(JOBS, "index", |job| condition(job, "Complete") == "True").await;
    assert_eq!(done["status"]["completedIndexes"], "0-2");
    let pods = world.list(PODS).await;
    let key = "batch.kubernetes.io/job-completion-index";
    let mut indexes: Vec<&str> = pods.iter().map(|pod| text(&pod["metadata"]["labels"], key)).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, ["0", "1", "2"]);
    assert_eq!(pods[0]["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
}

#[tokio::test(start_paused = true)]
async fn budget_reports_the_allowed_disruptions() {
    let (world, _scheduler) = World::scheduled(1).await;
    let budget = json!({"metadata": {"name": "db"}, "spec": {
        "maxUnavailable": 1, "selector": {"matchLabels": {"app": "db"}},
    }});
    world.client.create(BUDGETS, &budget).await;
    world.client.create(STATEFUL_SETS, &stateful_set("Parallel")).await;
    let is_whole = |budget: &Value| number(budget, "currentHealthy") == 3;
    let found = world.until(BUDGETS, "db", is_whole).await;
    assert_eq!((number(&found, "desiredHealthy"), number(&found, "disruptionsAllowed")), (2, 1));
    assert_eq!(number(&found, "observedGeneration"), 1);
    assert_eq!(condition(&found, "DisruptionAllowed"), "True");
    let evict = async |name: &str| {
        let eviction = json!({"metadata": {"name": name}});
        world.client.request(Method::POST, &format!("{PODS}/{name}/eviction"), &eviction).await.0
    };
    assert_eq!(evict("db-0").await, StatusCode::CREATED);
    assert_eq!(evict("db-1").await, StatusCode::TOO_MANY_REQUESTS);
    world.until(BUDGETS, "db", |budget| number(budget, "disruptionsAllowed") == 0).await;
    world.until(BUDGETS, "db", |budget| number(budget, "disruptionsAllowed") == 1).await;
    assert_eq!(evict("db-1").await, StatusCode::CREATED);
}

//! Pod groups: whether they are served, and how long they are kept.

use super::*;

const GROUPS: &str = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn serving() -> Client {
    Client::with(Settings { pod_groups: true, ..Settings::default() })
}

fn group() -> Value {
    json!({"metadata": {"name": "gang"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}})
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": member()})
}

fn member() -> Value {
    json!({"schedulingGroup": {"podGroupName": "gang"}, "containers": [{"name": "main", "image": "none"}]})
}

fn job() -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "schedulingGroup": member()["schedulingGroup"],
        "containers": member()["containers"]}});
    let spec = json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}});
    json!({"metadata": {"name": "job"}, "spec": spec})
}

#[tokio::test]
async fn pod_groups_are_only_served_when_switched_on() {
    let off = Client::new();
    assert_eq!(off.request(Method::POST, GROUPS, &group()).await.0, StatusCode::NOT_FOUND);
    let versions = off.get("/apis/scheduling.k8s.io").await.1;
    assert_eq!(versions["versions"].as_array().unwrap().len(), 1);

    let on = serving();
    assert_eq!(on.create(GROUPS, &group()).await["apiVersion"], "scheduling.k8s.io/v1beta1");
    let versions = on.get("/apis/scheduling.k8s.io").await.1;
    assert_eq!(versions["versions"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn pods_and_templates_keep_their_group_only_when_it_is_served() {
    const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
    for (client, kept) in [(Client::new(), false), (serving(), true)] {
        let pod = client.create(PODS, &pod("member")).await;
        assert_eq!(pod["spec"].get("schedulingGroup").is_some(), kept);
        let job = client.create(CRON_JOBS, &job()).await;
        let spec = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
        assert_eq!(spec.get("schedulingGroup").is_some(), kept);
    }
}

#[tokio::test]
async fn update_keeps_the_group_that_a_pod_already_has() {
    let client = Client::new();
    let saved = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "member"}, "spec": member()});
    client.server.load(&saved.to_string()).unwrap();
    let path = format!("{PODS}/member");
    let labelled = client.ok(Method::PATCH, &path, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(labelled["spec"]["schedulingGroup"], member()["schedulingGroup"]);
}

#[tokio::test]
async fn versions_of_a_group_are_one_object() {
    let client = serving();
    client.create(GROUPS, &group()).await;
    let path = format!("{}/gang", GROUPS.replace("v1beta1", "v1alpha3"));
    let alpha = client.ok(Method::PATCH, &path, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(alpha["apiVersion"], "scheduling.k8s.io/v1alpha3");
    let beta = client.get(&format!("{GROUPS}/gang")).await.1;
    assert_eq!((&beta["metadata"], &beta["spec"]), (&alpha["metadata"], &alpha["spec"]));
}

#[tokio::test]
async fn deleted_group_goes_with_its_last_active_pod() {
    let client = serving();
    let path = format!("{GROUPS}/gang");
    client.create(GROUPS, &group()).await;
    for name in ["deleted", "ended", "last"] {
        client.create(PODS, &pod(name)).await;
    }
    client.ok(Method::DELETE, &path, &Value::Null).await;
    client.ok(Method::DELETE, &format!("{PODS}/deleted"), &Value::Null).await;
    let ended = json!({"status": {"phase": "Succeeded"}});
    client.ok(Method::PATCH, &format!("{PODS}/ended/status"), &ended).await;
    assert!(client.get(&path).await.1["metadata"]["deletionTimestamp"].is_string());
    client.ok(Method::PATCH, &format!("{PODS}/last/status"), &ended).await;
    assert_eq!(client.get(&path).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn group_without_pods_is_deleted_at_once() {
    let client = serving();
    client.create(GROUPS, &group()).await;
    client.ok(Method::DELETE, &format!("{GROUPS}/gang"), &Value::Null).await;
    assert_eq!(client.get(&format!("{GROUPS}/gang")).await.0, StatusCode::NOT_FOUND);
}

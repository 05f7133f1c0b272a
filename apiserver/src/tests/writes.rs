//! Creation, update, patch, deletion.

use super::*;

#[tokio::test]
async fn what_is_created_is_there_with_what_the_system_adds() {
    let client = Client::new();
    let created = client.create(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(created["kind"], "ConfigMap");
    assert_eq!(created["metadata"]["namespace"], "default");
    assert!(created["metadata"]["uid"].as_str().unwrap().len() == 36);
    assert!(created["metadata"]["creationTimestamp"].is_string());
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/a")).await, (StatusCode::OK, created));
    let (status, again) = client.request(Method::POST, CONFIG_MAPS, &config_map("a")).await;
    assert_eq!((status, &again["reason"]), (StatusCode::CONFLICT, &json!("AlreadyExists")));
    assert_eq!(again["message"], "configmaps \"a\" already exists");
}

#[tokio::test]
async fn names_are_generated_and_differ() {
    let client = Client::new();
    let body = json!({"metadata": {"generateName": "a-"}});
    let one = client.create(CONFIG_MAPS, &body).await;
    let two = client.create(CONFIG_MAPS, &body).await;
    assert!(one["metadata"]["name"].as_str().unwrap().starts_with("a-"));
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
}

#[tokio::test]
async fn nothing_is_created_where_there_is_no_namespace() {
    let client = Client::new();
    let (status, answer) =
        client.request(Method::POST, "/api/v1/namespaces/none/configmaps", &config_map("a")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(answer["message"], "namespaces \"none\" not found");
}

#[tokio::test]
async fn an_update_of_a_stale_object_is_a_conflict() {
    let client = Client::new();
    let first = client.create(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let mut changed = first.clone();
    changed["data"]["key"] = "other".into();
    let second = client.ok(Method::PUT, &path, &changed).await;
    assert!(version_of(&second) > version_of(&first));
    let (status, answer) = client.request(Method::PUT, &path, &changed).await;
    assert_eq!((status, &answer["reason"]), (StatusCode::CONFLICT, &json!("Conflict")));
}

#[tokio::test]
async fn a_change_that_changes_nothing_is_no_change() {
    let client = Client::new();
    let first = client.create(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let same = client.ok(Method::PATCH, &path, &json!({"data": {"key": "value"}})).await;
    assert_eq!(same, first);
    assert_eq!(client.server.resource_version(), version_of(&first));
}

#[tokio::test]
async fn a_dry_run_keeps_nothing() {
    let client = Client::new();
    let before = client.server.resource_version();
    client.create(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a")).await;
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/a")).await.0, StatusCode::NOT_FOUND);
    assert_eq!(client.server.resource_version(), before);
}

#[tokio::test]
async fn finalizers_keep_an_object_until_the_last_is_gone() {
    let client = Client::new();
    let body = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    client.create(CONFIG_MAPS, &body).await;
    let path = format!("{CONFIG_MAPS}/a");
    let going = client.ok(Method::DELETE, &path, &Value::Null).await;
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    client.ok(Method::PATCH, &path, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(client.get(&path).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_deletion_can_demand_a_version_and_a_uid() {
    let client = Client::new();
    let created = client.create(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    for wrong in [json!({"uid": "x"}), json!({"resourceVersion": "1"})] {
        let options = json!({"preconditions": wrong});
        let (status, _) = client.request(Method::DELETE, &path, &options).await;
        assert_eq!(status, StatusCode::CONFLICT);
    }
    let right = json!({"preconditions": {
        "uid": created["metadata"]["uid"], "resourceVersion": created["metadata"]["resourceVersion"],
    }});
    let answer = client.ok(Method::DELETE, &path, &right).await;
    assert_eq!((&answer["kind"], &answer["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(answer["details"]["kind"], "configmaps");
}

#[tokio::test]
async fn an_event_of_the_new_group_is_one_of_the_core_group_too() {
    const NEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
    let client = Client::new();
    let event = json!({
        "metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Binding", "reason": "Scheduled",
        "note": "n", "type": "Normal", "reportingController": "s", "reportingInstance": "s-1",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    });
    let (status, created) = client.request(Method::POST, NEW, &event).await;
    assert_eq!(
        (status, &created["note"], &created["reportingController"]),
        (StatusCode::CREATED, &json!("n"), &json!("s"))
    );
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    let (status, patched) = client.request(Method::PATCH, &format!("{NEW}/e"), &series).await;
    assert_eq!((status, &patched["series"]["count"]), (StatusCode::OK, &json!(2)), "{patched}");
    let (_, core) = client.request(Method::GET, "/api/v1/namespaces/default/events/e", &Value::Null).await;
    assert_eq!((&core["message"], &core["reportingComponent"]), (&json!("n"), &json!("s")), "{core}");
    assert_eq!(core["series"]["count"], 2);
}

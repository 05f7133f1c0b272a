//! Watches: their events, start and end.

use super::*;

#[tokio::test]
async fn watch_sends_existing_objects_then_changes() {
    let client = Client::new();
    client.create(CONFIG_MAPS, &config_map("a")).await;
    let mut events = client.watch("/api/v1/configmaps?watch=1").await;
    assert_eq!(events.brief().await.unwrap().0, "ADDED");
    let changed = client.ok(Method::PATCH, &format!("{CONFIG_MAPS}/a"), &json!({"data": {"x": "y"}})).await;
    assert_eq!(events.brief().await.unwrap(), ("MODIFIED".into(), "a".into(), version_of(&changed)));
    client.ok(Method::DELETE, &format!("{CONFIG_MAPS}/a"), &Value::Null).await;
    let deleted = events.brief().await.unwrap();
    assert_eq!(deleted, ("DELETED".into(), "a".into(), client.server.resource_version()));
}

#[tokio::test]
async fn watch_from_a_version_sends_all_later_changes() {
    let client = Client::new();
    let first = client.create(CONFIG_MAPS, &config_map("a")).await;
    client.create(CONFIG_MAPS, &config_map("b")).await;
    let path = format!("/api/v1/configmaps?watch=1&resourceVersion={}", version_of(&first));
    let mut events = client.watch(&path).await;
    assert_eq!(events.brief().await.unwrap().1, "b");
}

#[tokio::test]
async fn objects_that_start_or_stop_matching_are_added_or_deleted() {
    let client = Client::new();
    let mut events = client.watch("/api/v1/configmaps?watch=1&labelSelector=app%3Dweb").await;
    client.create(CONFIG_MAPS, &labelled("a", "api")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let label = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    client.ok(Method::PATCH, &path, &label("web")).await;
    assert_eq!(events.brief().await.unwrap().0, "ADDED");
    let gone = client.ok(Method::PATCH, &path, &label("api")).await;
    let event = events.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    // The last matching state, with the version of the change.
    assert_eq!(event["object"]["metadata"]["labels"]["app"], "web");
    assert_eq!(version_of(&event["object"]), version_of(&gone));
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let client = Client::new();
    client.create(CONFIG_MAPS, &config_map("a")).await;
    let path = "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = client.watch(path).await;
    assert_eq!(events.brief().await.unwrap().0, "ADDED");
    let mark = events.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(version_of(&mark["object"]), client.server.resource_version());
}

#[tokio::test]
async fn watch_from_a_compacted_version_gets_an_error() {
    let client = Client::new();
    client.create(CONFIG_MAPS, &config_map("a")).await;
    client.create(CONFIG_MAPS, &config_map("b")).await;
    let before = client.server.resource_version() - 1;
    client.server.compact();
    let mut events = client.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={before}")).await;
    let error = events.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn watch_sends_bookmarks_and_times_out() {
    let client = Client::new();
    let path = "/api/v1/configmaps?watch=1&allowWatchBookmarks=true&timeoutSeconds=90&resourceVersion=1";
    let mut events = client.watch(path).await;
    client.create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}})).await;
    let (event, _, version) = events.brief().await.unwrap();
    assert_eq!((event.as_str(), version), ("BOOKMARK", client.server.resource_version()));
    // A last bookmark shortly before the end lets the next watch start as late as possible.
    assert_eq!(events.brief().await.unwrap().0, "BOOKMARK");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn compaction_does_not_affect_up_to_date_watches() {
    let client = Client::new();
    let mut events = client.watch("/api/v1/configmaps?watch=1&resourceVersion=1").await;
    client.create(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(events.brief().await.unwrap().1, "a");
    for name in ["x", "y"] {
        client.create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": name}})).await;
    }
    client.server.compact();
    client.create(CONFIG_MAPS, &config_map("b")).await;
    assert_eq!(events.brief().await.unwrap().1, "b");
}

#[tokio::test]
async fn pod_deleted_at_once_is_first_seen_terminating() {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let client = Client::new();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    client.create(PODS, &pod).await;
    let version = client.server.resource_version();
    let mut events = client.watch(&format!("{PODS}?watch=1&resourceVersion={version}")).await;
    client.ok(Method::DELETE, &format!("{PODS}/p"), &Value::Null).await;
    let marked = events.next().await.unwrap();
    assert_eq!(marked["type"], "MODIFIED");
    assert_eq!(marked["object"]["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(events.brief().await.unwrap(), ("DELETED".into(), "p".into(), version + 2));
}

#[tokio::test]
async fn deletions_by_a_definition_are_sent_before_the_watch_ends() {
    let client = Client::new();
    let thing = json!({
        "apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"name": "t", "finalizers": ["example.com/hold"]},
    });
    for _ in 0..2 {
        client.create(DEFINITIONS, &things_definition()).await;
        client.create(THINGS, &thing).await;
        let version = client.server.resource_version();
        let mut events = client.watch(&format!("{THINGS}?watch=1&resourceVersion={version}")).await;
        client.ok(Method::DELETE, &format!("{DEFINITIONS}/things.example.com"), &Value::Null).await;
        assert_eq!(events.brief().await.unwrap().0, "DELETED");
        assert_eq!(events.next().await, None);
        assert_eq!(client.get(THINGS).await.0, StatusCode::NOT_FOUND);
    }
}

#[tokio::test(start_paused = true)]
async fn busy_watch_times_out() {
    let client = Client::new();
    let mut events = client.watch("/api/v1/configmaps?watch=1&timeoutSeconds=5&resourceVersion=1").await;
    let mut count = 0;
    loop {
        client.create(CONFIG_MAPS, &config_map(&format!("a{count}"))).await;
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        if events.next().await.is_none() {
            break;
        }
        count += 1;
        assert!(count < 10, "the watch does not end");
    }
}

#[tokio::test]
async fn watch_can_start_now_with_a_huge_timeout() {
    let client = Client::new();
    client.create(CONFIG_MAPS, &config_map("a")).await;
    let path = "/api/v1/configmaps?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut events = client.watch(&format!("{path}&timeoutSeconds={}", i64::MAX)).await;
    client.create(CONFIG_MAPS, &config_map("b")).await;
    assert_eq!(events.brief().await.unwrap().1, "b");
}

#[tokio::test]
async fn ages_in_a_table_are_as_of_the_event() {
    let now = std::sync::Arc::new(parking_lot::Mutex::new(jiff::Timestamp::UNIX_EPOCH));
    let clock = std::sync::Arc::clone(&now);
    let clock: crate::Clock = std::sync::Arc::new(move || *clock.lock());
    let client = Client::with(Settings { clock, ..Settings::default() });
    let request = Request::get("/api/v1/configmaps?watch=1&resourceVersion=1")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let response = client.send(request.body(Full::default()).unwrap()).await.unwrap();
    let mut events = Events { body: response.into_body(), buffer: Vec::new() };
    *now.lock() += jiff::SignedDuration::from_secs(60);
    client.create(CONFIG_MAPS, &config_map("a")).await;
    *now.lock() += jiff::SignedDuration::from_secs(5);
    assert_eq!(events.next().await.unwrap()["object"]["rows"][0]["cells"], json!(["a", 1, "5s"]));
}

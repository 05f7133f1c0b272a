//! Create, update, patch and delete.

use super::*;

#[tokio::test]
async fn created_object_has_system_metadata() {
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
async fn generated_names_are_unique() {
    let client = Client::new();
    let body = json!({"metadata": {"generateName": "a-"}});
    let one = client.create(CONFIG_MAPS, &body).await;
    let two = client.create(CONFIG_MAPS, &body).await;
    assert!(one["metadata"]["name"].as_str().unwrap().starts_with("a-"));
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
}

#[tokio::test]
async fn create_in_a_missing_namespace_is_rejected() {
    let client = Client::new();
    let (status, answer) =
        client.request(Method::POST, "/api/v1/namespaces/none/configmaps", &config_map("a")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(answer["message"], "namespaces \"none\" not found");
}

#[tokio::test]
async fn update_of_a_stale_version_is_a_conflict() {
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
async fn update_without_change_keeps_the_version() {
    let client = Client::new();
    let first = client.create(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let same = client.ok(Method::PATCH, &path, &json!({"data": {"key": "value"}})).await;
    assert_eq!(same, first);
    assert_eq!(client.server.resource_version(), version_of(&first));
}

#[tokio::test]
async fn dry_run_stores_nothing() {
    let client = Client::new();
    let before = client.server.resource_version();
    client.create(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a")).await;
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/a")).await.0, StatusCode::NOT_FOUND);
    assert_eq!(client.server.resource_version(), before);
    // Later writes are as if the dry run had not happened.
    let body = json!({"metadata": {"generateName": "a-"}});
    let dry = client.create(&format!("{CONFIG_MAPS}?dryRun=All"), &body).await;
    let real = client.create(CONFIG_MAPS, &body).await;
    let same = Client::new().create(CONFIG_MAPS, &body).await;
    for made_up in ["name", "uid"] {
        assert_eq!(real["metadata"][made_up], same["metadata"][made_up]);
        assert_ne!(dry["metadata"][made_up], real["metadata"][made_up]);
    }
}

#[tokio::test]
async fn finalizers_keep_an_object_until_the_last_is_removed() {
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
async fn deletion_checks_version_and_uid_preconditions() {
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
async fn bound_pod_gets_the_zone_of_its_node() {
    let client = Client::new();
    let zone = json!({"topology.kubernetes.io/zone": "a", "kubernetes.io/os": "linux"});
    client.create("/api/v1/nodes", &json!({"metadata": {"name": "n", "labels": zone}})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    client.create(pods, &pod).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    client.create(&format!("{pods}/p/binding"), &binding).await;
    let (_, bound) = client.get(&format!("{pods}/p")).await;
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(bound["metadata"]["labels"], json!({"topology.kubernetes.io/zone": "a"}));
}

#[tokio::test]
async fn create_in_a_terminating_namespace_is_rejected() {
    let client = Client::new();
    let finalizers = json!(["example.com/later"]);
    client.create("/api/v1/namespaces", &json!({"metadata": {"name": "n", "finalizers": finalizers}})).await;
    client.ok(Method::DELETE, "/api/v1/namespaces/n", &json!({})).await;
    let (status, answer) =
        client.request(Method::POST, "/api/v1/namespaces/n/configmaps", &config_map("a")).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(answer["details"]["causes"][0]["reason"], "NamespaceTerminating");
}

#[tokio::test]
async fn events_are_shared_between_their_two_groups() {
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

/// A client of a server with a custom resource.
async fn with_things() -> Client {
    let client = Client::new();
    client.create(DEFINITIONS, &things_definition()).await;
    client
}

fn thing(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |value, _| json!({"a": value}))
}

#[tokio::test]
async fn too_deeply_nested_objects_are_rejected() {
    let client = with_things().await;
    let (status, _) = client.request(Method::POST, THINGS, &thing("a", nested(110))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let spec = client.create(THINGS, &thing("a", nested(90))).await["spec"].clone();
    let path = format!("{THINGS}/a");
    let deeper = json!([{"op": "add", "path": format!("/spec{}", "/a".repeat(80)), "value": nested(90)}]);
    let yaml = format!("{}1{}", "{a: ".repeat(300), "}".repeat(300));
    assert_eq!(client.request(Method::PATCH, &path, &deeper).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let yaml = format!("apiVersion: example.com/v1\nkind: Thing\nmetadata: {{name: b}}\nspec: {yaml}");
    let request = Request::post(THINGS).header("content-type", "application/yaml");
    let response = client.send(request.body(Full::from(yaml)).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(client.get(&path).await.1["spec"], spec);
}

#[tokio::test]
async fn repeated_json_patch_copies_are_limited() {
    let client = with_things().await;
    client.create(THINGS, &thing("a", json!({"x": "x".repeat(1000)}))).await;
    let grow: Vec<Value> =
        (0..64).map(|at| json!({"op": "copy", "from": "/spec", "path": format!("/spec/{at}")})).collect();
    let (status, _) = client.request(Method::PATCH, &format!("{THINGS}/a"), &grow.into()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn custom_objects_have_standard_metadata() {
    let client = with_things().await;
    let mut odd = thing("a", json!({}));
    odd["metadata"]["labels"] = json!({"a": 1});
    assert_eq!(client.request(Method::POST, THINGS, &odd).await.0, StatusCode::BAD_REQUEST);
    odd["metadata"] = json!("a");
    assert_eq!(client.request(Method::POST, THINGS, &odd).await.0, StatusCode::BAD_REQUEST);
    let mut unknown = thing("a", json!({}));
    unknown["metadata"]["unknown"] = true.into();
    assert!(client.create(THINGS, &unknown).await["metadata"].get("unknown").is_none());
    let odd = json!({"metadata": {"finalizers": "x", "ownerReferences": [1]}});
    let (status, _) = client.request(Method::PATCH, &format!("{THINGS}/a"), &odd).await;
    assert!(status.is_client_error(), "{status}");
}

#[tokio::test]
async fn unimplemented_connect_subresources_return_not_implemented() {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let client = Client::new();
    client.create("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    client.create(PODS, &pod).await;
    for (method, path, what) in [
        (Method::GET, format!("{PODS}/p/log"), "pods/log"),
        (Method::POST, format!("{PODS}/p/exec"), "pods/exec"),
        (Method::GET, "/api/v1/nodes/n/proxy".to_owned(), "nodes/proxy"),
    ] {
        let (status, answer) = client.request(method, &path, &Value::Null).await;
        assert_eq!((status, &answer["reason"]), (StatusCode::NOT_IMPLEMENTED, &json!("NotImplemented")));
        assert_eq!(answer["message"], format!("{what}: not implemented by the API server in memory"));
    }
    let (status, answer) = client.get(&format!("{PODS}/none/log")).await;
    assert_eq!((status, &answer["message"]), (StatusCode::NOT_FOUND, &json!("pods \"none\" not found")));
    assert_eq!(client.get(&format!("{PODS}/p/nothing")).await.0, StatusCode::NOT_FOUND);
}

/// All texts of an object that are times.
fn times(object: &Value) -> Vec<&str> {
    match object {
        Value::String(text) => {
            text.parse::<jiff::Timestamp>().ok().map(|_| text.as_str()).into_iter().collect()
        }
        Value::Array(items) => items.iter().flat_map(times).collect(),
        Value::Object(fields) => fields.values().flat_map(times).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn times_in_objects_are_those_of_the_servers_clock() {
    let clock: crate::Clock = std::sync::Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
    let client = Client::with(Settings { clock, ..Settings::default() });
    let (pods, volumes) = ("/api/v1/namespaces/default/pods", "/api/v1/persistentvolumes");
    let pod = |name: &str, gates: Value| {
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "schedulingGates": gates});
        json!({"metadata": {"name": name}, "spec": spec})
    };
    client.create(pods, &pod("gated", json!([{"name": "example.com/g"}]))).await;
    client.create(pods, &pod("bound", json!([]))).await;
    let target = json!({"kind": "Node", "name": "n"});
    client
        .create(&format!("{pods}/bound/binding"), &json!({"metadata": {"name": "bound"}, "target": target}))
        .await;
    let spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"},
    });
    client.create(volumes, &json!({"metadata": {"name": "v"}, "spec": spec})).await;
    client
        .ok(Method::PATCH, &format!("{volumes}/v/status"), &json!({"status": {"phase": "Available"}}))
        .await;
    for (path, expected) in
        [(format!("{pods}/gated"), 2), (format!("{pods}/bound"), 2), (format!("{volumes}/v"), 2)]
    {
        let (_, object) = client.get(&path).await;
        assert_eq!(times(&object), vec!["1970-01-01T00:00:00Z"; expected], "{object:#}");
    }
}

#[tokio::test]
async fn creator_does_not_manage_what_admission_sets() {
    let client = Client::with(Settings { managed_fields: true, ..Settings::default() });
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "none"}]}});
    let created = client.create("/api/v1/namespaces/default/pods", &pod).await;
    let spec = &created["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert!(created["spec"]["priority"].is_number());
    assert!(spec["f:containers"].is_object() && spec["f:restartPolicy"].is_object());
    assert!(spec.get("f:priority").is_none() && spec.get("f:tolerations").is_none(), "{spec}");
}

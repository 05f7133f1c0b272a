//! Saving and loading.

use super::*;

#[tokio::test]
async fn saved_state_loads_unchanged() {
    let client = Client::new();
    client.create(CONFIG_MAPS, &config_map("a")).await;
    client.create("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    client.create("/api/v1/namespaces/n/secrets", &json!({"metadata": {"name": "s"}})).await;
    let saved = client.server.save();
    let other = Client::new();
    assert_eq!(other.server.load(&saved).unwrap(), saved.matches("---\n").count());
    let without_version = |mut object: Value| {
        object["metadata"]["resourceVersion"] = Value::Null;
        object
    };
    for path in
        ["/api/v1/namespaces/default/configmaps/a", "/api/v1/namespaces/n/secrets/s", "/api/v1/namespaces/n"]
    {
        let (here, there) = (client.get(path).await.1, other.get(path).await.1);
        assert_eq!(without_version(here), without_version(there), "{path}");
    }
}

#[tokio::test]
async fn saved_state_of_any_size_loads() {
    let client = Client::new();
    let data: serde_json::Map<_, _> = (0..130_000).map(|key| (key.to_string(), json!(""))).collect();
    let mut large = config_map("large");
    large["data"] = data.into();
    client.create(CONFIG_MAPS, &large).await;
    assert!(client.get(&format!("{CONFIG_MAPS}/large")).await.1["data"]["129999"].is_string());
    let saved = client.server.save();
    assert_eq!(Client::new().server.load(&saved).unwrap(), saved.matches("---\n").count());
}

#[tokio::test]
async fn kubectl_output_loads_and_creates_namespaces() {
    let client = Client::new();
    let list = "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n\
        - {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: elsewhere, uid: u, resourceVersion: '99'}}\n\
        - {apiVersion: v1, kind: Namespace, metadata: {name: named}}\n";
    assert_eq!(client.server.load(list).unwrap(), 2);
    let found = client.get("/api/v1/namespaces/elsewhere/configmaps/a").await.1;
    assert_eq!(found["metadata"]["uid"], "u");
    assert_ne!(found["metadata"]["resourceVersion"], "99");
    let typed = r#"{"apiVersion": "v1", "kind": "ConfigMapList", "items": [{"metadata": {"name": "b"}}]}"#;
    assert_eq!(client.server.load(typed).unwrap(), 1);
    assert_eq!(client.get("/api/v1/namespaces/default/configmaps/b").await.0, StatusCode::OK);
}

#[tokio::test]
async fn objects_that_cannot_be_loaded_are_named() {
    let client = Client::new();
    let load = |text: &str| client.server.load(text).unwrap_err().to_string();
    assert_eq!(
        load("kind: Thing\napiVersion: example.com/v1\nmetadata: {name: x}"),
        "object 1 (Thing x): kind \"Thing\" in \"example.com/v1\" is not served"
    );
    assert_eq!(load("kind: Node\napiVersion: v1"), "object 1 (Node ): metadata.name is missing");
    assert!(load("a: [").contains("line"), "{}", load("a: ["));
}

#[tokio::test]
async fn uids_generated_after_a_load_differ_from_saved_ones() {
    let client = Client::new();
    for at in 0..20 {
        client.create(CONFIG_MAPS, &config_map(&format!("gone-{at}"))).await;
    }
    let kept = client.create(CONFIG_MAPS, &config_map("kept")).await;
    client
        .ok(Method::DELETE, &format!("{CONFIG_MAPS}?fieldSelector=metadata.name%21%3Dkept"), &Value::Null)
        .await;
    let other = Client::new();
    other.server.load(&client.server.save()).unwrap();
    for at in 0..40 {
        let created = other.create(CONFIG_MAPS, &config_map(&format!("new-{at}"))).await;
        assert_ne!(created["metadata"]["uid"], kept["metadata"]["uid"], "{at}");
    }
}

#[tokio::test]
async fn strings_that_look_like_other_yaml_types_stay_strings() {
    let client = Client::new();
    let odd = [
        "",
        " ",
        "~",
        "null",
        "Null",
        "true",
        "yes",
        "no",
        "on",
        "off",
        "y",
        "n",
        "1",
        "-1",
        "+1",
        "1.0",
        "1e3",
        ".5",
        "0x10",
        "0o7",
        "010",
        "1_000",
        "12:30:45",
        "2024-01-01",
        ".inf",
        "-.INF",
        ".nan",
        "=",
        "<<",
        "-",
        "- a",
        "?",
        "? a",
        ":",
        "a: b",
        "a:",
        "#",
        "a #b",
        "&a",
        "*a",
        "!a",
        "!!str a",
        "|",
        ">",
        "|-\n a",
        "%a",
        "@a",
        "`a",
        "[",
        "]",
        "{",
        "}",
        ",",
        "'",
        "\"",
        "'a'",
        "\"a\"",
        " a",
        "a ",
        "\ta",
        "a\t",
        "a\nb",
        "a\n",
        "a\n\n",
        "\na",
        "\n a\nb",
        " \n",
        "a\r\nb",
        "---",
        "...",
        "--- a",
        "\u{0}",
        "\u{7f}",
        "\u{85}",
        "\u{a0}",
        "\u{2028}",
        "\u{feff}a",
        "\u{1b}[1m",
        "é",
        "😀",
        "\\n",
    ];
    let data: Value = odd.iter().enumerate().map(|(at, text)| (format!("k{at}"), json!(text))).collect();
    client.create(CONFIG_MAPS, &json!({"metadata": {"name": "odd"}, "data": data})).await;
    client
        .create(
            CONFIG_MAPS,
            &json!({"metadata": {"name": "keys"}, "data": {"no": "x", "1": "y", "1e3": "z"}}),
        )
        .await;
    let other = Client::new();
    other.server.load(&client.server.save()).unwrap();
    for name in ["odd", "keys"] {
        let path = format!("{CONFIG_MAPS}/{name}");
        let (here, there) = (client.get(&path).await.1, other.get(&path).await.1);
        let (here, there) = (here["data"].as_object().unwrap(), there["data"].as_object().unwrap());
        let different: Vec<_> = here.iter().filter(|(key, value)| there.get(*key) != Some(value)).collect();
        assert!(different.is_empty(), "{different:?}");
    }
}

#[tokio::test]
async fn loading_fills_in_missing_metadata_and_defaults() {
    let client = Client::new();
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: '', uid: '', creationTimestamp: null}\n";
    client.server.load(text).unwrap();
    let metadata = client.get(&format!("{CONFIG_MAPS}/a")).await.1["metadata"].take();
    assert!(metadata["uid"].as_str().is_some_and(|uid| !uid.is_empty()));
    assert!(metadata["creationTimestamp"].is_string());
}

#[tokio::test]
async fn a_restored_server_is_as_it_was_and_its_clients_list_anew() {
    let client = Client::new();
    client.create(CONFIG_MAPS, &config_map("a")).await;
    let backup = client.server.backup();
    client.create(CONFIG_MAPS, &config_map("b")).await;
    let version = client.server.resource_version();
    client.server.restore(&backup);
    assert_eq!(client.get("/api/v1/namespaces/default/configmaps/a").await.0, StatusCode::OK);
    assert_eq!(client.get("/api/v1/namespaces/default/configmaps/b").await.0, StatusCode::NOT_FOUND);
    assert!(client.server.resource_version() > version);
    let watch = format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}&timeoutSeconds=1");
    assert_eq!(client.get(&watch).await.1["object"]["code"], 410);
}

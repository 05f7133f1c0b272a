//! Saving and loading.

use super::*;

#[tokio::test]
async fn what_is_saved_is_loaded_as_it_was() {
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
async fn what_kubectl_prints_is_loaded_with_the_namespaces_it_needs() {
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
async fn what_cannot_be_loaded_is_named() {
    let client = Client::new();
    let load = |text: &str| client.server.load(text).unwrap_err().to_string();
    assert_eq!(
        load("kind: Thing\napiVersion: example.com/v1\nmetadata: {name: x}"),
        "object 1 (Thing x): no Thing in \"example.com/v1\" is served here"
    );
    assert_eq!(load("kind: Node\napiVersion: v1"), "object 1 (Node ): it has no metadata.name");
    assert!(load("a: [").contains("line"), "{}", load("a: ["));
}

//! What goes with what.

use super::*;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

async fn owned(client: &Client, name: &str, owner: &Value) {
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    });
    client.create(SECRETS, &json!({"metadata": {"name": name, "ownerReferences": [reference]}})).await;
}

async fn secrets(client: &Client) -> Vec<Value> {
    client.get(SECRETS).await.1["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn dependents_go_with_their_owner_or_are_let_go() {
    for (policy, left) in [("Background", 0), ("Foreground", 0), ("Orphan", 2)] {
        let client = Client::new();
        let owner = client.create(CONFIG_MAPS, &config_map("owner")).await;
        owned(&client, "a", &owner).await;
        owned(&client, "b", &owner).await;
        let options = json!({"propagationPolicy": policy});
        client.ok(Method::DELETE, &format!("{CONFIG_MAPS}/owner"), &options).await;
        assert_eq!(client.get(&format!("{CONFIG_MAPS}/owner")).await.0, StatusCode::NOT_FOUND, "{policy}");
        let secrets = secrets(&client).await;
        assert_eq!(secrets.len(), left, "{policy}");
        assert!(secrets.iter().all(|secret| secret["metadata"].get("ownerReferences").is_none()));
    }
}

#[tokio::test]
async fn in_the_foreground_the_owner_waits() {
    let client = Client::new();
    let owner = client.create(CONFIG_MAPS, &config_map("owner")).await;
    owned(&client, "a", &owner).await;
    let secret = format!("{SECRETS}/a");
    client.ok(Method::PATCH, &secret, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    let path = format!("{CONFIG_MAPS}/owner");
    client.ok(Method::DELETE, &path, &json!({"propagationPolicy": "Foreground"})).await;
    assert_eq!(client.get(&path).await.1["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    client.ok(Method::PATCH, &secret, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(client.get(&path).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_is_in_a_namespace_goes_with_it() {
    let client = Client::new();
    client.create("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    client.create("/api/v1/namespaces/n/configmaps", &config_map("a")).await;
    client.ok(Method::DELETE, "/api/v1/namespaces/n", &Value::Null).await;
    assert_eq!(client.get("/api/v1/namespaces/n").await.0, StatusCode::NOT_FOUND);
    let left = client.get("/api/v1/configmaps").await.1;
    assert_eq!(left["items"], json!([]));
}

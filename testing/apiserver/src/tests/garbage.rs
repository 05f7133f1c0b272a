//! Garbage collection and namespace deletion.

use super::*;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

async fn owned(client: &Client, name: &str, owner: &Value) {
    let reference = owned_by(owner);
    client.create(SECRETS, &json!({"metadata": {"name": name, "ownerReferences": [reference]}})).await;
}

fn owned_by(owner: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true,
    })
}

async fn secrets(client: &Client) -> Vec<Value> {
    client.get(SECRETS).await.1["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn dependents_are_deleted_or_orphaned_with_their_owner() {
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
async fn foreground_deletion_waits_for_dependents() {
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
async fn deleting_a_namespace_deletes_its_content() {
    let client = Client::new();
    client.create("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    client.create("/api/v1/namespaces/n/configmaps", &config_map("a")).await;
    client.ok(Method::DELETE, "/api/v1/namespaces/n", &Value::Null).await;
    assert_eq!(client.get("/api/v1/namespaces/n").await.0, StatusCode::NOT_FOUND);
    let left = client.get("/api/v1/configmaps").await.1;
    assert_eq!(left["items"], json!([]));
}

#[tokio::test]
async fn long_chain_of_owners_is_deleted_completely() {
    for policy in ["Background", "Foreground"] {
        let client = Client::new();
        let first = client.create(CONFIG_MAPS, &config_map("c0")).await;
        let mut last = first.clone();
        for at in 1..3000 {
            let metadata = json!({"name": format!("c{at}"), "ownerReferences": [owned_by(&last)]});
            last = client.create(CONFIG_MAPS, &json!({"metadata": metadata})).await;
        }
        let options = json!({"propagationPolicy": policy});
        client.ok(Method::DELETE, &format!("{CONFIG_MAPS}/c0"), &options).await;
        assert_eq!(client.get(CONFIG_MAPS).await.1["items"], json!([]), "{policy}");
    }
}

#[tokio::test]
async fn cycle_of_owners_is_deleted() {
    for policy in ["Background", "Foreground"] {
        let client = Client::new();
        let one = client.create(CONFIG_MAPS, &config_map("a")).await;
        let metadata = json!({"name": "b", "ownerReferences": [owned_by(&one)]});
        let two = client.create(CONFIG_MAPS, &json!({"metadata": metadata})).await;
        let closed = json!({"metadata": {"ownerReferences": [owned_by(&two)]}});
        client.ok(Method::PATCH, &format!("{CONFIG_MAPS}/a"), &closed).await;
        let options = json!({"propagationPolicy": policy});
        client.ok(Method::DELETE, &format!("{CONFIG_MAPS}/a"), &options).await;
        assert_eq!(client.get(CONFIG_MAPS).await.1["items"], json!([]), "{policy}");
    }
}

#[tokio::test]
async fn owner_in_foreground_deletion_is_removed_once() {
    let client = Client::new();
    let owner = client.create(CONFIG_MAPS, &config_map("owner")).await;
    owned(&client, "a", &owner).await;
    let before = client.server.resource_version();
    let options = json!({"propagationPolicy": "Foreground"});
    client.ok(Method::DELETE, &format!("{CONFIG_MAPS}/owner"), &options).await;
    // Three changes: the owner is marked, the dependent removed, the owner removed.
    assert_eq!(client.server.resource_version(), before + 3);
}

#[tokio::test]
async fn dependent_stays_only_while_another_owner_exists() {
    let client = Client::new();
    let one = client.create(CONFIG_MAPS, &config_map("one")).await;
    let two = client.create(CONFIG_MAPS, &config_map("two")).await;
    let mut gone = owned_by(&two);
    gone["uid"] = "never".into();
    for (name, other) in [("stays", owned_by(&two)), ("goes", gone)] {
        let metadata = json!({"name": name, "ownerReferences": [owned_by(&one), other]});
        client.create(SECRETS, &json!({"metadata": metadata})).await;
    }
    client.ok(Method::DELETE, &format!("{CONFIG_MAPS}/one"), &Value::Null).await;
    let left = secrets(&client).await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["metadata"]["ownerReferences"], json!([owned_by(&two)]));
}

#[tokio::test]
async fn deletecollection_tolerates_cascaded_deletions() {
    let client = Client::new();
    let owner = client.create(CONFIG_MAPS, &config_map("a")).await;
    let metadata = json!({"name": "b", "ownerReferences": [owned_by(&owner)]});
    client.create(CONFIG_MAPS, &json!({"metadata": metadata})).await;
    client.ok(Method::DELETE, CONFIG_MAPS, &Value::Null).await;
    assert_eq!(client.get(CONFIG_MAPS).await.1["items"], json!([]));
    let (status, _) = client.request(Method::DELETE, "/api/v1/namespaces", &Value::Null).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn jobs_orphan_their_pods_by_default() {
    const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
    for (options, left) in [(Value::Null, 1), (json!({"propagationPolicy": "Background"}), 0)] {
        let client = Client::new();
        let template = json!({"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }});
        let job =
            client.create(JOBS, &json!({"metadata": {"name": "j"}, "spec": {"template": template}})).await;
        let reference = json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job["metadata"]["uid"], "controller": true,
        });
        client.create(SECRETS, &json!({"metadata": {"name": "s", "ownerReferences": [reference]}})).await;
        client.ok(Method::DELETE, &format!("{JOBS}/j"), &options).await;
        assert_eq!(secrets(&client).await.len(), left);
        assert_eq!(client.get(&format!("{JOBS}/j")).await.0, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn terminating_namespace_has_the_phase_terminating() {
    let client = Client::new();
    client.create("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let body = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    client.create("/api/v1/namespaces/n/configmaps", &body).await;
    let going = client.ok(Method::DELETE, "/api/v1/namespaces/n", &Value::Null).await;
    assert_eq!(going["status"]["phase"], "Terminating");
    let released = json!({"metadata": {"finalizers": null}});
    client.ok(Method::PATCH, "/api/v1/namespaces/n/configmaps/a", &released).await;
    assert_eq!(client.get("/api/v1/namespaces/n").await.0, StatusCode::NOT_FOUND);
}

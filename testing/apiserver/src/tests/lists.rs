//! Lists: pagination, versions, selectors.

use super::*;

async fn fill(client: &Client, names: &[&str]) {
    for name in names {
        client.create(CONFIG_MAPS, &config_map(name)).await;
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn pages_have_one_version_and_omit_nothing() {
    let client = Client::new();
    fill(&client, &["a", "b", "c", "d", "e"]).await;
    let first = client.get(&format!("{CONFIG_MAPS}?limit=2")).await.1;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    // Objects created later appear on no page of this list.
    fill(&client, &["bb"]).await;
    client.ok(Method::DELETE, &format!("{CONFIG_MAPS}/d"), &Value::Null).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = client.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await.1;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let last = client.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await.1;
    assert_eq!(names(&last), ["e"]);
    assert!(last["metadata"].get("continue").is_none());
}

#[tokio::test]
async fn expired_token_is_rejected_with_an_inconsistent_one() {
    let client = Client::new();
    fill(&client, &["a", "b", "c"]).await;
    let first = client.get(&format!("{CONFIG_MAPS}?limit=1")).await.1;
    let token = first["metadata"]["continue"].as_str().unwrap();
    fill(&client, &["bb"]).await;
    client.server.compact();
    let (status, refusal) = client.get(&format!("{CONFIG_MAPS}?limit=1&continue={token}")).await;
    assert_eq!((status, &refusal["reason"]), (StatusCode::GONE, &json!("Expired")));
    let token = refusal["metadata"]["continue"].as_str().unwrap();
    let rest = client.get(&format!("{CONFIG_MAPS}?continue={token}")).await.1;
    assert_eq!(names(&rest), ["b", "bb", "c"]);
}

#[tokio::test]
async fn version_match_is_respected() {
    let client = Client::new();
    fill(&client, &["a"]).await;
    let version = client.server.resource_version();
    fill(&client, &["b"]).await;
    let exact = format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(names(&client.get(&exact).await.1), ["a"]);
    let not_older = format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan");
    assert_eq!(names(&client.get(&not_older).await.1), ["a", "b"]);
    let (status, refusal) = client.get(&format!("{CONFIG_MAPS}?resourceVersion=999999")).await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(refusal["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    client.server.compact();
    assert_eq!(client.get(&exact).await.0, StatusCode::GONE);
}

#[tokio::test]
async fn selectors_filter_lists() {
    let client = Client::new();
    client.create(CONFIG_MAPS, &labelled("a", "web")).await;
    client.create(CONFIG_MAPS, &labelled("b", "api")).await;
    let by_label = client.get(&format!("{CONFIG_MAPS}?labelSelector=app%3Dweb")).await.1;
    assert_eq!(names(&by_label), ["a"]);
    let by_field = client.get("/api/v1/configmaps?fieldSelector=metadata.name%3Db").await.1;
    assert_eq!(names(&by_field), ["b"]);
    let (status, refusal) = client.get("/api/v1/configmaps?fieldSelector=spec.x%3Db").await;
    assert_eq!((status, &refusal["reason"]), (StatusCode::BAD_REQUEST, &json!("BadRequest")));
}

//! The API server validates the manifests.

use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use supercargo_controlplane::ControlPlane;

use super::cluster::cluster_or_skip;
use super::manifests::{self, collection};

/// The answer to a request.
#[derive(Debug)]
struct Answer {
    status: u16,
    warnings: Vec<String>,
    body: String,
}

/// Has the server validate an object strictly in a dry run.
async fn check(client: &Client, object: &Value) -> Answer {
    let path = format!("{}?dryRun=All&fieldValidation=Strict", collection(object));
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(object.to_string().into_bytes()))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned()).collect();
    let status = response.status().as_u16();
    let body = response.into_body().collect_bytes().await.unwrap();
    Answer { status, warnings, body: String::from_utf8_lossy(&body).into_owned() }
}

async fn admin(plane: &ControlPlane) -> Client {
    let config =
        supercargo_client::connection::connect(Some(&plane.kubeconfig("admin").unwrap())).await.unwrap();
    Client::try_from(config).unwrap()
}

fn assert_welcome(answer: &Answer) {
    assert_eq!(answer.status, 201, "{answer:#?}");
    assert!(answer.warnings.is_empty(), "{answer:#?}");
}

#[tokio::test]
async fn manifests_apply_without_warnings() {
    let Some(plane) = tokio::task::spawn_blocking(cluster_or_skip).await.unwrap() else {
        return;
    };
    let client = admin(plane).await;
    // The originals exist already, except for the example.
    for mut object in manifests::base() {
        object["metadata"]["name"] = json!("another");
        assert_welcome(&check(&client, &object).await);
    }
    let mut misspelt = manifests::object("Deployment");
    misspelt["metadata"]["name"] = json!("another");
    misspelt["spec"]["replica"] = json!(1);
    let answer = check(&client, &misspelt).await;
    assert_eq!(answer.status, 400, "{answer:#?}");
    assert!(answer.body.contains("unknown field \\\"spec.replica\\\""), "{answer:#?}");
}

#[tokio::test]
async fn scheduler_and_example_pass_restricted_pod_security() {
    let Some(plane) = tokio::task::spawn_blocking(cluster_or_skip).await.unwrap() else {
        return;
    };
    let client = admin(plane).await;
    let pod = manifests::pod_of(&manifests::object("Deployment"));
    assert_welcome(&check(&client, &pod).await);
    let mut example = manifests::read("examples/pod.yaml");
    example["metadata"]["namespace"] = pod["metadata"]["namespace"].clone();
    assert_welcome(&check(&client, &example).await);

    // The restricted standard requires and forbids fields; every rule must be checked.
    let pod_security = "/spec/securityContext";
    let security = "/spec/containers/0/securityContext";
    let changes = [
        (pod_security, "runAsNonRoot", Value::Null),
        (pod_security, "runAsUser", json!(0)),
        (pod_security, "seccompProfile", Value::Null),
        (security, "allowPrivilegeEscalation", Value::Null),
        (security, "capabilities", Value::Null),
        ("/spec", "hostNetwork", json!(true)),
    ];
    for (place, field, value) in changes {
        let mut worse = pod.clone();
        worse.pointer_mut(place).unwrap()[field] = value;
        let answer = check(&client, &worse).await;
        assert_eq!(answer.status, 403, "{place} {field}: {answer:#?}");
        assert!(answer.body.contains("violates PodSecurity \\\"restricted"), "{place} {field}: {answer:#?}");
    }
}

//! `manifests/install.yaml` equals the output of `kubectl kustomize manifests/base`, and an API
//! server accepts it.

use std::fs;
use std::path::PathBuf;

use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, Options, assets_or_skip};

use super::render::Kustomization;
use crate::rbac::manifests::{self, collection, text};

/// The header of the file.
const HEAD: &str = "\
# supercargo as a second scheduler, all in one file:
#
#     kubectl apply -f install.yaml
#
# Rendered from base/ by a test; edit that, and see README.md for how to render again.
";

/// Updates the file instead of comparing it.
const RECORD: &str = "SUPERCARGO_INSTALL_RECORD";

fn file() -> PathBuf {
    manifests::root().join("install.yaml")
}

fn kustomization() -> Kustomization {
    Kustomization::parse(&manifests::read("base/kustomization.yaml")).unwrap()
}

fn rendered() -> String {
    let read = |file: &str| fs::read_to_string(manifests::root().join("base").join(file)).unwrap();
    HEAD.to_owned() + &kustomization().render(read).unwrap()
}

#[test]
fn install_yaml_is_current() {
    let rendered = rendered();
    if std::env::var_os(RECORD).is_some_and(|value| value == "1") {
        fs::write(file(), &rendered).unwrap();
    }
    let found = fs::read_to_string(file()).unwrap_or_default();
    let how = format!("{RECORD}=1 cargo test --test integration rendered_file_is_current");
    assert!(found == rendered, "manifests/install.yaml is not what the base says; render it again: {how}");
}

#[test]
fn install_yaml_has_base_objects_with_image_names() {
    let kustomization = kustomization();
    let mut objects = manifests::base();
    for object in &mut objects {
        kustomization.rename(object);
    }
    assert_eq!(manifests::documents(&file()), objects);
    assert_ne!(objects, manifests::base(), "the kustomization names no image that is used");

    let image = image();
    let version = env!("CARGO_PKG_VERSION");
    assert!(image.ends_with(&format!(":{version}")), "{image} should be tagged {version}");
}

/// The image of the Deployment.
pub(super) fn image() -> String {
    let objects = manifests::documents(&file());
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    text(&deployment["spec"]["template"]["spec"]["containers"][0]["image"]).to_owned()
}

#[test]
fn renderer_rejects_unknown_fields_by_name() {
    let parse = |object: Value| Kustomization::parse(&object).map(|_| ()).unwrap_err();
    let label = json!({"resources": [], "labels": [{"pairs": {"a": "b"}}]});
    assert_eq!(parse(label), "kustomization.yaml: the renderer does not know labels");
    let tag = json!({"images": [{"name": "a", "tagSuffix": "b"}]});
    assert_eq!(parse(tag), "images: the renderer does not know tagSuffix");
    let elsewhere = json!({"resources": ["../crd"]});
    assert_eq!(parse(elsewhere), "resources: \"../crd\" is no YAML file of the base's own folder");

    let two = Kustomization::parse(&json!({"resources": ["two.yaml"]})).unwrap();
    let error = two.render(|_| "a: 1\n---\nb: 2\n".to_owned()).unwrap_err();
    assert_eq!(error, "two.yaml has more than one document or a directive");
}

#[test]
fn images_are_renamed_by_full_name() {
    let images = json!({"resources": ["pod.yaml"], "images": [
        {"name": "here:5000/a/b", "newTag": "2"},
        {"name": "c", "newName": "there/c"},
        {"name": "d", "newTag": "2", "digest": "sha256:00"},
    ]});
    let kustomization = Kustomization::parse(&images).unwrap();
    let table = [
        ("here:5000/a/b", "here:5000/a/b:2"),
        ("here:5000/a/b:1", "here:5000/a/b:2"),
        ("here:5000/a/b@sha256:11", "here:5000/a/b:2"),
        ("here:5000/a/bc:1", "here:5000/a/bc:1"),
        ("a/b:1", "a/b:1"),
        ("c:1", "there/c:1"),
        ("c", "there/c"),
        ("d:1", "d@sha256:00"),
        ("d:1@sha256:11", "d@sha256:00"),
    ];
    for (before, after) in table {
        let pod = |image: &str| format!("spec:\n  containers:\n    - image: {image}\n      name: x\n");
        let text = kustomization.render(|_| pod(before)).unwrap();
        assert_eq!(text, format!("---\n{}", pod(after)), "{before}");
        let mut object = json!({"spec": {"template": {"spec": {"initContainers": [{"image": before}]}}}});
        kustomization.rename(&mut object);
        assert_eq!(object["spec"]["template"]["spec"]["initContainers"][0]["image"], after);
    }
}

/// Applies an object like `kubectl apply --server-side`. Returns the status and the object or the
/// error.
async fn apply(client: &Client, object: &Value) -> (u16, Value) {
    let path = format!("{}/{}", collection(object), text(&object["metadata"]["name"]));
    let request = Request::patch(format!("{path}?fieldManager=kubectl&fieldValidation=Strict"))
        .header("content-type", "application/apply-patch+yaml")
        // JSON is YAML.
        .body(Body::from(object.to_string().into_bytes()))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let status = response.status().as_u16();
    let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
    assert!(warnings.is_empty(), "{path}: {warnings:?}");
    let body = response.into_body().collect_bytes().await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn install_yaml_applies_in_order_and_is_idempotent() {
    if assets_or_skip().is_none() {
        return;
    }
    let start = || ControlPlane::start(Options::default()).unwrap();
    let plane = tokio::task::spawn_blocking(start).await.unwrap();
    let config =
        supercargo_client::connection::connect(Some(&plane.kubeconfig("admin").unwrap())).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let objects = manifests::documents(&file());
    let mut first = Vec::new();
    for object in &objects {
        let (status, applied) = apply(&client, object).await;
        assert_eq!(status, 201, "{applied:#}");
        first.push(applied["metadata"]["resourceVersion"].clone());
    }
    for (object, version) in objects.iter().zip(first) {
        let (status, applied) = apply(&client, object).await;
        assert_eq!(status, 200, "{applied:#}");
        assert_eq!(applied["metadata"]["resourceVersion"], version, "{applied:#}");
    }
    // Its end takes a moment in which other tests can run.
    tokio::task::spawn_blocking(move || drop(plane)).await.unwrap();
}

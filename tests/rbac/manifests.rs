//! The files in `manifests/` as API objects.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests")
}

/// Reads a file of the folder with one document.
pub(crate) fn read(path: &str) -> Value {
    parse(&root().join(path))
}

/// Reads a YAML file with one document.
pub(crate) fn parse(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a YAML file, in their order.
pub(crate) fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let documents = documents_of(&text);
    assert!(!documents.is_empty(), "{} is empty", path.display());
    documents
}

/// The documents of a text, in their order.
pub(crate) fn documents_of(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
}

/// Every YAML file of the folder, sorted.
pub(crate) fn yaml_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The objects of `kubectl apply -k manifests/base`, in the order of the kustomization.
pub(crate) fn base() -> Vec<Value> {
    let kustomization = read("base/kustomization.yaml");
    let resources = kustomization["resources"].as_array().expect("a list of resources");
    let object = |file: &Value| read(&format!("base/{}", text(file)));
    resources.iter().map(object).collect()
}

/// The only object of a kind in the base.
pub(crate) fn object(kind: &str) -> Value {
    let mut found = base().into_iter().filter(|object| object["kind"] == kind);
    let object = found.next().unwrap_or_else(|| panic!("no {kind} in the base"));
    assert!(found.next().is_none(), "more than one {kind} in the base");
    object
}

/// The scheduler's configuration in its ConfigMap.
pub(crate) fn config() -> String {
    text(&object("ConfigMap")["data"]["config.yaml"]).to_owned()
}

/// The same configuration with another scheduler name and without leader election.
pub(crate) fn config_of_one(scheduler_name: &str) -> String {
    let named = config().replace("schedulerName: supercargo", &format!("schedulerName: {scheduler_name}"));
    format!("{named}leaderElection: {{leaderElect: false}}\n")
}

/// The arguments of the scheduler's container.
pub(crate) fn args() -> Vec<String> {
    let deployment = object("Deployment");
    let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    serde_json::from_value(args).expect("a list of arguments")
}

/// The pod that a Deployment creates.
pub(crate) fn pod_of(deployment: &Value) -> Value {
    let template = &deployment["spec"]["template"];
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "supercargo-0",
            "namespace": deployment["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
        },
        "spec": template["spec"],
    })
}

/// The path of the collection of an object.
pub(crate) fn collection(object: &Value) -> String {
    let resource = match text(&object["kind"]) {
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
        "NetworkPolicy" => "networkpolicies",
        "PodDisruptionBudget" => "poddisruptionbudgets",
        "ResourceQuota" => "resourcequotas",
        "Service" => "services",
        "ConfigMap" => "configmaps",
        "Deployment" => "deployments",
        "Pod" => "pods",
        kind => panic!("say here what the resource of {kind} is called"),
    };
    let version = text(&object["apiVersion"]);
    let api = if version.contains('/') { "/apis" } else { "/api" };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{api}/{version}/namespaces/{namespace}/{resource}"),
        None => format!("{api}/{version}/{resource}"),
    }
}

/// A string in an object.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} should be a string"))
}

#[test]
fn every_manifest_is_a_kubernetes_object() {
    let files = yaml_files();
    assert!(files.len() >= 9, "{files:?}");
    for file in files {
        for object in documents(&file) {
            for field in ["apiVersion", "kind"] {
                assert!(object[field].is_string(), "{} has no {field}", file.display());
            }
        }
    }
}

//! Tests of what kubectl reads from the documents.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::kinds::built_in;

fn none(_: &Kind) -> Option<Value> {
    None
}

fn widget() -> Kind {
    let mut kind = built_in().iter().find(|kind| kind.resource == "leases").unwrap().clone();
    kind.group = "example.com".into();
    kind.resource = "widgets".into();
    kind.kind = "Widget".into();
    kind.custom = true;
    kind
}

fn core() -> Value {
    v3(built_in(), "", "v1", &none).unwrap()
}

fn property<'a>(document: &'a Value, name: &str, property: &str) -> &'a Value {
    &document["components"]["schemas"][name]["properties"][property]
}

/// Every `$ref` in a document.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                found.insert(reference.clone());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

fn dangling(document: &Value) -> Vec<String> {
    let mut found = BTreeSet::new();
    references(document, &mut found);
    assert!(!found.is_empty());
    found
        .into_iter()
        .filter(|reference| !document.pointer(&reference[1..]).is_some_and(Value::is_object))
        .collect()
}

#[test]
fn references_all_resolve() {
    let kinds: Vec<Kind> = built_in().iter().cloned().chain([widget()]).collect();
    let index = v3_index(&kinds, &none);
    for path in index["paths"].as_object().unwrap().keys() {
        let (group, version) = match path.split('/').collect::<Vec<_>>()[..] {
            ["api", version] => ("", version),
            ["apis", group, version] => (group, version),
            _ => panic!("{path}"),
        };
        assert_eq!(dangling(&v3(&kinds, group, version, &none).unwrap()), Vec::<String>::new(), "{path}");
    }
    assert_eq!(dangling(&v2(&kinds)), Vec::<String>::new());
}

#[test]
fn fields_are_described_as_kube_apiserver_does() {
    let core = core();
    let pod_spec = "io.k8s.api.core.v1.PodSpec";
    assert_eq!(
        *property(&core, pod_spec, "volumes"),
        json!({"type": "array",
            "items": {"default": {}, "allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Volume"}]},
            "x-kubernetes-list-map-keys": ["name"], "x-kubernetes-list-type": "map",
            "x-kubernetes-patch-merge-key": "name", "x-kubernetes-patch-strategy": "merge,retainKeys"})
    );
    assert_eq!(
        *property(&core, pod_spec, "nodeSelector"),
        json!({"type": "object", "additionalProperties": {"type": "string", "default": ""},
            "x-kubernetes-map-type": "atomic"})
    );
    assert_eq!(
        *property(&core, pod_spec, "overhead"),
        json!({"type": "object", "additionalProperties":
            {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"}})
    );
    assert_eq!(
        *property(&core, "io.k8s.api.core.v1.Namespace", "metadata"),
        json!({"default": {}, "allOf":
            [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]})
    );
    assert_eq!(
        *property(&core, pod_spec, "securityContext"),
        json!({"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodSecurityContext"}]})
    );
    let schemas = &core["components"]["schemas"];
    assert_eq!(schemas["io.k8s.api.core.v1.Container"]["required"], json!(["name"]));
    assert_eq!(
        schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    assert_eq!(
        schemas["io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"]["x-kubernetes-map-type"],
        "atomic"
    );
}

#[test]
fn patches_name_their_media_types_and_kind() {
    let core = core();
    let patch = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "", "version": "v1", "kind": "Pod"})
    );
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object());
    let validates = |patch: &Value| {
        let parameters = patch["parameters"].as_array().unwrap();
        parameters.iter().any(|one| one["name"] == "fieldValidation" && one["in"] == "query")
    };
    assert!(validates(patch));
    let scale = v3(built_in(), "apps", "v1", &none).unwrap();
    let scale = &scale["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"]["patch"];
    assert_eq!(
        scale["x-kubernetes-group-version-kind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    let custom = v3([&widget()], "example.com", "v1", &none).unwrap();
    let custom = &custom["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    assert!(custom["requestBody"]["content"]["application/merge-patch+json"].is_object());
    assert!(custom["requestBody"]["content"]["application/strategic-merge-patch+json"].is_null());
    assert!(validates(custom));
}

#[test]
fn custom_kind_has_its_own_schema_or_an_open_one() {
    let name = "com.example.v1.Widget";
    let any = v3([&widget()], "example.com", "v1", &none).unwrap();
    assert_eq!(any["components"]["schemas"][name]["x-kubernetes-preserve-unknown-fields"], true);
    let own = |_: &Kind| {
        Some(json!({"type": "object", "properties": {"metadata": {"type": "object"},
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}))
    };
    let own = v3([&widget()], "example.com", "v1", &own).unwrap();
    assert_eq!(property(&own, name, "spec")["properties"]["size"]["type"], "integer");
    assert!(property(&own, name, "metadata")["allOf"].is_array());
    assert_eq!(
        own["components"]["schemas"][name]["x-kubernetes-group-version-kind"],
        json!([{"group": "example.com", "version": "v1", "kind": "Widget"}])
    );
}

#[test]
fn index_urls_change_with_the_schema_of_a_custom_kind() {
    let url = |custom: CustomSchema<'_>| {
        v3_index([&widget()], custom)["paths"]["apis/example.com/v1"]["serverRelativeURL"].clone()
    };
    let one = |_: &Kind| Some(json!({"type": "object"}));
    assert_eq!(url(&none), url(&none));
    assert_ne!(url(&none), url(&one));
    assert!(url(&none).as_str().unwrap().starts_with("/openapi/v3/apis/example.com/v1?hash="));
}

#[test]
fn unserved_group_versions_have_no_document() {
    assert_eq!(v3(built_in(), "example.com", "v1", &none), None);
}

#[test]
fn explain_finds_the_kind_of_every_path() {
    let kinds: Vec<Kind> = built_in().iter().cloned().chain([widget()]).collect();
    for kind in &kinds {
        let document = v3(&kinds, &kind.group, &kind.version, &none).unwrap();
        let collection = if kind.namespaced {
            format!("{}/namespaces/{{namespace}}/{}", kind.root(), kind.resource)
        } else {
            format!("{}/{}", kind.root(), kind.resource)
        };
        let marker = &document["paths"][&collection]["post"]["x-kubernetes-group-version-kind"];
        assert_eq!(
            *marker,
            json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
            "{collection}"
        );
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let described = schemas.values().filter(|schema| {
            let markers = schema["x-kubernetes-group-version-kind"].as_array();
            markers.is_some_and(|markers| markers.contains(marker))
        });
        assert_eq!(described.count(), 1, "{collection}");
    }
}

//! Creates pods and revisions from a template.

use std::hash::BuildHasher as _;

use rustc_hash::FxBuildHasher;
use serde_json::{Map, Value, json};

use crate::json::{object_mut, present, text_at};
use crate::kinds::Kind;
use crate::random::Random;

/// The controller reference of an object that a workload creates.
pub(super) fn controller(kind: &Kind, workload: &Value) -> Value {
    json!([{
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "name": workload["metadata"]["name"],
        "uid": workload["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    }])
}

/// A pod of a workload's template, without a name.
pub(super) fn pod(kind: &Kind, workload: &Value) -> Value {
    let template = &workload["spec"]["template"];
    let mut metadata = Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = present(&template["metadata"], field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    metadata.insert("ownerReferences".to_owned(), controller(kind, workload));
    json!({"metadata": metadata, "spec": template["spec"]})
}

/// Lets the server generate a name with the workload's as prefix.
pub(super) fn generate_name(pod: &mut Value, workload: &Value) {
    pod["metadata"]["generateName"] = format!("{}-", text_at(workload, "/metadata/name")).into();
}

pub(super) fn set_label(object: &mut Value, key: &str, value: &str) {
    set_in(object, "labels", key, value);
}

pub(super) fn set_annotation(object: &mut Value, key: &str, value: &str) {
    set_in(object, "annotations", key, value);
}

fn set_in(object: &mut Value, field: &str, key: &str, value: &str) {
    if let Some(map) = object_mut(&mut object["metadata"], field) {
        map.insert(key.to_owned(), value.into());
    }
}

/// Ten letters that identify a template, like upstream's hash. Different workloads have different
/// ones.
pub(super) fn hash(workload: &Value) -> String {
    let text = workload["spec"]["template"].to_string();
    let mut random = Random::new(FxBuildHasher.hash_one((text, text_at(workload, "/metadata/uid"))));
    random.suffix() + &random.suffix()
}

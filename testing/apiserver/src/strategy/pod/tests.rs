//! Compares pods with recorded responses of kube-apiserver v1.37.2, and tests what cannot be
//! recorded.

mod bound;
mod evicted;
mod limited;
mod resized;

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::traits::{Lookup, Strategy};
use super::admit::KIND;
use super::*;
use crate::kinds;
use crate::status::Status;

const NOW: &str = "1970-01-01T00:00:00Z";

/// Objects for lookups, by group, resource, namespace and name.
#[derive(Default)]
pub(super) struct Objects(HashMap<[String; 4], Value>);

impl Objects {
    pub(super) fn with(mut self, group: &str, resource: &str, object: Value) -> Self {
        let name = text_at(&object, "/metadata/name").to_owned();
        let namespace = text_at(&object, "/metadata/namespace").to_owned();
        self.0.insert([group.to_owned(), resource.to_owned(), namespace, name], object);
        self
    }

    /// The objects that every API server creates.
    pub(super) fn system() -> Self {
        let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"});
        Self::default()
            .with("scheduling.k8s.io", "priorityclasses", class("system-node-critical", 2_000_001_000))
            .with("scheduling.k8s.io", "priorityclasses", class("system-cluster-critical", 2_000_000_000))
    }
}

impl Lookup for Objects {
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.0.get(&[group, resource, namespace, name].map(str::to_owned)).cloned()
    }

    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Value> {
        let is_asked = |key: &[String; 4]| {
            key[0] == group && key[1] == resource && (namespace.is_empty() || key[2] == namespace)
        };
        self.0.iter().filter(|(key, _)| is_asked(key)).map(|(_, object)| object.clone()).collect()
    }
}

/// Creates a pod like the server.
fn create(pod: &mut Value, objects: &Objects) -> std::result::Result<(), Status> {
    // The writer does this, because the kinds of groups are off by default.
    disabled::drop_group(pod, &Value::Null);
    Pods.default(pod);
    Pods.admit(pod, objects)?;
    Pods.prepare_for_create(pod);
    Pods.stamp_new(pod, NOW);
    let causes = Pods.validate(pod);
    if causes.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(&KIND, text_at(pod, "/metadata/name"), causes))
    }
}

/// A pod as created by the server.
pub(super) fn created(spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p", "namespace": "default"}, "spec": spec});
    let known = pod["spec"].as_object_mut().expect("a spec");
    known.entry("containers").or_insert_with(|| json!([{"name": "c", "image": "i"}]));
    create(&mut pod, &Objects::system()).expect("a sound pod");
    pod
}

fn without_times(pod: &mut Value) {
    if let Some(status) = pod.get_mut("status") {
        for condition in crate::json::list_mut(status, "conditions") {
            crate::json::remove(condition, "lastTransitionTime");
        }
    }
}

fn triples(causes: &[StatusCause]) -> Value {
    causes.iter().map(|cause| json!([cause.reason, cause.field, cause.message])).collect()
}

#[test]
fn pods_are_created_and_rejected_as_recorded() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("tests/created.json")).expect("cases");
    assert!(cases.len() > 150);
    let objects = Objects::system();
    let mut wrong: Vec<String> = Vec::new();
    for case in &cases {
        let mut pod = case["pod"].clone();
        let outcome = create(&mut pod, &objects);
        let (code, found) = match &outcome {
            Ok(()) => {
                without_times(&mut pod);
                let metadata = &pod["metadata"];
                let kept: serde_json::Map<_, _> = ["labels", "annotations"]
                    .into_iter()
                    .filter_map(|field| Some((field.to_owned(), metadata.get(field)?.clone())))
                    .collect();
                let mut found = json!({"spec": pod["spec"], "status": pod["status"]});
                if !kept.is_empty() {
                    found["metadata"] = kept.into();
                }
                (201, found)
            }
            Err(status) => {
                let mut found = json!({"message": status.message});
                if status.code.as_u16() == 422 {
                    found["causes"] = triples(&status.details.causes);
                }
                (status.code.as_u16(), found)
            }
        };
        let mut expected = case.clone();
        for field in ["case", "pod", "code"] {
            crate::json::remove(&mut expected, field);
        }
        if code != case["code"].as_u64().unwrap_or_default() as u16 || found != expected {
            wrong.push(format!(
                "\n{}\n  here: {code} {found}\n  real: {} {expected}\n",
                case["case"], case["code"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

#[test]
fn pod_defaults_are_idempotent() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("tests/created.json")).expect("cases");
    for case in &cases {
        let mut pod = case["pod"].clone();
        Pods.default(&mut pod);
        let once = pod.clone();
        Pods.default(&mut pod);
        assert_eq!(pod, once, "{}", case["case"]);
    }
}

/// Replaces each value of an object in turn, and calls `check` with each result.
fn mangle(root: &Value, pointer: &str, check: &mut dyn FnMut(Value)) {
    let inner: Vec<String> = match root.pointer(pointer) {
        Some(Value::Object(map)) => map.keys().map(|key| key.replace('~', "~0").replace('/', "~1")).collect(),
        Some(Value::Array(items)) => (0..items.len()).map(|i| i.to_string()).collect(),
        _ => Vec::new(),
    };
    for other in [json!(null), json!("é"), json!(-7), json!([]), json!({}), json!([{"é": "é"}]), json!(true)]
    {
        let mut changed = root.clone();
        if let Some(place) = changed.pointer_mut(pointer) {
            *place = other;
        }
        check(changed);
    }
    for key in inner {
        mangle(root, &format!("{pointer}/{key}"), check);
    }
}

#[test]
fn malformed_pods_are_rejected_without_panic() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("tests/created.json")).expect("cases");
    let objects = Objects::system();
    // The first cases use every field.
    for case in cases.iter().filter(|case| case["code"] == 201).take(13) {
        let sound = created(&case["pod"]["spec"]);
        let mut tries = 0;
        mangle(&case["pod"], "", &mut |pod| {
            tries += 1;
            let mut new = pod.clone();
            let _ = create(&mut new, &objects);
            Pods.prepare_for_update(&mut new, &sound);
            let _ = Pods.validate_update(&new, &sound);
            let _ = Pods.validate_update(&sound, &new);
            Pods.prepare_for_status_update(&mut new, &sound);
            let _ = Pods.validate_status_update(&new, &pod);
            resize::prepare(&mut new, &sound);
            let _ = resize::validate(&new, &sound);
            let _ = resize::validate(&sound, &pod);
            resize::prepare_ephemeral(&mut new, &sound);
            let _ = resize::validate_ephemeral(&new, &pod);
            let _ = binding::bind(&mut new, &pod, &objects, NOW);
            let _ = eviction::decide(&new, &objects, Timestamp::UNIX_EPOCH);
            let _ = pdb::compute_status(&pod, &[new], &objects, Timestamp::UNIX_EPOCH);
        });
        assert!(tries > 10);
    }
}

#[test]
fn table_of_kinds_contains_pods() {
    assert_eq!((KIND.kind.as_ref(), KIND.resource.as_ref()), ("Pod", "pods"));
    assert!(kinds::built_in().iter().any(|kind| super::super::of(kind).has_generation()));
}

#[test]
fn comparison_of_deep_objects_is_fast_and_ignores_empty_values() {
    let nested = |innermost: Value| (0..64).fold(innermost, |inner, _| json!({"a": inner, "b": null}));
    assert!(update::same(&nested(json!({"c": ""})), &nested(json!({"d": []}))));
    assert!(!update::same(&nested(json!({"c": 1})), &nested(json!({}))));
    assert!(!update::same(&nested(json!({})), &nested(json!({"c": 1}))));
}

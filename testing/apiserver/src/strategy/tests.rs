//! Compares the strategies with responses of kube-apiserver v1.37.2, recorded in `outcomes.jsonl`,
//! one request per line. The real server ran with its default admission plugins except
//! `ServiceAccount` and `TaintNodesByCondition`.

use serde_json::{Value, json};

use super::traits::{Lookup, Strategy};
use super::{event, meta, namespace, of};
use crate::kinds::{Kind, built_in};
use crate::patch::{self, Patch};
use crate::status::{Result, Status, StatusCause};

const OUTCOMES: &str = include_str!("tests/outcomes.jsonl");

const NOW: &str = "1970-01-01T00:00:00Z";

/// The other objects in the cluster.
struct Others(Vec<Value>);

impl Lookup for Others {
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.list(group, resource, namespace).into_iter().find(|object| object["metadata"]["name"] == name)
    }

    fn list(&self, group: &str, resource: &str, _namespace: &str) -> Vec<Value> {
        let is_asked = |other: &&Value| other["group"] == group && other["resource"] == resource;
        self.0.iter().filter(is_asked).map(|other| other["object"].clone()).collect()
    }
}

fn kind_of(outcome: &Value) -> &'static Kind {
    let name = outcome["kind"].as_str().unwrap();
    built_in().iter().find(|kind| kind.qualified() == name).unwrap_or_else(|| panic!("no kind {name}"))
}

fn checked(kind: &Kind, object: &Value, causes: Vec<StatusCause>) -> Result<()> {
    if causes.is_empty() {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    // Events have the kind of the stored version.
    let kind = Kind { group: kind.stored_in_group.clone(), ..kind.clone() };
    Err(Status::invalid(&kind, name, causes))
}

fn next_generation(object: &mut Value, old: Option<&Value>, strategy: &dyn Strategy) {
    let before = old.map_or(0, |old| old["metadata"]["generation"].as_i64().unwrap_or_default());
    let changes = old.is_none_or(|old| strategy.changes_generation(object, old));
    if strategy.has_generation() {
        object["metadata"]["generation"] = (before + i64::from(changes)).into();
    }
}

/// The decoder drops nulls in requests.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// The steps of a create request that involve the strategy.
fn create(kind: &Kind, mut object: Value, others: &Others) -> Result<Value> {
    let strategy = of(kind);
    without_nulls(&mut object);
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.as_ref().into();
    if kind.namespaced {
        object["metadata"]["namespace"] = "default".into();
    }
    object["metadata"]["uid"] = "UID".into();
    let is_new_event = kind.group == "events.k8s.io";
    if is_new_event {
        event::to_core(&mut object);
    }
    strategy.default(&mut object);
    strategy.admit(&mut object, others)?;
    strategy.prepare_for_create(&mut object);
    strategy.stamp_new(&mut object, NOW);
    next_generation(&mut object, None, strategy);
    let mut causes = meta::validate_new(&object, kind.namespaced, strategy);
    causes.extend(strategy.validate(&object));
    checked(kind, &object, causes)?;
    if is_new_event {
        event::to_events_v1(&mut object);
    }
    Ok(object)
}

fn update(kind: &Kind, outcome: &Value, others: &Others) -> Result<Value> {
    let strategy = of(kind);
    let mut old = outcome["old"].clone();
    let mut object = old.clone();
    if let Value::Object(patch) = &outcome["patch"] {
        object = patch::apply_to(&Patch::Merge(patch.clone()), &object, None)?;
    }
    let is_new_event = kind.group == "events.k8s.io";
    for object in [&mut old, &mut object] {
        if is_new_event {
            event::to_core(object);
        }
        strategy.default(object);
    }
    crate::json::restore(&mut object["metadata"], &old["metadata"], "generation");
    let mut causes = Vec::new();
    match outcome["subresource"].as_str() {
        None => {
            strategy.admit_update(&mut object, &old, others)?;
            strategy.prepare_for_update(&mut object, &old);
            next_generation(&mut object, Some(&old), strategy);
            causes.extend(meta::validate_update(&object, &old));
            causes.extend(strategy.validate_update(&object, &old));
        }
        Some("status") => {
            strategy.prepare_for_status_update(&mut object, &old);
            strategy.stamp_status(&mut object, &old, NOW);
            causes.extend(meta::validate_update(&object, &old));
            causes.extend(strategy.validate_status_update(&object, &old));
        }
        Some("finalize") => {
            namespace::prepare_for_finalize(&mut object, &old);
            causes.extend(meta::validate_update(&object, &old));
            causes.extend(namespace::validate_finalize(&object));
        }
        Some(other) => panic!("no subresource {other}"),
    }
    checked(kind, &object, causes)?;
    if is_new_event {
        event::to_events_v1(&mut object);
    }
    Ok(object)
}

/// Drops metadata that the core sets, and values that vary.
fn without_incidentals(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    let incidental = [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "selfLink",
        "uid",
        "namespace",
    ];
    metadata.retain(|field, _| !incidental.contains(&field.as_str()));
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("lastPhaseTransitionTime");
    }
    without_allocated(&mut object);
    object
}

/// Drops allocated addresses and ports, which each server chooses itself.
fn without_allocated(object: &mut Value) {
    if object["kind"] != "Service" {
        return;
    }
    let is_given = |address: &Value| address.as_str().is_some_and(|address| address.starts_with("10.0."));
    if object["spec"].get("clusterIP").is_some_and(is_given) {
        object["spec"]["clusterIP"] = "given".into();
        object["spec"]["clusterIPs"] = json!(["given"]);
    }
    if let Some(port) = object["spec"].get_mut("healthCheckNodePort") {
        *port = "given".into();
    }
}

fn difference(outcome: &Value, answer: Result<Value>) -> Option<String> {
    match answer {
        Ok(object) => {
            let Some(expected) = outcome.get("result") else {
                return Some(format!("not refused: {}", outcome["message"]));
            };
            let (object, expected) = (without_incidentals(object), without_incidentals(expected.clone()));
            (object != expected).then(|| format!("made\n  {object}\nnot\n  {expected}"))
        }
        Err(refusal) if outcome["loose"] == true => {
            // The message contains a large object in Go's format.
            let mut fields: Vec<&str> =
                refusal.details.causes.iter().map(|cause| cause.field.as_str()).collect();
            let mut expected: Vec<&str> =
                outcome["fields"].as_array()?.iter().filter_map(Value::as_str).collect();
            for fields in [&mut fields, &mut expected] {
                fields.sort_unstable();
                fields.dedup();
            }
            (fields != expected).then(|| format!("refused for {fields:?}, not {expected:?}"))
        }
        Err(refusal) => {
            let is_same =
                outcome["message"] == refusal.message.as_str() && outcome["code"] == refusal.code.as_u16();
            (!is_same).then(|| format!("refused\n  {}\nnot\n  {}", refusal.message, outcome["message"]))
        }
    }
}

#[test]
fn requests_have_the_recorded_outcomes() {
    let mut wrong = Vec::new();
    for line in OUTCOMES.lines() {
        let outcome: Value = serde_json::from_str(line).unwrap();
        let kind = kind_of(&outcome);
        let others = Others(outcome["others"].as_array().cloned().unwrap_or_default());
        let answer = if outcome["what"] == "create" {
            create(kind, outcome["object"].clone(), &others)
        } else {
            update(kind, &outcome, &others)
        };
        if let Some(difference) = difference(&outcome, answer) {
            let asked = if outcome["what"] == "create" { &outcome["object"] } else { &outcome["patch"] };
            wrong.push(format!("{} {} {asked}: {difference}", outcome["what"], outcome["kind"]));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), OUTCOMES.lines().count(), wrong.join("\n"));
}

#[test]
fn defaults_are_idempotent() {
    for line in OUTCOMES.lines() {
        let outcome: Value = serde_json::from_str(line).unwrap();
        let Some(result) = outcome.get("result") else { continue };
        let kind = kind_of(&outcome);
        let mut once = result.clone();
        if kind.group == "events.k8s.io" {
            event::to_core(&mut once);
        }
        of(kind).default(&mut once);
        let mut twice = once.clone();
        of(kind).default(&mut twice);
        assert_eq!(once, twice);
    }
}

#[test]
fn strategies_do_not_panic_on_non_objects() {
    for kind in built_in() {
        let strategy = of(kind);
        let scraps = json!([null, 1, "text", [], {"metadata": null}, {"spec": 5, "status": "x"}, {"spec": {"template": []}}]);
        for scrap in scraps.as_array().unwrap() {
            for field in strategy.selectable_fields() {
                strategy.field(scrap, field);
            }
            strategy.validate(scrap);
            strategy.validate_update(scrap, scrap);
            strategy.validate_status_update(scrap, scrap);
            meta::validate_new(scrap, kind.namespaced, strategy);
            meta::validate_update(scrap, scrap);
        }
    }
}

#[test]
fn strategies_do_not_panic_on_fields_of_wrong_types() {
    let scraps = json!([
        {},
        {"metadata": 5, "spec": 5, "status": "x"},
        {"metadata": [], "spec": [], "status": []},
        {"spec": {"template": 1, "strategy": 1, "names": 1, "ports": [1], "resources": 1, "selector": 1, "jobTemplate": 1}},
        {"spec": {"template": {"metadata": 1, "spec": 1}, "volumeClaimTemplates": [1, {}], "updateStrategy": [], "pool": 1}},
        {"rules": [1], "subjects": [1], "roleRef": 1, "involvedObject": 1, "source": 1, "data": 1, "stringData": {"a": 1}},
        {"spec": {"devices": {"requests": [1, {"exactly": 1}]}, "drivers": [1], "metrics": 1, "limits": [1], "taints": [1]}},
    ]);
    for kind in built_in() {
        let strategy = of(kind);
        for scrap in scraps.as_array().unwrap() {
            let mut object = scrap.clone();
            strategy.default(&mut object);
            let old = object.clone();
            let _ = strategy.admit(&mut object, &Others(Vec::new()));
            strategy.prepare_for_create(&mut object);
            strategy.stamp_new(&mut object, NOW);
            strategy.validate(&object);
            let _ = strategy.admit_update(&mut object, &old, &Others(Vec::new()));
            strategy.prepare_for_update(&mut object, &old);
            strategy.validate_update(&object, &old);
            strategy.prepare_for_status_update(&mut object, &old);
            strategy.stamp_status(&mut object, &old, NOW);
            strategy.validate_status_update(&object, &old);
            strategy.changes_generation(&object, &old);
        }
    }
}

#[test]
fn some_namespaces_cannot_be_deleted() {
    for name in namespace::IMMORTAL {
        let refused = of(kind_of(&json!({"kind": "namespaces"}))).admit_delete(name).unwrap_err();
        let expected = format!("namespaces {name:?} is forbidden: this namespace may not be deleted");
        assert_eq!((refused.code.as_u16(), refused.message), (403, expected));
    }
    assert!(of(kind_of(&json!({"kind": "namespaces"}))).admit_delete("kube-node-lease").is_ok());
}

//! Server-side apply: the caller names the fields that it wants to own, and gets them unless others
//! own them.
//!
//! Not implemented: conversion between versions (see [`super::managed`]), and schemas of custom
//! resources. Custom objects have deduced types: lists are atomic, maps are merged.

use serde_json::{Map, Value};

use super::errors::{cannot_unmarshal, unknown};
use super::fields::Set;
use super::managed::{FieldManager, stripped};
use super::owners::{Conflict, Owned, Owner, Owners, conflict, managed_fields};
use super::typed::{self, TypeRef};
use crate::status::{Result, Status};

/// The annotation of client-side `kubectl apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Parses an apply configuration in YAML or JSON.
pub(super) fn parse(body: &[u8]) -> Result<Value> {
    let bad = |why: String| Status::bad_request(format!("error decoding YAML: {why}"));
    let mut config = match serde_json::from_slice(body) {
        Ok(config) => config,
        Err(_) => from_yaml(body).map_err(|why| bad(format!("error converting YAML to JSON: {why}")))?,
    };
    match &mut config {
        Value::Object(_) => {}
        Value::Null => config = Value::Object(Map::new()),
        other => {
            let why = cannot_unmarshal(other, "value of type map[string]interface {}");
            return Err(bad(format!("error unmarshaling JSON: while decoding JSON: {why}")));
        }
    }
    shorten_numbers(&mut config);
    Ok(config)
}

fn from_yaml(body: &[u8]) -> std::result::Result<Value, String> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_saphyr::from_str(text).map_err(|error| format!("yaml: {error}"))
}

/// Formats numbers as Go does: `1.0` as `1`.
fn shorten_numbers(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < EXACT) {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten_numbers),
        Value::Object(fields) => fields.values_mut().for_each(shorten_numbers),
        _ => {}
    }
}

/// Applies `config` to the current object, if any, and sets the managed fields of the result.
///
/// `kind` is the kind of the request's path. The caller checks the name and the resourceVersion.
pub(crate) fn apply(
    manager: &FieldManager<'_>,
    kind: &str,
    current: Option<&Value>,
    config: &Value,
    force: bool,
) -> Result<Value> {
    let mut owners =
        Owners::of(current).map_err(|why| unknown(format!("failed to decode managed fields: {why}")))?;
    check(manager, kind, config)?;
    if let Some(current) = current
        && owners.is_empty()
    {
        let before = FieldManager { name: "before-first-apply", ..*manager };
        before.update(&mut owners, &typed::zero(manager.type_id), current);
    }
    let (mut object, owners) = match merge(manager, current, config, owners.clone(), force) {
        Ok(applied) => applied,
        Err(conflicts) if manager.name == "kubectl" => {
            let conflicts = beyond_last_applied(manager, current, conflicts);
            if !conflicts.is_empty() {
                return Err(conflict(&conflicts));
            }
            merge(manager, current, config, owners, true).map_err(|conflicts| conflict(&conflicts))?
        }
        Err(conflicts) => return Err(conflict(&conflicts)),
    };
    if manager.type_id.is_some() {
        drop_nulls(&mut object);
    }
    owners.write_to(&mut object);
    if manager.name == "kubectl" {
        update_last_applied(&mut object, config);
    }
    Ok(object)
}

fn check(manager: &FieldManager<'_>, kind: &str, config: &Value) -> Result<()> {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let (api_version, its_kind) = (text(config, "apiVersion"), text(config, "kind"));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    if api_version != manager.api_version || its_kind != kind {
        return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={its_kind}")));
    }
    if managed_fields(config).is_some() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    typed::validate(config, manager.type_ref()).map_err(|why| {
        let (namespace, name) = (text(&config["metadata"], "namespace"), text(&config["metadata"], "name"));
        unknown(format!(
            "failed to create typed patch object ({namespace}/{name}; {group}/{version}, Kind={kind}): {why}"
        ))
    })
}

/// Merges the configuration into the object, removes fields that the manager no longer applies, and
/// updates the owners.
fn merge(
    manager: &FieldManager<'_>,
    current: Option<&Value>,
    config: &Value,
    mut owners: Owners,
    force: bool,
) -> std::result::Result<(Value, Owners), Vec<Conflict>> {
    let type_ref = manager.type_ref();
    let ignored = manager.ignored();
    let nothing = Value::Object(Map::new());
    let live = current.unwrap_or(&nothing);
    let owner = Owner::apply(manager.name, manager.subresource);

    let mut object = typed::merge(live, config, type_ref);
    let fields = typed::field_set(config, type_ref).without(&ignored);
    let owned = Owned { fields, api_version: manager.api_version.to_owned(), time: None };
    let before = owners.0.insert(owner.clone(), owned).unwrap_or_default();
    if !before.fields.is_empty() {
        object = remove_unowned(&object, &before.fields, &owners, type_ref);
    }

    let comparison = typed::compare(live, &object, type_ref).without(&ignored);
    if !force {
        let conflicts = owners.conflicts(&comparison, &owner);
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }
    owners.disown(&comparison, Some(&owner));
    if let Some(owned) = owners.0.get_mut(&owner) {
        owned.fields = stripped(&owned.fields);
        let changed = current.is_none() || object != *live;
        owned.time = if changed { Some(manager.time()) } else { before.time };
        if owned.fields.is_empty() {
            owners.0.remove(&owner);
        }
    }
    Ok((object, owners))
}

/// Removes the fields that the manager owned before and that have no owner now.
fn remove_unowned(merged: &Value, before: &Set, owners: &Owners, type_ref: TypeRef) -> Value {
    let named = |set: &Set| typed::with_named_fields(set, type_ref);
    let fields = |object: &Value| named(&typed::field_set(object, type_ref));
    let before = named(before);
    let all = fields(merged);

    // Restores fields that others own, and fields below unowned ones.
    let owned = owners.0.values().fold(Set::default(), |all, owned| all.union(&owned.fields));
    let kept = fields(&typed::remove(merged, &before, type_ref)).union(&named(&owned));
    let pruned = typed::remove(merged, &all.difference(&kept), type_ref);
    // Fields without an owner cannot be removed.
    let gone = all.difference(&fields(&pruned)).intersection(&before);
    match typed::remove(merged, &gone, type_ref) {
        Value::Null => Value::Object(Map::new()),
        pruned => pruned,
    }
}

/// The conflicts that are not with the same manager's earlier client-side `kubectl apply`.
fn beyond_last_applied(
    manager: &FieldManager<'_>,
    current: Option<&Value>,
    mut conflicts: Vec<Conflict>,
) -> Vec<Conflict> {
    if let Some(allowed) = current.and_then(|current| last_applied(manager, current)) {
        conflicts.retain(|conflict| !allowed.contains(&conflict.path));
    }
    conflicts
}

/// The fields of a client-side apply that are still unchanged.
fn last_applied(manager: &FieldManager<'_>, current: &Value) -> Option<Set> {
    let annotation = current["metadata"]["annotations"][LAST_APPLIED].as_str()?;
    let config: Value = serde_json::from_str(annotation).ok()?;
    let type_ref = manager.type_ref();
    if config["apiVersion"] != manager.api_version || typed::validate(&config, type_ref).is_err() {
        return None;
    }
    let comparison = typed::compare(&config, current, type_ref);
    let fields = typed::field_set(&config, type_ref);
    Some(
        fields.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed),
    )
}

/// Updates the annotation of client-side apply, if it exists.
fn update_last_applied(object: &mut Value, config: &Value) {
    let Some(annotation) = object
        .pointer_mut("/metadata/annotations")
        .and_then(|annotations| annotations.get_mut(LAST_APPLIED))
        .filter(|annotation| annotation.as_str().is_some_and(|annotation| !annotation.is_empty()))
    else {
        return;
    };
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    // Go escapes characters that are unsafe in HTML.
    let json = config.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    *annotation = Value::String(json + "\n");
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

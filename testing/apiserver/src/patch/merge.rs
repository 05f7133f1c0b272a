//! JSON merge patch, RFC 7386. As in upstream's library, nulls within lists are kept.

use serde_json::{Map, Value};

use super::errors::{cannot_unmarshal, decode};
use crate::status::{Result, Status};

pub(super) fn parse(body: &[u8]) -> Result<Map<String, Value>> {
    let bad = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
    match decode(body).map_err(bad)? {
        Value::Object(patch) => Ok(patch),
        Value::Null => Err(Status::bad_request("Invalid JSON Patch")),
        other => Err(bad(cannot_unmarshal(&other, "value of type map[string]interface {}"))),
    }
}

pub(super) fn apply(patch: &Map<String, Value>, current: &Value) -> Value {
    let mut object = current.clone();
    match &mut object {
        Value::Object(fields) => merge(fields, patch),
        _ => object = without_nulls(&Value::Object(patch.clone())),
    }
    object
}

fn merge(fields: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, change) in patch {
        match (fields.get_mut(name), change) {
            (_, Value::Null) => drop(fields.remove(name)),
            (Some(Value::Object(fields)), Value::Object(patch)) => merge(fields, patch),
            (Some(Value::Object(_)), _) => drop(fields.insert(name.clone(), change.clone())),
            _ => drop(fields.insert(name.clone(), without_nulls(change))),
        }
    }
}

/// The value without null fields.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_nulls(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        _ => value.clone(),
    }
}

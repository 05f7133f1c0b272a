//! Strategic merge patch: a merge patch that merges lists by key, and supports directives.
//!
//! * `$patch: replace` or `delete` in an object replaces or empties it. In a list item, `replace`
//!   replaces the list by the other items, and `delete` removes the item with this key.
//! * `$retainKeys: [k, …]` removes all other fields.
//! * `$deleteFromPrimitiveList/field: [v, …]` removes these values from the list.
//! * `$setElementOrder/field: […]` sets the order of the merged list.

mod list;
mod types;

use serde_json::{Map, Value};

use super::errors::{cannot_unmarshal, decode, rejected, unknown};
use super::golang::{self, Shown};
use crate::schema::TypeId;
use crate::status::{Result, Status};
use types::Fields;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

const BAD_PRIMITIVE_LIST: &str = "invalid patch format of primitive list";
const BAD_ORDER: &str = "invalid patch format of setElementOrder list";
const BAD_RETAIN_KEYS: &str = "invalid patch format of retainKeys";

pub(super) fn parse(body: &[u8]) -> Result<Map<String, Value>> {
    match decode(body).map_err(Status::bad_request)? {
        Value::Object(patch) => Ok(patch),
        Value::Null => Ok(Map::new()),
        other => Err(Status::bad_request(cannot_unmarshal(&other, "value of type map[string]interface {}"))),
    }
}

pub(super) fn apply(type_id: TypeId, patch: &Map<String, Value>, current: &Value) -> Result<Value> {
    let object = match current {
        Value::Object(object) => object.clone(),
        _ => Map::new(),
    };
    merge_object(object, patch, Fields::Typed(type_id)).map(Value::Object)
}

fn merge_object(
    mut object: Map<String, Value>,
    patch: &Map<String, Value>,
    fields: Fields,
) -> Result<Map<String, Value>> {
    match patch.get(DIRECTIVE) {
        None => {}
        Some(directive) if directive == "replace" => {
            let rest = patch.iter().filter(|(name, _)| *name != DIRECTIVE);
            return Ok(rest.map(|(name, value)| (name.clone(), value.clone())).collect());
        }
        Some(directive) if directive == "delete" => return Ok(Map::new()),
        Some(directive) => return Err(unknown_directive(directive, patch)),
    }
    retain_keys(&mut object, patch)?;
    let done = list::merge_ordered(&mut object, patch, fields)?;
    for (name, change) in patch {
        if name == RETAIN_KEYS || name.starts_with(SET_ORDER) || done.contains(&name.as_str()) {
            continue;
        }
        if name.starts_with(DELETE_FROM_LIST) {
            let name = directed(name, DELETE_FROM_LIST, BAD_PRIMITIVE_LIST)?;
            delete_from_list(&mut object, name, change, fields)?;
        } else {
            merge_field(&mut object, name, change, fields)?;
        }
    }
    Ok(object)
}

fn merge_field(object: &mut Map<String, Value>, name: &str, change: &Value, fields: Fields) -> Result<()> {
    if change.is_null() {
        object.remove(name);
        return Ok(());
    }
    match (object.get_mut(name), change) {
        (Some(Value::Object(current)), Value::Object(change)) => {
            let field = fields.object(name)?;
            *current = if field.replaced {
                change.clone()
            } else {
                merge_object(std::mem::take(current), change, field.fields)?
            };
        }
        (Some(Value::Array(current)), Value::Array(change)) => {
            let field = fields.list(name)?;
            *current = if field.merged {
                list::merge(std::mem::take(current), change, field)?
            } else {
                change.clone()
            };
        }
        _ => match without_directives(change, true) {
            Some(value) => drop(object.insert(name.to_owned(), value)),
            None => drop(object.remove(name)),
        },
    }
    Ok(())
}

fn delete_from_list(
    object: &mut Map<String, Value>,
    name: &str,
    change: &Value,
    fields: Fields,
) -> Result<()> {
    match (object.get_mut(name), change) {
        (_, Value::Null) => drop(object.remove(name)),
        (Some(Value::Array(current)), Value::Array(gone)) => {
            let field = fields.list(name)?;
            *current = list::delete(std::mem::take(current), gone, field)?;
        }
        (Some(Value::Object(current)), Value::Object(change)) => {
            let field = fields.object(name)?;
            *current = merge_object(std::mem::take(current), change, field.fields)?;
        }
        _ => {}
    }
    Ok(())
}

fn retain_keys(object: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<()> {
    let Some(retained) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(retained) = retained else { return Err(Status::bad_request(BAD_RETAIN_KEYS)) };
    let is_retained = |name: &str| retained.iter().any(|retained| retained == name);
    let contradicts = |(name, value): (&String, &Value)| {
        !value.is_null()
            && name != RETAIN_KEYS
            && !name.starts_with(DELETE_FROM_LIST)
            && !name.starts_with(SET_ORDER)
            && !is_retained(name)
    };
    if patch.iter().any(contradicts) {
        return Err(Status::bad_request(BAD_RETAIN_KEYS));
    }
    object.retain(|name, _| is_retained(name));
    Ok(())
}

/// The value to set where nothing exists to merge with: without objects that have a `$patch`
/// directive, and optionally without nulls.
fn without_directives(value: &Value, or_nulls: bool) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !(or_nulls && value.is_null()));
            let kept = kept.filter_map(|(name, value)| {
                without_directives(value, or_nulls).map(|value| (name.clone(), value))
            });
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => {
            Some(items.iter().filter_map(|item| without_directives(item, or_nulls)).collect())
        }
        _ => Some(value.clone()),
    }
}

/// The field named after a directive's prefix.
fn directed<'a>(name: &'a str, directive: &str, bad: &str) -> Result<&'a str> {
    match name.split_once('/') {
        Some((prefix, field)) if prefix == directive => Ok(field),
        _ => Err(Status::bad_request(bad)),
    }
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> Status {
    let (directive, patch) = (Shown::value(directive), Shown::map(patch));
    unknown(format!("unknown patch type: {directive} in map: {patch}"))
}

fn not_a_list(value: &Value) -> Status {
    unknown(format!("expected a []interface {{}}, but received a {}", golang::type_name(value)))
}

fn not_an_object(value: &Value) -> Status {
    unknown(format!("expected a map[string]interface {{}}, but received a {}", golang::type_name(value)))
}

fn no_merge_key(item: &Map<String, Value>, key: &str) -> Status {
    unknown(format!("map: {} does not contain declared merge key: {key}", Shown::map(item)))
}

fn list_of_lists() -> Status {
    rejected()
}

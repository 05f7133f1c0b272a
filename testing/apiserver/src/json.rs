//! Accessors for objects that are JSON. A field that is missing or of another type reads as empty.

use serde_json::{Map, Value};

/// The text of a field; empty if missing.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The number in a field.
pub(crate) fn int(object: &Value, field: &str) -> Option<i64> {
    object.get(field).and_then(Value::as_i64)
}

/// Whether a field is true.
pub(crate) fn flag(object: &Value, field: &str) -> bool {
    object.get(field).and_then(Value::as_bool).unwrap_or_default()
}

/// The items of the list in a field.
pub(crate) fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The items of the list in a field, mutable.
pub(crate) fn list_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut [Value] {
    object.get_mut(field).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// The texts of the list in a field.
pub(crate) fn texts<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    list(object, field).iter().filter_map(Value::as_str)
}

/// The entries of the map in a field, sorted by key.
pub(crate) fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let map = object.get(field).and_then(Value::as_object);
    let mut entries: Vec<_> = map.into_iter().flatten().map(|(key, value)| (key.as_str(), value)).collect();
    entries.sort_unstable_by_key(|entry| entry.0);
    entries.into_iter()
}

/// A field that exists and is not null.
pub(crate) fn present<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get(field).filter(|value| !value.is_null())
}

/// The text at a path of keys; empty if missing.
pub(crate) fn text_in<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    path.iter().fold(value, |value, key| &value[key]).as_str().unwrap_or_default()
}

/// The text at a JSON pointer such as `/spec/nodeName`; empty if missing.
pub(crate) fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The map in a field, created if missing. `None` if `object` is not an object.
pub(crate) fn object_mut<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    let value = object.as_object_mut()?.entry(field).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Sets a field that is missing, null or empty text.
pub(crate) fn set_default(object: &mut Value, field: &str, value: impl Into<Value>) {
    let Some(map) = object.as_object_mut() else { return };
    let missing = map.get(field).is_none_or(|value| value.is_null() || value.as_str() == Some(""));
    if missing {
        map.insert(field.to_owned(), value.into());
    }
}

/// Copies a field from another object; removes it if the other object lacks it.
pub(crate) fn restore(object: &mut Value, from: &Value, field: &str) {
    let Some(map) = object.as_object_mut() else { return };
    match from.get(field) {
        // Usually the value is unchanged, and comparing is cheaper than copying.
        Some(value) if map.get(field) == Some(value) => {}
        Some(value) => {
            map.insert(field.to_owned(), value.clone());
        }
        None => {
            map.remove(field);
        }
    }
}

/// Removes a field.
pub(crate) fn remove(object: &mut Value, field: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(field);
    }
}

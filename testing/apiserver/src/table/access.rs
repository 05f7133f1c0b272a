//! Reads fields by JSON pointer; missing fields read as Go's zero values.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::duration::human_duration;
pub(super) use crate::json::text_at as text;

/// The text at a JSON pointer, or a default if missing or empty.
pub(super) fn text_or<'a>(object: &'a Value, pointer: &str, otherwise: &'a str) -> &'a str {
    match text(object, pointer) {
        "" => otherwise,
        text => text,
    }
}

/// The text at a JSON pointer, or a default only if missing.
pub(super) fn present_or<'a>(object: &'a Value, pointer: &str, otherwise: &'a str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or(otherwise)
}

/// The number at a JSON pointer; 0 if missing.
pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// The boolean at a JSON pointer, or a default if missing.
pub(super) fn flag_or(object: &Value, pointer: &str, otherwise: bool) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or(otherwise)
}

/// Whether a JSON pointer leads to a value other than null.
pub(super) fn has(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).is_some_and(|value| !value.is_null())
}

/// The list at a JSON pointer; empty if missing.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The map at a JSON pointer.
pub(super) fn map<'a>(object: &'a Value, pointer: &str) -> Option<&'a Map<String, Value>> {
    object.pointer(pointer).and_then(Value::as_object)
}

/// The number of entries of a map.
pub(super) fn entries(object: &Value, pointer: &str) -> usize {
    map(object, pointer).map_or(0, Map::len)
}

/// The texts of a list, joined by commas.
pub(super) fn joined(object: &Value, pointer: &str) -> String {
    let texts: Vec<&str> = items(object, pointer).iter().filter_map(Value::as_str).collect();
    texts.join(",")
}

/// Whether the object is terminating.
pub(super) fn is_deleted(object: &Value) -> bool {
    has(object, "/metadata/deletionTimestamp")
}

/// The first condition of a type, from `/status/conditions`.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind)
}

/// Whether the first condition of a type is true.
pub(super) fn condition_is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| text(condition, "/status") == "True")
}

/// The time at a JSON pointer.
pub(super) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

/// The human-readable time since a timestamp.
pub(super) fn since(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(|| "<unknown>".to_owned(), |then| human_duration(now.duration_since(then)))
}

/// The name, usually the first cell.
pub(super) fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

/// The age.
pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    since(time(object, "/metadata/creationTimestamp"), now).into()
}

//! Changes of API objects that plugins write back.

use serde_json::{Map, Value};

/// A copy with `apiVersion` and `kind`, which objects of a list lack.
pub fn typed(raw: &Value, api_version: &str, kind: &str) -> Value {
    let mut raw = raw.clone();
    let fields = members(&mut raw);
    fields.entry("apiVersion").or_insert_with(|| api_version.into());
    fields.entry("kind").or_insert_with(|| kind.into());
    raw
}

/// The members of a field, which is added if it is absent.
pub fn field<'a>(raw: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    members(members(raw).entry(name).or_insert(Value::Null))
}

/// The members of an object; any other value, which the API never sends, is replaced.
pub fn members(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(members) => members,
        _ => unreachable!("it has just been made one"),
    }
}

//! API objects that plugins change and write back.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// An API object as JSON text, which takes a fraction of the memory of its values: few objects are
/// written back.
#[derive(Clone, Debug)]
pub struct RawObject(Arc<str>);

impl RawObject {
    /// An object with this JSON.
    pub fn new(json: impl Into<Arc<str>>) -> Self {
        Self(json.into())
    }

    /// Its values; `Null` if the text is not JSON.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl Default for RawObject {
    fn default() -> Self {
        Value::Null.into()
    }
}

impl From<Value> for RawObject {
    fn from(value: Value) -> Self {
        Self::new(value.to_string())
    }
}

/// The order of fields does not matter.
impl PartialEq for RawObject {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.value() == other.value()
    }
}

impl Serialize for RawObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

/// A copy with `apiVersion` and `kind`, which objects of a list lack.
pub fn typed(mut raw: Value, api_version: &str, kind: &str) -> Value {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn raw_objects_are_equal_and_recorded_by_value() {
        let object = RawObject::new(r#"{"b": 1, "a": {"c": [null]}}"#);
        let value = json!({"a": {"c": [null]}, "b": 1});
        assert_eq!(object, value.clone().into());
        assert_ne!(object, json!({"b": 1}).into());
        assert_eq!(serde_json::to_value(&object).unwrap(), value);
        assert_eq!(serde_json::from_value::<RawObject>(value).unwrap(), object);
    }

    #[test]
    fn text_that_is_not_json_has_no_values() {
        assert_eq!(RawObject::new("{").value(), Value::Null);
        assert_eq!(RawObject::default().value(), Value::Null);
    }
}

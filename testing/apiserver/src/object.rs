//! One version of an object, as it is kept: encoded once, with what lists, watches and selectors ask for beside it.

use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::Value;

use crate::json::remove;
use crate::kinds::Kind;
use crate::strategy;

/// Enough bytes for the type of an object, and for what stands around an object in a list or watch.
const ROOM_FOR_TYPE: usize = 256;

/// The name of a field that selectors may name, and its value.
pub(crate) type SelectableField = (&'static str, Box<str>);

/// One version of an object. It never changes.
#[derive(Debug)]
pub(crate) struct StoredObject {
    version: u64,
    /// Its namespace; empty in none.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Box<str>,
    /// Its labels, sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    pub(crate) fields: Box<[SelectableField]>,
    /// The UIDs of its owners.
    pub(crate) owners: Box<[Box<str>]>,
    /// Whether it is being deleted.
    pub(crate) deleting: bool,
    /// JSON that begins with the resourceVersion and is without `apiVersion` and `kind`, so that each version of the API
    /// puts its own in front.
    body: Bytes,
    protobuf: OnceLock<Option<Bytes>>,
}

impl StoredObject {
    /// Keeps an object of a kind as its `version`. The type is not kept: whoever asks knows it.
    pub(crate) fn new(kind: &Kind, mut value: Value, version: u64) -> Self {
        let strategy = strategy::of(kind);
        if kind.is_converted() {
            strategy::event::to_core(&mut value);
        }
        let metadata = &value["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().into();
        let labels = metadata["labels"].as_object().into_iter().flatten();
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let mut labels: Vec<(Box<str>, Box<str>)> = labels
            .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into()))
            .collect();
        labels.sort_unstable();
        Self {
            version,
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            labels: labels.into(),
            fields: strategy
                .selectable_fields()
                .iter()
                .map(|name| (*name, strategy.field(&value, name).into()))
                .collect(),
            owners: owners.filter_map(|owner| owner["uid"].as_str()).map(Into::into).collect(),
            deleting: metadata.get("deletionTimestamp").is_some(),
            body: body(value, version).into(),
            protobuf: OnceLock::new(),
        }
    }

    /// Its resourceVersion.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// What it is sorted by within its resource, and what continue tokens name: `namespace/name`, or the name alone.
    pub(crate) fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }

    /// The object as JSON, of this kind's group version.
    pub(crate) fn value(&self, kind: &Kind) -> Value {
        let mut value: Value =
            serde_json::from_slice(&self.body).expect("what was written by serde_json is read by it");
        value["apiVersion"] = kind.api_version().into();
        value["kind"] = kind.kind.as_ref().into();
        if kind.is_converted() {
            strategy::event::to_events_v1(&mut value);
        }
        value
    }

    /// The value of a field that selectors may name.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(own, _)| *own == name).map_or("", |(_, value)| value)
    }

    /// Its `metadata.ownerReferences`.
    pub(crate) fn owner_references(&self) -> Vec<Value> {
        if self.owners.is_empty() {
            return Vec::new();
        }
        let mut value: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        match value["metadata"]["ownerReferences"].take() {
            Value::Array(references) => references,
            _ => Vec::new(),
        }
    }

    /// Its JSON without type, as lists of built-in kinds have it.
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }

    /// Writes the whole object, said to be of another resourceVersion if one is given.
    pub(crate) fn write(&self, out: &mut Vec<u8>, kind: &Kind, version: Option<u64>) {
        if kind.is_converted() {
            let mut value = self.value(kind);
            value["metadata"]["resourceVersion"] = version.unwrap_or(self.version).to_string().into();
            out.extend_from_slice(value.to_string().as_bytes());
            return;
        }
        out.reserve(self.body.len() + ROOM_FOR_TYPE);
        write_type(out, kind);
        let body = &self.body[1..];
        match version.filter(|version| *version != self.version) {
            None => out.extend_from_slice(body),
            Some(version) => {
                let at = BEFORE_VERSION.len() - 1;
                out.extend_from_slice(&body[..at]);
                out.extend_from_slice(version.to_string().as_bytes());
                out.extend_from_slice(&body[at + digits(self.version)..]);
            }
        }
    }

    /// Its bytes in protobuf, made on first use by `encode`.
    pub(crate) fn protobuf(&self, encode: impl FnOnce(&Value) -> Option<Bytes>) -> Option<Bytes> {
        let make = || encode(&serde_json::from_slice(&self.body).ok()?);
        self.protobuf.get_or_init(make).clone()
    }
}

/// Begins an object of a kind: `{"kind":"Pod","apiVersion":"v1",`.
pub(crate) fn write_type(out: &mut Vec<u8>, kind: &Kind) {
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(kind.kind.as_bytes());
    out.extend_from_slice(b"\",\"apiVersion\":\"");
    if !kind.group.is_empty() {
        out.extend_from_slice(kind.group.as_bytes());
        out.push(b'/');
    }
    out.extend_from_slice(kind.version.as_bytes());
    out.extend_from_slice(b"\",");
}

/// What objects of a resource are sorted by.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

fn digits(version: u64) -> usize {
    version.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// What stands in a body before the digits of its resourceVersion.
const BEFORE_VERSION: &str = r#"{"metadata":{"resourceVersion":""#;

fn body(mut value: Value, version: u64) -> String {
    let mut metadata = value["metadata"].take();
    remove(&mut metadata, "resourceVersion");
    for field in ["apiVersion", "kind", "metadata"] {
        remove(&mut value, field);
    }
    let mut body = format!("{BEFORE_VERSION}{version}\"");
    add_fields(&mut body, &metadata);
    body.push('}');
    add_fields(&mut body, &value);
    body.push('}');
    body
}

fn add_fields(body: &mut String, object: &Value) {
    if object.as_object().is_some_and(|fields| !fields.is_empty()) {
        body.push(',');
        // Not `to_string`, which goes through a formatter: this is a good part of what a write costs.
        let text = serde_json::to_string(object).expect("a value with text as keys is JSON");
        body.push_str(&text[1..text.len() - 1]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::built_in;

    fn pods() -> &'static Kind {
        built_in().iter().find(|kind| kind.resource == "pods").unwrap()
    }

    fn written(object: &StoredObject, version: Option<u64>) -> Value {
        let mut out = Vec::new();
        object.write(&mut out, pods(), version);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn an_object_is_written_with_its_type_and_any_version() {
        let value = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": "a", "namespace": "b", "labels": {"z": "1", "a": "2"}},
            "spec": {"x": "\"resourceVersion\":\"7\""},
        });
        let object = StoredObject::new(pods(), value.clone(), 7);
        let mut expected = value;
        expected["metadata"]["resourceVersion"] = "7".into();
        assert_eq!(written(&object, None), expected);
        assert_eq!(object.value(pods()), expected);
        expected["metadata"]["resourceVersion"] = "1234".into();
        assert_eq!(written(&object, Some(1234)), expected);
        assert_eq!(object.key(), "b/a");
    }

    #[test]
    fn a_field_of_the_same_name_and_value_is_left_alone() {
        let value = json!({
            "involvedObject": {"resourceVersion": "10"},
            "metadata": {"name": "a"},
            "related": {"resourceVersion": "10"},
        });
        let object = StoredObject::new(pods(), value, 10);
        let other = written(&object, Some(9));
        assert_eq!(other["metadata"]["resourceVersion"], "9");
        assert_eq!(other["involvedObject"]["resourceVersion"], "10");
        assert_eq!(other["related"]["resourceVersion"], "10");
    }
}

//! One stored version of an object: encoded once, with the fields that lists, watches and selectors
//! read.

use std::sync::OnceLock;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::json::remove;
use crate::kinds::Kind;
use crate::strategy;

/// Room for the type of an object and its envelope in a list or watch.
const ROOM_FOR_TYPE: usize = 256;

/// The name and value of a field that field selectors may use.
pub(crate) type SelectableField = (&'static str, Box<str>);

/// One immutable version of an object.
#[derive(Debug)]
pub(crate) struct StoredObject {
    version: u64,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Box<str>,
    /// The labels, sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    pub(crate) fields: Box<[SelectableField]>,
    /// The UIDs of the owners.
    pub(crate) owners: Box<[Box<str>]>,
    /// Whether it is being deleted.
    pub(crate) deleting: bool,
    /// JSON that begins with the resourceVersion and lacks `apiVersion` and `kind`, so that each
    /// API version can prepend its own.
    body: Bytes,
    protobuf: OnceLock<Option<Bytes>>,
}

impl StoredObject {
    /// Encodes an object as its `version`. The type is not stored, because callers know it.
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

    /// The resourceVersion.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The sort key within a resource, also used in continue tokens: `namespace/name`, or the name
    /// alone.
    pub(crate) fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }

    /// The object as JSON, of this kind's group version.
    pub(crate) fn value(&self, kind: &Kind) -> Value {
        let mut value: Value = serde_json::from_slice(&self.body).expect("serde_json wrote this text");
        value["apiVersion"] = kind.api_version().into();
        value["kind"] = kind.kind.as_ref().into();
        if kind.is_converted() {
            strategy::event::to_events_v1(&mut value);
        }
        value
    }

    /// The metadata and the status as JSON. Skips the rest, which takes most of the time.
    pub(crate) fn metadata_and_status(&self) -> Value {
        #[derive(Deserialize)]
        struct Parts {
            metadata: Value,
            #[serde(default)]
            status: Value,
        }
        let Parts { metadata, status } =
            serde_json::from_slice(&self.body).expect("serde_json wrote this text");
        let parts = [("metadata".to_owned(), metadata), ("status".to_owned(), status)];
        Value::Object(parts.into_iter().collect())
    }

    /// The value of a selectable field.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(own, _)| *own == name).map_or("", |(_, value)| value)
    }

    /// The `metadata.ownerReferences`.
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

    /// The JSON without the type, as in lists of built-in kinds.
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }

    /// Writes the whole object; `version` overrides its resourceVersion.
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

    /// The protobuf encoding, computed by `encode` on first use.
    pub(crate) fn protobuf(&self, encode: impl FnOnce(&Value) -> Option<Bytes>) -> Option<Bytes> {
        let make = || encode(&serde_json::from_slice(&self.body).ok()?);
        self.protobuf.get_or_init(make).clone()
    }
}

/// Writes the start of an object: `{"kind":"Pod","apiVersion":"v1",`.
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

/// The sort key of an object within its resource.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

fn digits(version: u64) -> usize {
    version.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// The part of a body before the digits of the resourceVersion.
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
        // `Value::to_string` uses a formatter, which is a large share of the cost of a write.
        let text = serde_json::to_string(object).expect("the keys of a Value are text");
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
    fn object_is_written_with_its_type_and_any_version() {
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
    fn other_fields_named_resource_version_are_not_changed() {
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

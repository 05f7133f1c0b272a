//! Encodes objects, lists and watch events.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::decode::empty;
use crate::faults::RequestInfo;
use crate::kinds::Kind;
use crate::media::{Encoding, Form, Media};
use crate::object::{StoredObject, write_type};
use crate::proto;
use crate::rest::List;
use crate::schema::Schema;
use crate::status::Status;
use crate::store::EventType;
use crate::table::{IncludeObject, Printer, partial_object_metadata, partial_object_metadata_list};

/// How one caller sees objects of a kind.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) kind: Arc<Kind>,
    pub(crate) media: Media,
    pub(crate) printer: Printer,
    pub(crate) include: IncludeObject,
    pub(crate) now: Timestamp,
}

impl View {
    /// One object.
    pub(crate) fn object(&self, object: &StoredObject) -> Bytes {
        match (self.media.form, self.media.encoding) {
            (Form::Whole, Encoding::Json) => {
                let mut out = Vec::new();
                object.write(&mut out, &self.kind, None);
                out.push(b'\n');
                out.into()
            }
            (Form::Whole, Encoding::Protobuf) => match self.message(object) {
                Some(message) => proto::wrap(&self.kind.api_version(), &self.kind.kind, &message),
                None => Bytes::new(),
            },
            _ => self.value(&self.shown(&object.value(&self.kind), None)),
        }
    }

    /// A computed response.
    pub(crate) fn value(&self, value: &Value) -> Bytes {
        value_bytes(value, self.media.encoding)
    }

    /// A list.
    pub(crate) fn list(&self, list: &List) -> Bytes {
        match (self.media.form, self.media.encoding) {
            (Form::Whole, Encoding::Json) => self.json_list(list),
            (Form::Whole, Encoding::Protobuf) => {
                let items: Vec<Bytes> =
                    list.objects.iter().filter_map(|object| self.message(object)).collect();
                let metadata = list_metadata(list, self.kind.custom && self.media.form == Form::Whole);
                proto::encode_list(&self.kind.api_version(), &self.kind.list_kind(), &metadata, &items)
                    .unwrap_or_default()
            }
            (Form::Table, _) => {
                let values: Vec<Value> = list.objects.iter().map(|object| object.value(&self.kind)).collect();
                self.value(&self.printer.table(
                    &values,
                    list_metadata(list, self.kind.custom && self.media.form == Form::Whole),
                    self.include,
                    self.now,
                ))
            }
            (Form::Metadata, _) => {
                let values: Vec<Value> = list.objects.iter().map(|object| object.value(&self.kind)).collect();
                self.value(&partial_object_metadata_list(
                    &values,
                    list_metadata(list, self.kind.custom && self.media.form == Form::Whole),
                ))
            }
            _ => {
                let items = list.objects.iter().map(|object| object.value(&self.kind));
                self.value(&json!({
                    "kind": self.kind.list_kind(), "apiVersion": self.kind.api_version(),
                    "metadata": list_metadata(list, self.kind.custom && self.media.form == Form::Whole), "items": items.collect::<Vec<_>>(),
                }))
            }
        }
    }

    fn json_list(&self, list: &List) -> Bytes {
        let size: usize = list.objects.iter().map(|object| object.body().len() + 1).sum();
        let mut out = Vec::with_capacity(size + 256);
        let listed = Kind { kind: self.kind.list_kind().into(), ..(*self.kind).clone() };
        write_type(&mut out, &listed);
        out.extend_from_slice(b"\"metadata\":");
        out.extend_from_slice(
            list_metadata(list, self.kind.custom && self.media.form == Form::Whole).to_string().as_bytes(),
        );
        out.extend_from_slice(b",\"items\":[");
        for (at, object) in list.objects.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            // As upstream, items of built-in lists do not repeat their type.
            if self.kind.custom || self.kind.is_converted() {
                object.write(&mut out, &self.kind, None);
            } else {
                out.extend_from_slice(object.body());
            }
        }
        out.extend_from_slice(b"]}\n");
        out.into()
    }

    /// The object in the requested form. `headers`: whether a table includes its column
    /// definitions.
    fn shown(&self, value: &Value, headers: Option<bool>) -> Value {
        match self.media.form {
            Form::Table => self.printer.row_table(value, headers.unwrap_or(true), self.include, self.now),
            Form::Metadata => partial_object_metadata(value),
            Form::Whole | Form::Aggregated(_) => value.clone(),
        }
    }

    /// The object's own protobuf message; `None` for types that the schema does not have.
    fn message(&self, object: &StoredObject) -> Option<Bytes> {
        let type_id = Schema::get().of(&self.kind)?;
        if self.kind.is_converted() {
            return proto::encode_message(type_id, &object.value(&self.kind)).ok();
        }
        object.protobuf(|value| proto::encode_message(type_id, value).ok())
    }
}

/// Encodes the events of a watch.
pub(crate) struct Events {
    pub(crate) kind: Arc<Kind>,
    /// The request, for matching faults.
    pub(crate) info: RequestInfo,
    view: View,
    /// Whether the next table includes its column definitions.
    headers_pending: bool,
}

impl Events {
    pub(crate) fn new(view: View, info: RequestInfo) -> Self {
        Self { kind: Arc::clone(&view.kind), info, view, headers_pending: true }
    }

    /// Sets the time from which tables compute ages.
    pub(crate) fn at(&mut self, now: Timestamp) {
        self.view.now = now;
    }

    /// Writes an event; `version` overrides the object's resourceVersion.
    pub(crate) fn event(
        &mut self,
        out: &mut Vec<u8>,
        event: EventType,
        object: &StoredObject,
        version: Option<u64>,
    ) {
        match (self.view.media.form, self.view.media.encoding) {
            (Form::Whole, Encoding::Json) => {
                begin(out, event.name());
                object.write(out, &self.kind, version);
                out.extend_from_slice(b"}\n");
            }
            (Form::Whole, Encoding::Protobuf) if version.is_none() => {
                if let Some(message) = self.view.message(object) {
                    let body = proto::wrap(&self.kind.api_version(), &self.kind.kind, &message);
                    out.extend_from_slice(&proto::watch_frame(event.name(), &body));
                }
            }
            _ => {
                let mut value = object.value(&self.kind);
                if let Some(version) = version {
                    value["metadata"]["resourceVersion"] = version.to_string().into();
                }
                let shown = self.view.shown(&value, Some(std::mem::take(&mut self.headers_pending)));
                self.value(out, event.name(), &shown);
            }
        }
    }

    /// Writes a bookmark.
    pub(crate) fn bookmark(&mut self, out: &mut Vec<u8>, version: u64, ends_initial: bool) {
        // An empty object as Go writes it.
        let mut object = Schema::get().of(&self.kind).map_or_else(|| json!({}), empty);
        object["kind"] = self.kind.kind.as_ref().into();
        object["apiVersion"] = self.kind.api_version().into();
        object["metadata"] = bookmark_metadata(version, ends_initial);
        if self.view.media.form == Form::Table {
            let headers = std::mem::take(&mut self.headers_pending);
            object = self.view.shown(&object, Some(headers));
            object["rows"] = json!([]);
        } else if self.view.media.form == Form::Metadata {
            object = partial_object_metadata(&object);
        }
        self.value(out, "BOOKMARK", &object);
    }

    /// Writes the error that ends a watch.
    pub(crate) fn error(&self, out: &mut Vec<u8>, status: &Status) {
        self.value(out, "ERROR", &status.to_json());
    }

    /// Writes the beginning of an event that is never completed.
    pub(crate) fn half(&self, out: &mut Vec<u8>) {
        match self.view.media.encoding {
            Encoding::Protobuf => out.extend_from_slice(&[0, 0, 4, 0, 10]),
            Encoding::Json | Encoding::Yaml => begin(out, EventType::Modified.name()),
        }
    }

    fn value(&self, out: &mut Vec<u8>, event: &str, value: &Value) {
        if self.view.media.encoding == Encoding::Protobuf {
            let body = proto::encode(value).unwrap_or_default();
            out.extend_from_slice(&proto::watch_frame(event, &body));
            return;
        }
        begin(out, event);
        out.extend_from_slice(value.to_string().as_bytes());
        out.extend_from_slice(b"}\n");
    }
}

fn begin(out: &mut Vec<u8>, event: &str) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
}

/// Encodes a value that is not a stored object, such as a Status, a scale or discovery.
pub(crate) fn value_bytes(value: &Value, encoding: Encoding) -> Bytes {
    match encoding {
        Encoding::Json => {
            let mut text = value.to_string();
            text.push('\n');
            text.into()
        }
        // YAML can represent every JSON value.
        Encoding::Yaml => serde_saphyr::to_string(value).unwrap_or_default().into(),
        Encoding::Protobuf => proto::encode(value).unwrap_or_default(),
    }
}

fn list_metadata(list: &List, custom: bool) -> Value {
    let mut metadata = json!({"resourceVersion": list.version.to_string()});
    // Lists of custom resources have the field even when it is empty.
    if custom || !list.continues.is_empty() {
        metadata["continue"] = list.continues.as_str().into();
    }
    if let Some(remaining) = list.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    metadata
}

/// The metadata of a bookmark.
fn bookmark_metadata(version: u64, ends_initial: bool) -> Value {
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if ends_initial {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    metadata
}

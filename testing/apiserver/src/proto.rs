//! Kubernetes protobuf, `application/vnd.kubernetes.protobuf`: encodes objects of built-in kinds
//! from the schema.
//!
//! Not represented: custom resources, CustomResourceDefinitions (the table lacks the messages of
//! their validation schemas), and tables.
//!
//! A body is `k8s\0` followed by a `runtime.Unknown` around the message. List items have no such
//! envelope, so an item is encoded once for all lists and watches: [`encode_message`], then
//! [`encode_list`] or [`wrap`].

mod decode;
mod encode;
mod error;
#[cfg(test)]
pub(crate) mod fixtures;
mod wire;

pub use error::ProtobufError;

use bytes::Bytes;
use serde_json::Value;

use crate::schema::{Schema, TypeId};
use error::Result;

/// The content type of bodies.
pub(crate) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The content type of watches.
pub(crate) const STREAM_CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The prefix of every body.
const MAGIC: &[u8] = b"k8s\0";
/// The field numbers of a list's metadata and items.
const LIST_METADATA: u32 = 1;
const LIST_ITEMS: u32 = 2;

/// Whether objects of a type have messages.
pub(crate) fn has_message(id: TypeId) -> bool {
    !Schema::get().get_type(id).name.starts_with("io.k8s.apiextensions-apiserver.")
}

/// The type of a kind that has messages.
pub(crate) fn message_type(api_version: &str, kind: &str) -> Option<TypeId> {
    Schema::get().kind(api_version, kind).filter(|id| has_message(*id))
}

/// Encodes an object or list, with `apiVersion` and `kind` set, as a body.
pub(crate) fn encode(object: &Value) -> Result<Bytes> {
    let (api_version, kind) = types(object);
    Ok(wrap(api_version, kind, &message(object)?))
}

/// Encodes an object, with `apiVersion` and `kind` set, as a message without the envelope of a
/// body.
pub fn message(object: &Value) -> Result<Bytes> {
    let (api_version, kind) = types(object);
    let id = message_type(api_version, kind).ok_or_else(|| ProtobufError::NoMessage {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    })?;
    encode_message(id, object)
}

fn types(object: &Value) -> (&str, &str) {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// Encodes an object as a message, as in lists.
pub(crate) fn encode_message(id: TypeId, object: &Value) -> Result<Bytes> {
    let mut out = Vec::with_capacity(512);
    encode::message(Schema::get().get_type(id), object, &mut out)?;
    Ok(out.into())
}

/// Wraps a message in the envelope of a body.
pub(crate) fn wrap(api_version: &str, kind: &str, message: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(message.len() + api_version.len() + kind.len() + 32);
    out.extend_from_slice(MAGIC);
    unknown(api_version, kind, &mut out, message.len(), |out| out.extend_from_slice(message));
    out.into()
}

/// Encodes a list of messages as a body, with the list's metadata.
pub(crate) fn encode_list(
    api_version: &str,
    list_kind: &str,
    metadata: &Value,
    items: &[Bytes],
) -> Result<Bytes> {
    let mut head = Vec::new();
    if let Some(id) = Schema::get().named("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta") {
        wire::nested(LIST_METADATA, &mut head, |out| {
            encode::message(Schema::get().get_type(id), metadata, out)
        })?;
    }
    let length: usize = items.iter().map(|item| item.len() + 1 + wire::varint_len(item.len())).sum();
    let length = length + head.len();
    let mut out = Vec::with_capacity(length + api_version.len() + list_kind.len() + 32);
    out.extend_from_slice(MAGIC);
    unknown(api_version, list_kind, &mut out, length, |out| {
        out.extend_from_slice(&head);
        for item in items {
            wire::bytes(LIST_ITEMS, item, out);
        }
    });
    Ok(out.into())
}

/// A watch event, preceded by its length. The object is a body from [`encode`] or [`wrap`].
pub(crate) fn watch_frame(event: &str, object: &[u8]) -> Bytes {
    let mut message = Vec::with_capacity(object.len() + event.len() + 24);
    message.extend_from_slice(&[0; 4]);
    wire::bytes(1, event.as_bytes(), &mut message);
    // A RawExtension holds the object as bytes.
    wire::tag(2, wire::LENGTH, &mut message);
    wire::varint(1 + wire::varint_len(object.len()) as u64 + object.len() as u64, &mut message);
    wire::bytes(1, object, &mut message);
    // An object of 4 GiB does not fit a frame, nor memory beside its JSON.
    let length = u32::try_from(message.len() - 4).unwrap_or(u32::MAX);
    message[..4].copy_from_slice(&length.to_be_bytes());
    message.into()
}

/// Decodes a body. Fields that the wire omits are missing; [`crate::decode::decode`] normalises the
/// object.
pub(crate) fn decode(body: &[u8]) -> Result<Value> {
    let unknown = body.strip_prefix(MAGIC).ok_or(ProtobufError::NoPrefix)?;
    let Unknown { api_version, kind, raw, content_type } = Unknown::of(unknown)?;
    if content_type == "application/json" {
        return Ok(serde_json::from_slice(raw)?);
    }
    let Some(id) = message_type(api_version, kind) else {
        return Err(ProtobufError::NoMessage { api_version: api_version.to_owned(), kind: kind.to_owned() });
    };
    let mut object = decode::message(Schema::get().get_type(id), raw)?;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    Ok(object)
}

/// Writes a `runtime.Unknown` around a message of the given length.
fn unknown(
    api_version: &str,
    kind: &str,
    out: &mut Vec<u8>,
    length: usize,
    message: impl FnOnce(&mut Vec<u8>),
) {
    let mut types = Vec::with_capacity(api_version.len() + kind.len() + 4);
    wire::bytes(1, api_version.as_bytes(), &mut types);
    wire::bytes(2, kind.as_bytes(), &mut types);
    wire::bytes(1, &types, out);
    wire::tag(2, wire::LENGTH, out);
    wire::varint(length as u64, out);
    message(out);
    // Go also writes the empty contentEncoding and contentType.
    wire::bytes(3, &[], out);
    wire::bytes(4, &[], out);
}

/// The envelope of a message: upstream's `runtime.Unknown`.
#[derive(Default)]
struct Unknown<'a> {
    api_version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
    content_type: &'a str,
}

impl<'a> Unknown<'a> {
    fn of(message: &'a [u8]) -> Result<Self> {
        let mut unknown = Self::default();
        for field in wire::Fields::of(message) {
            match field? {
                (1, wire::Datum::Bytes(types)) => {
                    for field in wire::Fields::of(types) {
                        match field? {
                            (1, wire::Datum::Bytes(text)) => unknown.api_version = wire::text(text)?,
                            (2, wire::Datum::Bytes(text)) => unknown.kind = wire::text(text)?,
                            _ => {}
                        }
                    }
                }
                (2, wire::Datum::Bytes(raw)) => unknown.raw = raw,
                (4, wire::Datum::Bytes(text)) => unknown.content_type = wire::text(text)?,
                _ => {}
            }
        }
        Ok(unknown)
    }
}

#[cfg(test)]
mod tests;

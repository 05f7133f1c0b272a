//! Errors of decoding: object, field and cause.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use supercargo_framework::quantity::QuantityError;
use thiserror::Error;

use super::json::{Obj, Str};
use super::json_path;
use super::metadata::Metadata;
use super::proto::{ProtoError, ProtoMessage, merge, message, read};

/// An object that cannot be decoded.
#[derive(Debug, Error)]
#[error("{object}: {field}: {fault}")]
pub struct WireError {
    /// The object as far as it can be identified: `pod default/web`, `node n1`, or `pod`.
    pub object: String,
    /// The path of the field, such as `spec.containers[0].resources.requests[cpu]`; `.` for the
    /// whole document.
    pub field: String,
    /// The cause.
    #[source]
    pub fault: DecodeErrorKind,
}

/// Why a field cannot be decoded.
#[derive(Debug, Error)]
pub enum DecodeErrorKind {
    /// The document is not valid JSON, or the field does not have the API's type.
    #[error("{0}")]
    Json(#[source] serde_json::Error),
    /// The message is not valid protobuf, or a field does not have the API's type.
    #[error("{0}")]
    Protobuf(#[source] ProtoError),
    /// A field that identifies the object is missing.
    #[error("missing or empty")]
    Missing,
    /// A resource amount is not a quantity.
    #[error("{0}")]
    Quantity(#[source] QuantityError),
    /// A time is not in RFC 3339 format.
    #[error("{0}")]
    Time(#[source] jiff::Error),
}

/// An error in a field of an object that is not known yet.
#[derive(Debug)]
pub(super) struct FieldError {
    field: String,
    fault: DecodeErrorKind,
}

impl FieldError {
    pub(super) fn new(field: impl fmt::Display, fault: DecodeErrorKind) -> Self {
        let field = field.to_string();
        Self { field, fault }
    }

    /// The same error in a field with this path before its own.
    pub(super) fn within(self, parent: impl fmt::Display) -> Self {
        Self { field: format!("{parent}{}", self.field), fault: self.fault }
    }

    /// Completes the error with the object's identity.
    pub(super) fn in_object(self, kind: &str, namespace: &str, name: &str) -> WireError {
        let Self { field, fault } = self;
        let object = match (namespace, name) {
            ("", "") => kind.to_owned(),
            ("", name) => format!("{kind} {name}"),
            (namespace, name) => format!("{kind} {namespace}/{name}"),
        };
        WireError { object, field, fault }
    }
}

/// Parses a JSON document. Only a failure pays for locating the field and identifying the object.
pub(super) fn parse<'de, T: Deserialize<'de>>(kind: &str, document: &'de str) -> Result<T, WireError> {
    serde_json::from_str(document).map_err(|error| {
        let field = json_path::last_field(read_before(document, &error));
        let (namespace, name) = Identity::read(document);
        FieldError::new(field, DecodeErrorKind::Json(error)).in_object(kind, &namespace, &name)
    })
}

/// The part of a document that was read when an error occurred.
pub(super) fn read_before<'a>(document: &'a str, error: &serde_json::Error) -> &'a str {
    let line =
        document.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let end = document.floor_char_boundary(line + error.column());
    // The parser does not read the bracket of a value of the wrong type.
    let bracket = document[end..].starts_with(['{', '[']);
    &document[..end + usize::from(bracket)]
}

/// Parses a protobuf message. Errors name the whole message.
pub(super) fn parse_protobuf<'a, T: ProtoMessage<'a> + Default>(
    kind: &str,
    bytes: &'a [u8],
) -> Result<T, WireError> {
    read(bytes).map_err(|error| {
        let mut named = Named::default();
        // Ignore the error: the fields before it are read.
        let _ = merge(&mut named, bytes);
        FieldError::new(".", DecodeErrorKind::Protobuf(error)).in_object(
            kind,
            &named.metadata.namespace,
            &named.metadata.name,
        )
    })
}

/// The part that all objects share.
#[derive(Default)]
struct Named<'a> {
    metadata: Obj<Metadata<'a>>,
}

message!(Named { 1 => metadata });

/// The name of an object in an invalid document, as far as it can be read.
#[derive(Default)]
struct Identity {
    namespace: String,
    name: String,
}

impl Identity {
    fn read(document: &str) -> (String, String) {
        let mut found = Self::default();
        let mut json = serde_json::Deserializer::from_str(document);
        // Ignore the error: the names before it are read.
        let _ = Search { found: &mut found, in_metadata: false }.deserialize(&mut json);
        (found.namespace, found.name)
    }
}

/// Walks an object and stores names as it finds them, so that a later error loses nothing.
struct Search<'a> {
    found: &'a mut Identity,
    in_metadata: bool,
}

impl<'de> DeserializeSeed<'de> for Search<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Search<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
        while let Some(key) = map.next_key::<Str<'_>>()? {
            match (self.in_metadata, &*key) {
                (false, "metadata") => {
                    map.next_value_seed(Search { found: self.found, in_metadata: true })?;
                }
                (true, "name") => self.found.name = text(map.next_value()?),
                (true, "namespace") => self.found.namespace = text(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

//! What can be wrong with an object, and where.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use supercargo_framework::quantity::QuantityError;
use thiserror::Error;

use super::json::{Obj, Str};
use super::metadata::Metadata;
use super::proto::{Message, ProtoError, merge, message, read};

/// An object that cannot become a record: which one, where in it, and why.
#[derive(Debug, Error)]
#[error("{object}: {field}: {fault}")]
pub struct WireError {
    /// The object as far as it could be read: `pod default/web`, `node n1`, or `pod` alone.
    pub object: String,
    /// The path of the field, such as `spec.containers[0].resources.requests[cpu]`; `.` for the whole document.
    pub field: String,
    /// What is wrong there.
    #[source]
    pub fault: Fault,
}

/// What is wrong with a field.
#[derive(Debug, Error)]
pub enum Fault {
    /// The document is no JSON, ends too early, or the field has another type than the API gives it.
    #[error("{0}")]
    Json(#[source] serde_json::Error),
    /// The message is no protobuf, ends too early, or a field has another type than the API gives it.
    #[error("{0}")]
    Protobuf(#[source] ProtoError),
    /// The object cannot be identified without this field.
    #[error("missing or empty")]
    Missing,
    /// A resource amount is no quantity.
    #[error("{0}")]
    Quantity(#[source] QuantityError),
    /// A time is not in RFC 3339's form.
    #[error("{0}")]
    Time(#[source] jiff::Error),
}

/// A fault on its way to the place that knows the object.
#[derive(Debug)]
pub(super) struct Misfit {
    field: String,
    fault: Fault,
}

impl Misfit {
    pub(super) fn new(field: impl fmt::Display, fault: Fault) -> Self {
        let field = field.to_string();
        Self { field, fault }
    }

    /// The error, now that the object is known.
    pub(super) fn of(self, kind: &str, namespace: &str, name: &str) -> WireError {
        let Self { field, fault } = self;
        let object = match (namespace, name) {
            ("", "") => kind.to_owned(),
            ("", name) => format!("{kind} {name}"),
            (namespace, name) => format!("{kind} {namespace}/{name}"),
        };
        WireError { object, field, fault }
    }
}

/// Reads a document. Only a failure pays for finding out where it is and in which object.
pub(super) fn parse<'de, T: Deserialize<'de>>(kind: &str, document: &'de [u8]) -> Result<T, WireError> {
    // One check of the whole document is cheaper than one of each text.
    let parsed = match std::str::from_utf8(document) {
        Ok(text) => serde_json::from_str(text),
        // Bad text may yet be in a field that is skipped; then it does no harm.
        Err(_) => serde_json::from_slice(document),
    };
    parsed.map_err(|error| {
        let mut json = serde_json::Deserializer::from_slice(document);
        let misfit = match serde_path_to_error::deserialize::<_, T>(&mut json) {
            Err(located) => Misfit::new(located.path().clone(), Fault::Json(located.into_inner())),
            // Only what follows the object is wrong.
            Ok(_) => Misfit::new(".", Fault::Json(error)),
        };
        let (namespace, name) = Identity::read(document);
        misfit.of(kind, &namespace, &name)
    })
}

/// The same for protobuf, of which only the whole message can be named as the place.
pub(super) fn parse_protobuf<'a, T: Message<'a> + Default>(
    kind: &str,
    bytes: &'a [u8],
) -> Result<T, WireError> {
    read(bytes).map_err(|error| {
        let mut named = Named::default();
        // The message is known to be broken; what came before the break has been taken.
        let _ = merge(&mut named, bytes);
        Misfit::new(".", Fault::Protobuf(error)).of(kind, &named.metadata.namespace, &named.metadata.name)
    })
}

/// What all objects have.
#[derive(Default)]
struct Named<'a> {
    metadata: Obj<Metadata<'a>>,
}

message!(Named { 1 => metadata });

/// As much of an object's name as a broken document yields.
#[derive(Default)]
struct Identity {
    namespace: String,
    name: String,
}

impl Identity {
    fn read(document: &[u8]) -> (String, String) {
        let mut found = Self::default();
        let mut json = serde_json::Deserializer::from_slice(document);
        // The document is known to be broken; what came before the break has been noted.
        let _ = Search { found: &mut found, in_metadata: false }.deserialize(&mut json);
        (found.namespace, found.name)
    }
}

/// Walks an object and notes what it finds at once, so that a later error loses nothing.
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

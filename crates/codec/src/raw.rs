//! Whole objects, for users that need more fields than scheduling.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};

use super::error::{DecodeErrorKind, FieldError, WireError};

/// The fields of an object, as text.
type Fields = BTreeMap<String, Box<RawValue>>;

/// An object without `managedFields`, which can be larger than the rest.
pub(super) struct Whole(Fields);

impl Whole {
    /// The fields of a document.
    pub(super) fn parse(kind: &str, json: &str) -> Result<Self, WireError> {
        let mut fields: Fields = serde_json::from_str(json)
            .map_err(|error| FieldError::new(".", DecodeErrorKind::Json(error)).in_object(kind, "", ""))?;
        if let Some(metadata) = fields.get_mut("metadata")
            && let Ok(mut members) = serde_json::from_str::<Fields>(metadata.get())
            && members.remove("managedFields").is_some()
            && let Ok(rest) = to_raw_value(&members)
        {
            *metadata = rest;
        }
        Ok(Self(fields))
    }

    /// Sets a field to a text.
    pub(super) fn set(&mut self, field: &str, text: &str) {
        // A text always has JSON.
        if let Ok(value) = to_raw_value(text) {
            self.0.insert(field.to_owned(), value);
        }
    }

    /// The object as JSON.
    pub(super) fn to_text(&self) -> Arc<str> {
        // So have texts by name.
        serde_json::to_string(&self.0).unwrap_or_default().into()
    }
}

/// The document as text without its type, as upstream holds it.
pub(super) fn untyped_text(kind: &str, json: &str) -> Result<Arc<str>, WireError> {
    let mut object = Whole::parse(kind, json)?;
    object.0.remove("apiVersion");
    object.0.remove("kind");
    Ok(object.to_text())
}

//! Whole objects, for users that need more fields than scheduling.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::{DecodeErrorKind, FieldError, WireError};

/// The document without `managedFields`, which can be larger than the rest.
pub(super) fn whole(kind: &str, json: &str) -> Result<Map<String, Value>, WireError> {
    let mut object: Map<String, Value> = serde_json::from_str(json)
        .map_err(|error| FieldError::new(".", DecodeErrorKind::Json(error)).in_object(kind, "", ""))?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Ok(object)
}

/// The document as text without its type, as upstream holds it.
pub(super) fn untyped_text(kind: &str, json: &str) -> Result<Arc<str>, WireError> {
    let mut object = whole(kind, json)?;
    object.remove("apiVersion");
    object.remove("kind");
    Ok(Value::Object(object).to_string().into())
}

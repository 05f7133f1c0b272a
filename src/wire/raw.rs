//! Whole objects, for what is outside and wants more of them than scheduling does.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::{Fault, Misfit, WireError};

/// The document as upstream would hold it: who manages which field is dropped, and so is the type, which goes without
/// saying.
pub(super) fn whole(kind: &str, json: &[u8]) -> Result<Map<String, Value>, WireError> {
    let mut object: Map<String, Value> = serde_json::from_slice(json)
        .map_err(|error| Misfit::new(".", Fault::Json(error)).of(kind, "", ""))?;
    object.remove("apiVersion");
    object.remove("kind");
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Ok(object)
}

/// The same as text.
pub(super) fn whole_text(kind: &str, json: &[u8]) -> Result<Arc<str>, WireError> {
    Ok(Value::Object(whole(kind, json)?).to_string().into())
}

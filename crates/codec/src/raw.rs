//! Whole objects, for what wants more of them than scheduling reads.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::{Fault, Misfit, WireError};

/// The document without the record of who manages which field, which can be larger than all the rest.
pub(super) fn whole(kind: &str, json: &[u8]) -> Result<Map<String, Value>, WireError> {
    let mut object: Map<String, Value> = serde_json::from_slice(json)
        .map_err(|error| Misfit::new(".", Fault::Json(error)).of(kind, "", ""))?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Ok(object)
}

/// The same as text, and as upstream would hold it: without the type, which goes without saying.
pub(super) fn untyped_text(kind: &str, json: &[u8]) -> Result<Arc<str>, WireError> {
    let mut object = whole(kind, json)?;
    object.remove("apiVersion");
    object.remove("kind");
    Ok(Value::Object(object).to_string().into())
}

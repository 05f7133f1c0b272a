//! Limits the nesting depth of JSON. Stored objects are parsed again, and the parser has a depth
//! limit.

use serde_json::Value;

use crate::status::{Result, Status};

/// The maximum depth of an object: serde_json's limit, less the levels that managed fields and
/// lists add.
pub(crate) const DEEPEST: usize = 100;

/// Rejects objects that are nested too deeply to be stored.
pub(crate) fn check(value: &Value) -> Result<()> {
    if is_within(value, DEEPEST) { Ok(()) } else { Err(Status::bad_request("exceeded max depth")) }
}

/// Whether a value has at most `levels` levels. The check itself descends no deeper than that.
pub(crate) fn is_within(value: &Value, levels: usize) -> bool {
    let inner = |value: &Value| is_within(value, levels - 1);
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(inner),
        Value::Object(fields) => levels > 0 && fields.values().all(inner),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn depth_counts_lists_and_objects() {
        let value = json!({"a": [{"b": 1}]});
        assert!(is_within(&value, 3));
        assert!(!is_within(&value, 2));
        assert!(is_within(&json!(1), 0));
    }
}

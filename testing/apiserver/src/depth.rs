//! How deep JSON is nested. What is kept is read again, and the parser goes only so deep.

use serde_json::Value;

use crate::status::{Result, Status};

/// How deep an object may be: what serde_json reads, less what managed fields and lists put around it.
pub(crate) const DEEPEST: usize = 100;

/// Refuses what is nested too deep to be kept.
pub(crate) fn check(value: &Value) -> Result<()> {
    if is_within(value, DEEPEST) { Ok(()) } else { Err(Status::bad_request("exceeded max depth")) }
}

/// Whether a value is nested no deeper than so many levels. It looks no deeper than that itself.
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
    fn levels_are_lists_and_objects() {
        let value = json!({"a": [{"b": 1}]});
        assert!(is_within(&value, 3));
        assert!(!is_within(&value, 2));
        assert!(is_within(&json!(1), 0));
    }
}

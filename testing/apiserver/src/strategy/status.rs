//! What is kept of the old object when only the status is written, or only the rest.

use serde_json::Value;

use crate::json::{remove, restore};

/// All but the status and the metadata stay as they are.
pub(crate) fn only_status(object: &mut Value, old: &Value) {
    let fields: Vec<String> =
        object.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default();
    let before = old.as_object().into_iter().flat_map(|fields| fields.keys().cloned());
    let is_other = |field: &String| !matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status");
    for field in fields.into_iter().chain(before).filter(is_other) {
        restore(object, old, &field);
    }
}

/// What people write of the metadata stays as it is.
pub(crate) fn keep_metadata(object: &mut Value, old: &Value) {
    let fields = [
        "annotations",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "labels",
        "ownerReferences",
        "selfLink",
    ];
    let (Some(metadata), Some(old)) = (object.get_mut("metadata"), old.get("metadata")) else { return };
    for field in fields {
        restore(metadata, old, field);
    }
}

/// A new object has no status yet.
pub(crate) fn reset(object: &mut Value) {
    remove(object, "status");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_is_written_alone() {
        let old =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}, "data": 2, "status": {"y": 1}});
        let mut object =
            json!({"metadata": {"labels": {"a": "c"}}, "spec": {"x": 2}, "more": 3, "status": {"y": 2}});
        only_status(&mut object, &old);
        assert_eq!(
            object,
            json!({"metadata": {"labels": {"a": "c"}}, "spec": {"x": 1}, "data": 2, "status": {"y": 2}})
        );
        keep_metadata(&mut object, &old);
        assert_eq!(object["metadata"], old["metadata"]);
    }
}

//! The fields that are restored when only the status, or only the rest of an object is written.

use serde_json::Value;

use crate::json::{remove, restore};

/// Restores everything except the status and the metadata.
pub(crate) fn only_status(object: &mut Value, old: &Value) {
    let fields: Vec<String> =
        object.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default();
    let before = old.as_object().into_iter().flat_map(|fields| fields.keys().cloned());
    let is_other = |field: &String| !matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status");
    for field in fields.into_iter().chain(before).filter(is_other) {
        restore(object, old, &field);
    }
}

/// Restores the metadata that users write.
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

/// Clears the status of a new object.
pub(crate) fn reset(object: &mut Value) {
    remove(object, "status");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_update_only_changes_the_status() {
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

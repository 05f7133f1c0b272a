//! The conditions of a pod.

use serde_json::{Value, json};

use crate::json::{list, object_mut, text};

/// The condition of a type.
pub(super) fn find<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    let status = pod.get("status")?;
    list(status, "conditions").iter().find(|condition| text(condition, "type") == kind)
}

/// Whether the condition of a type is true.
pub(super) fn is_true(pod: &Value, kind: &str) -> bool {
    find(pod, kind).is_some_and(|condition| text(condition, "status") == "True")
}

/// Sets the condition of a type, with its reason and message. The transition time only changes with
/// the status.
pub(super) fn set(pod: &mut Value, kind: &str, status: &str, (reason, message): (&str, &str), now: &str) {
    let since = find(pod, kind)
        .filter(|condition| text(condition, "status") == status)
        .and_then(|condition| condition.get("lastTransitionTime").cloned())
        .unwrap_or_else(|| now.into());
    let mut condition = json!({
        "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since,
    });
    for (field, value) in [("reason", reason), ("message", message)] {
        if !value.is_empty() {
            condition[field] = value.into();
        }
    }
    let Some(fields) = object_mut(pod, "status") else { return };
    let conditions = fields.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|condition| text(condition, "type") == kind) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

//! Conditions of pods and nodes, as written by a kubelet.

use serde_json::{Map, Value, json};

use crate::json::{list, object_mut, text};

/// The desired state of a condition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition<'a> {
    pub(super) kind: &'a str,
    pub(super) status: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
}

impl<'a> Condition<'a> {
    pub(super) fn new(kind: &'a str, is_true: bool) -> Self {
        Self { kind, status: if is_true { "True" } else { "False" }, reason: "", message: "" }
    }

    pub(super) fn because(self, reason: &'a str, message: &'a str) -> Self {
        Self { reason, message, ..self }
    }
}

/// The condition of a type.
pub(super) fn find<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object.get("status")?, "conditions").iter().find(|condition| text(condition, "type") == kind)
}

/// Sets a condition. When its status changes, the fields in `times` are set to `now`. Other fields
/// are kept.
pub(super) fn set(object: &mut Value, condition: Condition<'_>, times: &[&str], now: &str) {
    let Some(status) = object_mut(object, "status") else { return };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let at = conditions.iter().position(|known| text(known, "type") == condition.kind);
    let at = at.unwrap_or_else(|| {
        conditions.push(json!({"type": condition.kind}));
        conditions.len() - 1
    });
    let Some(fields) = conditions[at].as_object_mut() else { return };
    if fields.get("status").and_then(Value::as_str) != Some(condition.status) {
        fields.insert("status".to_owned(), condition.status.into());
        for time in times {
            fields.insert((*time).to_owned(), now.into());
        }
    }
    set_text(fields, "reason", condition.reason);
    set_text(fields, "message", condition.message);
}

fn set_text(fields: &mut Map<String, Value>, field: &str, text: &str) {
    if text.is_empty() {
        fields.remove(field);
    } else {
        fields.insert(field.to_owned(), text.into());
    }
}

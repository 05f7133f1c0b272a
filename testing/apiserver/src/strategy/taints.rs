//! Taints of nodes and tolerations of pods.

use serde_json::Value;

use super::labels;
use super::path::Path;
use crate::json::{list, present, text};
use crate::status::StatusCause;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A list of taints.
pub(crate) fn check_taints(object: &Value, field: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (taints, path) = (list(object, field), path.child(field));
    for (i, taint) in taints.iter().enumerate() {
        let path = path.index(i);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        labels::check_key(key, &path.child("key"), causes);
        let wrong = labels::value(value);
        if !wrong.is_empty() {
            causes.push(path.child("value").invalid(value, &wrong.join(";")));
        }
        if effect.is_empty() {
            causes.push(path.child("effect").required(""));
        } else {
            check_effect(effect, &path, causes);
        }
        let is_same = |other: &Value| text(other, "key") == key && text(other, "effect") == effect;
        if taints[..i].iter().any(is_same) {
            causes.push(duplicate(taint, &path));
        }
    }
}

/// A list of tolerations.
pub(crate) fn check_tolerations(object: &Value, field: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let path = path.child(field);
    for (i, toleration) in list(object, field).iter().enumerate() {
        check_toleration(toleration, &path.index(i), causes);
    }
}

fn check_toleration(toleration: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
    let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
    let operator_path = path.child("operator");
    if !key.is_empty() {
        labels::check_key(key, &path.child("key"), causes);
    } else if operator != "Exists" {
        let why =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        causes.push(operator_path.invalid(operator, why));
    }
    if present(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        causes.push(path.child("effect").invalid(effect, why));
    }
    match operator {
        "Equal" | "" => {
            let wrong = labels::value(value);
            if !wrong.is_empty() {
                causes.push(operator_path.invalid(value, &wrong.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            causes.push(operator_path.invalid(value, "value must be empty when `operator` is 'Exists'"));
        }
        "Exists" => {}
        // Disabled by default, but upstream still lists them as supported.
        "Lt" | "Gt" => {
            causes.push(operator_path.not_supported(operator, &["Equal", "Exists", "Lt", "Gt"]));
        }
        _ => causes.push(operator_path.not_supported(operator, &["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        check_effect(effect, path, causes);
    }
}

fn check_effect(effect: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if !EFFECTS.contains(&effect) {
        causes.push(path.child("effect").not_supported(effect, &EFFECTS));
    }
}

/// Upstream shows the taint as its internal type, with that type's field names and order.
fn duplicate(taint: &Value, path: &Path<'_>) -> StatusCause {
    let shown = |field| taint.get(field).unwrap_or(&Value::Null).to_string();
    let text = |field| Value::from(text(taint, field)).to_string();
    StatusCause {
        reason: "FieldValueDuplicate",
        message: format!(
            r#"Duplicate value: {{"Key":{},"Value":{},"Effect":{},"TimeAdded":{}}}: taints must be unique by key and effect pair"#,
            text("key"),
            text("value"),
            text("effect"),
            shown("timeAdded"),
        ),
        field: path.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn taints_are_unique_by_key_and_effect() {
        let spec = json!({"taints": [
            {"key": "a", "effect": "NoSchedule", "value": "b"},
            {"key": "a", "effect": "NoExecute"},
            {"key": "a", "effect": "NoSchedule"},
        ]});
        let mut causes = Vec::new();
        check_taints(&spec, "taints", &Path::root("spec"), &mut causes);
        assert_eq!(causes.len(), 1);
        assert_eq!(causes[0].field, "spec.taints[2]");
        assert_eq!(
            causes[0].message,
            r#"Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair"#
        );
    }

    #[test]
    fn toleration_without_a_key_tolerates_everything() {
        let wrong = |toleration: Value| {
            let mut causes = Vec::new();
            check_tolerations(&json!({"t": [toleration]}), "t", &Path::root("spec"), &mut causes);
            causes.into_iter().map(|cause| cause.field).collect::<Vec<_>>()
        };
        assert!(wrong(json!({"operator": "Exists"})).is_empty());
        assert_eq!(wrong(json!({"value": "a"})), ["spec.t[0].operator"]);
        assert_eq!(wrong(json!({"key": "a", "tolerationSeconds": 0})), ["spec.t[0].effect"]);
        assert_eq!(wrong(json!({"key": "a", "operator": "Exists", "value": "b"})), ["spec.t[0].operator"]);
        assert_eq!(wrong(json!({"key": "a", "effect": "Never"})), ["spec.t[0].effect"]);
    }
}

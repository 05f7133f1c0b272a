//! Labels and selectors as text.

use serde_json::Value;

use super::access::{items, map, text};

/// For example `app=web,tier=front`; `<none>` without labels.
pub(super) fn labels(object: &Value, pointer: &str) -> String {
    let mut pairs: Vec<(&str, &str)> = map(object, pointer)
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() {
        return "<none>".to_owned();
    }
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

/// Formats a label selector as `app=web,tier in (back,front),!old`; `None` if it is invalid.
pub(super) fn label_selector(object: &Value, pointer: &str) -> Option<String> {
    let Some(selector) = object.pointer(pointer) else { return Some(String::new()) };
    let mut requirements: Vec<(&str, String)> = map(selector, "/matchLabels")
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for expression in items(selector, "/matchExpressions") {
        let key = text(expression, "/key");
        let mut values: Vec<&str> = items(expression, "/values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let requirement = match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        requirements.push((key, requirement));
    }
    requirements.sort_by_key(|(key, _)| *key);
    let requirements: Vec<String> = requirements.into_iter().map(|(_, requirement)| requirement).collect();
    Some(requirements.join(","))
}

/// The same for a cell: `<none>` if it selects everything or nothing, `<error>` if it is invalid.
pub(super) fn label_selector_cell(object: &Value, pointer: &str) -> String {
    match label_selector(object, pointer) {
        None => "<error>".to_owned(),
        Some(text) if text.is_empty() => "<none>".to_owned(),
        Some(text) => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_sorted_by_key_and_value() {
        let object = json!({"selector": {
        "matchLabels": {"tier": "front", "app": "web"},
        "matchExpressions": [
            {"key": "zone", "operator": "NotIn", "values": ["b", "a"]},
            {"key": "old", "operator": "DoesNotExist"},
            {"key": "name", "operator": "Exists"},
            {"key": "env", "operator": "In", "values": ["prod"]},
        ]}});
        assert_eq!(
            label_selector_cell(&object, "/selector"),
            "app=web,env in (prod),name,!old,tier=front,zone notin (a,b)"
        );
        assert_eq!(label_selector_cell(&object, "/none"), "<none>");
        let wrong = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}});
        assert_eq!(label_selector_cell(&wrong, "/selector"), "<error>");
    }

    #[test]
    fn labels_are_sorted() {
        let object = json!({"labels": {"b": "2", "a": "1"}, "none": {}});
        assert_eq!(labels(&object, "/labels"), "a=1,b=2");
        assert_eq!(labels(&object, "/none"), "<none>");
    }
}

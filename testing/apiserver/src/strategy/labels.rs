//! Labels, annotations and label selectors.

use std::borrow::Cow;

use serde_json::Value;

use super::names::{self, Wrong, is_enclosed};
use super::path::Path;
use crate::json::{entries, list, text, texts};
use crate::status::StatusCause;

const PART_LENGTH: usize = 63;
const ANNOTATIONS_SIZE: usize = 256 * 1024;

macro_rules! key_format {
    ($before:literal, $after:literal) => {
        concat!(
            $before,
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            $after
        )
    };
}

const KEY: &str = key_format!(
    "a valid label key ",
    " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
);
const KEY_NAME: &str = key_format!("name part ", "");
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
     start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation \
     is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The key of a label; upstream's qualified name.
pub(crate) fn key(value: &str) -> Wrong {
    let mut wrong = Wrong::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, rest)) if rest.contains('/') => return vec![Cow::Borrowed(KEY)],
        Some((prefix, name)) => {
            if prefix.is_empty() {
                wrong.push(Cow::Borrowed("prefix part must be non-empty"));
            } else {
                let prefixed = names::dns1123_subdomain(prefix).into_iter();
                wrong.extend(prefixed.map(|why| Cow::Owned(format!("prefix part {why}"))));
            }
            name
        }
    };
    if name.is_empty() {
        wrong.push(Cow::Borrowed("name part must be non-empty"));
    } else if name.len() > PART_LENGTH {
        wrong.push(Cow::Borrowed("name part must be no more than 63 characters"));
    }
    if !is_part(name) {
        wrong.push(Cow::Borrowed(KEY_NAME));
    }
    wrong
}

/// The value of a label.
pub(crate) fn value(value: &str) -> Wrong {
    let mut wrong = names::at_most(PART_LENGTH, value);
    if !value.is_empty() && !is_part(value) {
        wrong.push(Cow::Borrowed(VALUE));
    }
    wrong
}

/// Checks the key of a label at a path.
pub(crate) fn check_key(name: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    path.invalid_all(name, key(name), causes);
}

/// Checks a map of labels.
pub(crate) fn check_labels(object: &Value, field: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let path = path.child(field);
    for (key, label) in entries(object, field) {
        check_key(key, &path, causes);
        let label = label.as_str().unwrap_or_default();
        path.invalid_all(label, value(label), causes);
    }
}

/// Checks a map of annotations, whose keys may contain capitals.
pub(crate) fn check_annotations(object: &Value, field: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let path = path.child(field);
    let mut size = 0;
    for (name, annotation) in entries(object, field) {
        size += name.len() + annotation.as_str().map_or(0, str::len);
        path.invalid_all(name, key(&name.to_lowercase()), causes);
    }
    if size > ANNOTATIONS_SIZE {
        causes.push(path.too_long(ANNOTATIONS_SIZE));
    }
}

/// Checks a label selector (`matchLabels` and `matchExpressions`) at a path.
pub(crate) fn check_selector(selector: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    check_labels(selector, "matchLabels", path, causes);
    let expressions = path.child("matchExpressions");
    for (i, expression) in list(selector, "matchExpressions").iter().enumerate() {
        check_requirement(expression, &expressions.index(i), causes);
    }
}

fn check_requirement(expression: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (operator, values) = (text(expression, "operator"), path.child("values"));
    let is_empty = list(expression, "values").is_empty();
    match operator {
        "In" | "NotIn" if is_empty => {
            causes.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !is_empty => {
            causes
                .push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => causes.push(path.child("operator").invalid(operator, "not a valid selector operator")),
    }
    check_key(text(expression, "key"), &path.child("key"), causes);
    for (i, label) in texts(expression, "values").enumerate() {
        values.index(i).invalid_all(label, value(label), causes);
    }
}

/// Whether a label selector matches some labels. An empty selector matches everything, an invalid
/// one nothing.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    entries(selector, "matchLabels").all(|(key, value)| labels.get(key) == Some(value))
        && list(selector, "matchExpressions").iter().all(|expression| {
            let label = labels.get(text(expression, "key")).and_then(Value::as_str);
            let is_in = label.is_some_and(|label| texts(expression, "values").any(|value| value == label));
            match text(expression, "operator") {
                "In" => is_in,
                "NotIn" => !is_in,
                "Exists" => label.is_some(),
                "DoesNotExist" => label.is_none(),
                _ => false,
            }
        })
}

fn is_part(value: &str) -> bool {
    is_enclosed(
        value,
        |byte| byte.is_ascii_alphanumeric(),
        |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn key_may_have_one_prefix() {
        for sound in ["a", "A_b.c", "example.com/a"] {
            assert!(key(sound).is_empty(), "{sound}");
        }
        assert_eq!(key("a/b/c"), [KEY]);
        assert_eq!(key("/a"), ["prefix part must be non-empty"]);
        assert_eq!(key("a/"), ["name part must be non-empty", KEY_NAME]);
        assert_eq!(key("-a"), [KEY_NAME]);
        assert!(key("A/b")[0].starts_with("prefix part a lowercase RFC 1123 subdomain"));
    }

    #[test]
    fn value_may_be_empty() {
        assert!(value("").is_empty());
        assert_eq!(value("a b"), [VALUE]);
        assert_eq!(value(&"a".repeat(64)), ["must be no more than 63 characters"]);
    }

    #[test]
    fn operator_determines_whether_values_are_required() {
        let selector = json!({"matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["b"]},
            {"key": "a", "operator": "Near", "values": ["b c"]},
        ]});
        let mut causes = Vec::new();
        check_selector(&selector, &Path::root("selector"), &mut causes);
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "selector.matchExpressions[0].values",
                "selector.matchExpressions[1].values",
                "selector.matchExpressions[2].operator",
                "selector.matchExpressions[2].values[0]",
            ]
        );
    }

    #[test]
    fn empty_selector_matches_everything() {
        assert!(selects(&json!({}), &json!({"a": "b"})));
        assert!(selects(
            &json!({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["y"]}]}),
            &json!({})
        ));
        assert!(!selects(&json!({"matchLabels": {"a": "c"}}), &json!({"a": "b"})));
    }
}

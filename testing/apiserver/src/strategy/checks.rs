//! Checks that many kinds share.

use serde_json::Value;

use super::labels;
use super::names;
use super::path::Path;
use crate::json::{int, list, list_mut, present, text};
use crate::status::StatusCause;

/// The error for a negative number.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const IMMUTABLE: &str = "field is immutable";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
     regex used for validation is '[0-9]+%')";
const REASON_LENGTH: usize = 1024;
const MESSAGE_LENGTH: usize = 32768;

/// Rejects negative numbers in some fields.
pub(crate) fn not_negative(object: &Value, fields: &[&str], path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    for field in fields {
        if let Some(number) = int(object, field).filter(|number| *number < 0) {
            causes.push(path.child(field).invalid(number, NOT_NEGATIVE));
        }
    }
}

/// Rejects a number that exceeds another; a missing number counts as 0.
pub(crate) fn not_more_than(
    object: &Value,
    field: &str,
    limit: &str,
    why: &str,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let (number, limit) = (int(object, field).unwrap_or_default(), int(object, limit).unwrap_or_default());
    if number > limit {
        causes.push(path.child(field).invalid(number, why));
    }
}

/// Rejects the decrease of a number.
pub(crate) fn not_decremented(
    object: &Value,
    old: &Value,
    field: &str,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let (number, before) = (int(object, field).unwrap_or_default(), int(old, field).unwrap_or_default());
    if number < before {
        causes.push(path.child(field).invalid(number, "cannot be decremented"));
    }
}

/// Rejects the change of a field.
pub(crate) fn immutable(
    object: &Value,
    old: &Value,
    field: &str,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    if let Some(value) = changed(object, old, field) {
        causes.push(path.child(field).invalid(value.clone(), IMMUTABLE));
    }
}

/// The new value of a field that changes.
fn changed<'a>(object: &'a Value, old: &Value, field: &str) -> Option<&'a Value> {
    let value = object.get(field).unwrap_or(&Value::Null);
    (!same(value, old.get(field).unwrap_or(&Value::Null))).then_some(value)
}

/// Rejects the change of a top-level field.
pub(crate) fn immutable_root(object: &Value, old: &Value, field: &str, causes: &mut Vec<StatusCause>) {
    if let Some(value) = changed(object, old, field) {
        causes.push(Path::root(field).invalid(value.clone(), IMMUTABLE));
    }
}

/// The same for a field that upstream validates by a tag on its type: the error has no value.
pub(crate) fn immutable_by_tag(object: &Value, old: &Value, field: &str, causes: &mut Vec<StatusCause>) {
    if changed(object, old, field).is_some() {
        causes.push(Path::root(field).invalid(Value::Null, IMMUTABLE));
    }
}

/// Whether upstream considers two values equal: empty equals missing.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let left_only = left.iter().filter(|(key, _)| !right.contains_key(*key));
            let right_only = right.iter().filter(|(key, _)| !left.contains_key(*key));
            left_only.chain(right_only).all(|(_, value)| is_empty(value))
                && left.iter().all(|(key, value)| right.get(key).is_none_or(|other| same(value, other)))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        _ => left == right || is_empty(left) && is_empty(right),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Rejects a value that is not one of the supported ones. The error lists them in the order given.
pub(crate) fn one_of(
    object: &Value,
    field: &str,
    supported: &[&str],
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    one_of_here(present(object, field), supported, &path.child(field), causes);
}

/// The same for a field that is required.
pub(crate) fn required_one_of(
    object: &Value,
    field: &str,
    supported: &[&str],
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    match text(object, field) {
        "" => causes.push(path.child(field).required("")),
        value if supported.contains(&value) => {}
        value => causes.push(path.child(field).not_supported(value, supported)),
    }
}

/// The same for an optional value.
pub(crate) fn one_of_here(
    value: Option<&Value>,
    supported: &[&str],
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    if let Some(value) = value.and_then(Value::as_str)
        && !supported.contains(&value)
    {
        causes.push(path.not_supported(value, supported));
    }
}

/// A non-negative number, or a percentage.
pub(crate) fn int_or_percent(value: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    match value {
        Value::String(text) if percentage(text).is_none() => {
            causes.push(path.invalid(text.as_str(), PERCENT));
        }
        Value::Number(number) if number.as_i64().is_some_and(|number| number < 0) => {
            causes.push(path.invalid(value.clone(), NOT_NEGATIVE));
        }
        _ => {}
    }
}

/// A percentage must not exceed 100.
pub(crate) fn at_most_all(value: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if value.as_str().and_then(percentage).is_some_and(|percent| percent > 100) {
        causes.push(path.invalid(value.clone(), "must not be greater than 100%"));
    }
}

/// The number, or the number of percents.
pub(crate) fn number_of(value: &Value) -> i64 {
    match value {
        Value::String(text) => percentage(text).unwrap_or_else(|| text.parse().unwrap_or_default()),
        _ => value.as_i64().unwrap_or_default(),
    }
}

fn percentage(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// Conditions in the form of upstream's `metav1.Condition`.
pub(crate) fn check_conditions(object: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let path = path.child("conditions");
    let conditions = list(object, "conditions");
    for (i, condition) in conditions.iter().enumerate() {
        let path = path.index(i);
        let kind = text(condition, "type");
        labels::check_key(kind, &path.child("type"), causes);
        if conditions[..i].iter().any(|other| text(other, "type") == kind) {
            causes.push(path.child("type").duplicate(kind));
        }
        one_of(condition, "status", &["False", "True", "Unknown"], &path, causes);
        not_negative(condition, &["observedGeneration"], &path, causes);
        if present(condition, "lastTransitionTime").is_none() {
            causes.push(path.child("lastTransitionTime").required(""));
        }
        check_reason(text(condition, "reason"), &path.child("reason"), causes);
        if text(condition, "message").len() > MESSAGE_LENGTH {
            causes.push(path.child("message").too_long(MESSAGE_LENGTH));
        }
    }
}

fn check_reason(reason: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    const FORMAT: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
         alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or \
         'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
         '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
    let bytes = reason.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        causes.push(path.required(""));
        return;
    };
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b':');
    let is_sound = first.is_ascii_alphabetic()
        && (last.is_ascii_alphanumeric() || *last == b'_')
        && bytes.iter().all(is_inner);
    if !is_sound {
        causes.push(path.invalid(reason, FORMAT));
    }
    if reason.len() > REASON_LENGTH {
        causes.push(path.too_long(REASON_LENGTH));
    }
}

/// An optional name of a class.
pub(crate) fn check_class_name(object: &Value, field: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let name = text(object, field);
    if !name.is_empty() {
        path.child(field).invalid_all(name, names::dns1123_subdomain(name), causes);
    }
}

/// The name of a CSI driver.
pub(crate) fn check_driver_name(object: &Value, field: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (name, path) = (text(object, field), path.child(field));
    if name.is_empty() {
        causes.push(path.required(""));
        return;
    }
    if name.len() > 63 {
        causes.push(path.too_long(63));
    }
    path.invalid_all(name, names::dns1123_subdomain(&name.to_lowercase()), causes);
}

/// An error that shows a value of one of upstream's internal types, whose fields are capitalised
/// and ordered.
pub(crate) fn invalid_shown(path: &Path<'_>, shown: &str, detail: &str) -> StatusCause {
    StatusCause {
        reason: "FieldValueInvalid",
        message: format!("Invalid value: {shown}: {detail}"),
        field: path.to_string(),
    }
}

/// The same for an unsupported value.
pub(crate) fn not_supported_shown(path: &Path<'_>, shown: &str, supported: &[&str]) -> StatusCause {
    let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    StatusCause {
        reason: "FieldValueNotSupported",
        message: format!("Unsupported value: {shown}: supported values: {}", supported.join(", ")),
        field: path.to_string(),
    }
}

/// The same for a duplicate.
pub(crate) fn duplicate_shown(path: &Path<'_>, shown: &str) -> StatusCause {
    StatusCause {
        reason: "FieldValueDuplicate",
        message: format!("Duplicate value: {shown}"),
        field: path.to_string(),
    }
}

/// An error that shows no value.
pub(crate) fn invalid_omitted(path: &Path<'_>, detail: &str) -> StatusCause {
    StatusCause {
        reason: "FieldValueInvalid",
        message: format!("Invalid value: {detail}"),
        field: path.to_string(),
    }
}

/// An error for too many items.
pub(crate) fn too_many(path: &Path<'_>, count: usize, limit: usize) -> StatusCause {
    StatusCause {
        reason: "FieldValueTooMany",
        message: format!(
            "Too many: {count}: must have at most {limit} {}",
            if limit == 1 { "item" } else { "items" }
        ),
        field: path.to_string(),
    }
}

/// Formats an object like upstream's internal types: fields in order, under their Go names.
pub(crate) fn shown(object: &Value, fields: &[(&str, &str, Shown)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, field, kind)| {
            let value = present(object, field);
            let value = value.map_or_else(|| kind.nothing().to_owned(), Value::to_string);
            format!("{name:?}:{value}")
        })
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// How a missing field is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    /// `null`: pointers, lists and maps.
    Null,
    /// `""`.
    Text,
    /// `0`.
    Number,
}

impl Shown {
    fn nothing(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Text => "\"\"",
            Self::Number => "0",
        }
    }
}

/// Sets missing fields of list items to null, where upstream writes null.
pub(crate) fn nulls(object: &mut Value, field: &str, fields: &[&str]) {
    for item in list_mut(object, field) {
        let Some(item) = item.as_object_mut() else { continue };
        for field in fields {
            item.entry(*field).or_insert(Value::Null);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_equals_missing() {
        assert!(same(&json!({"a": {}, "b": 1}), &json!({"b": 1, "c": [], "d": null})));
        assert!(!same(&json!({"a": 0}), &json!({})));
        assert!(!same(&json!({"a": [1]}), &json!({"a": [2]})));
        assert!(same(&json!([{"x": []}]), &json!([{}])));
    }

    #[test]
    fn percentage_counts_as_its_number() {
        assert_eq!(number_of(&json!("25%")), 25);
        assert_eq!(number_of(&json!(3)), 3);
        assert_eq!(number_of(&json!("%")), 0);
        let mut causes = Vec::new();
        for value in [json!("x"), json!("%"), json!(-1)] {
            int_or_percent(&value, &Path::root("n"), &mut causes);
        }
        at_most_all(&json!("101%"), &Path::root("n"), &mut causes);
        assert_eq!(causes.len(), 4);
    }

    #[test]
    fn internal_types_are_shown_with_all_their_fields() {
        let fields = [("Type", "type", Shown::Text), ("RollingUpdate", "rollingUpdate", Shown::Null)];
        assert_eq!(shown(&json!({"type": "Bad"}), &fields), r#"{"Type":"Bad","RollingUpdate":null}"#);
    }
}

//! Validates the types of values, with upstream's errors.

use std::collections::BTreeSet;

use serde_json::Value;

use super::types::{Atom, ListType, Relation, ScalarKind, TypeRef};
use crate::patch::fields::PathElement;
use crate::patch::golang::{Shown, go_syntax, type_name};

/// Validates an object. The error text contains all errors.
pub(in crate::patch) fn validate(value: &Value, type_ref: TypeRef) -> Result<(), String> {
    let mut errors = Vec::new();
    check(value, type_ref, "", &mut errors);
    match errors.as_slice() {
        [] => Ok(()),
        [error] => Err(error.clone()),
        errors => Err(format!("errors:\n  {}", errors.join("\n  "))),
    }
}

fn check(value: &Value, type_ref: TypeRef, path: &str, errors: &mut Vec<String>) {
    let mut wrong = |why: String| {
        errors.push(if path.is_empty() { why } else { format!("{path}: {why}") });
    };
    match (type_ref.atom(Some(value)), value) {
        (_, Value::Null) => {}
        (Atom::Scalar(kind), value) => {
            if let Some(why) = not_a(kind, value) {
                wrong(why);
            }
        }
        (Atom::List(list), Value::Array(items)) => check_items(items, list, path, errors),
        (Atom::Map(map), Value::Object(fields)) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                let Some(type_ref) = map.field(name) else {
                    errors.push(format!("{path}: field not declared in schema"));
                    return;
                };
                check(value, type_ref, &path, errors);
            }
        }
        (Atom::List(_), value) => wrong(format!("expected list, got &{{{}}}", Shown::value(value))),
        (Atom::Map(_), value) => {
            wrong(format!("expected map, got &{{{}}}", Shown::value(value)));
        }
    }
}

fn check_items(items: &[Value], list: ListType, path: &str, errors: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, item) in (0..).zip(items) {
        let step = if matches!(list.relation, Relation::Atomic) {
            PathElement::Index(index)
        } else {
            match list.step(item) {
                Ok(step) => {
                    if seen.contains(&step) {
                        errors.push(format!("{path}: duplicate entries for key {step}"));
                    }
                    seen.insert(step.clone());
                    step
                }
                Err(why) => {
                    errors.push(format!("{path}: element {index}: {why}"));
                    return;
                }
            }
        };
        check(item, list.element, &format!("{path}{step}"), errors);
    }
}

fn not_a(kind: ScalarKind, value: &Value) -> Option<String> {
    let shown = Shown::value(value);
    match (kind, value) {
        (ScalarKind::Numeric, Value::Number(_))
        | (ScalarKind::String, Value::String(_))
        | (ScalarKind::Boolean, Value::Bool(_))
        | (ScalarKind::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (ScalarKind::Numeric, value) => {
            Some(format!("expected numeric (int or float), got {}", type_name(value)))
        }
        (ScalarKind::String, value) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)))
        }
        (ScalarKind::Boolean, _) => Some(format!("expected boolean, got &{{{shown}}}")),
        (ScalarKind::Untyped, _) => Some(format!("expected any scalar, got &{{{shown}}}")),
    }
}

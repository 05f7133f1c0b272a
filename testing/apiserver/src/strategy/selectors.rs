//! Node selectors.

use serde_json::Value;

use super::labels;
use super::names;
use super::path::Path;
use crate::json::{int, list, text, texts};
use crate::status::StatusCause;

/// A node selector: at least one term must match. `strict` also validates the values of labels.
pub(crate) fn check_node_selector(
    selector: &Value,
    strict: bool,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let terms = list(selector, "nodeSelectorTerms");
    let path = path.child("nodeSelectorTerms");
    if terms.is_empty() {
        causes.push(path.required("must have at least one node selector term"));
    }
    for (i, term) in terms.iter().enumerate() {
        check_term(term, strict, &path.index(i), causes);
    }
}

/// Weighted terms for preferred nodes.
pub(crate) fn check_preferences(terms: &[Value], path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    for (i, term) in terms.iter().enumerate() {
        let path = path.index(i);
        check_weight(term, &path, causes);
        // Upstream does not validate the values here, because other terms may still match.
        check_term(term.get("preference").unwrap_or(&Value::Null), false, &path.child("preference"), causes);
    }
}

/// The weight of a preference.
pub(crate) fn check_weight(term: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let weight = int(term, "weight").unwrap_or_default();
    if !(1..=100).contains(&weight) {
        causes.push(path.child("weight").invalid(weight, "must be in the range 1-100"));
    }
}

fn check_term(term: &Value, strict: bool, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let expressions = path.child("matchExpressions");
    for (i, requirement) in list(term, "matchExpressions").iter().enumerate() {
        check_requirement(requirement, strict, &expressions.index(i), causes);
    }
    let fields = path.child("matchFields");
    for (i, requirement) in list(term, "matchFields").iter().enumerate() {
        check_field_requirement(requirement, &fields.index(i), causes);
    }
}

fn check_requirement(requirement: &Value, strict: bool, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (operator, values) = (text(requirement, "operator"), path.child("values"));
    let count = list(requirement, "values").len();
    match operator {
        "In" | "NotIn" if count == 0 => {
            causes.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if count > 0 => {
            causes
                .push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
        }
        "Gt" | "Lt" if count != 1 => {
            causes.push(values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        _ => causes.push(path.child("operator").invalid(operator, "not a valid selector operator")),
    }
    labels::check_key(text(requirement, "key"), &path.child("key"), causes);
    if strict {
        for (i, value) in texts(requirement, "values").enumerate() {
            values.index(i).invalid_all(value, labels::value(value), causes);
        }
    }
}

fn check_field_requirement(requirement: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (operator, key) = (text(requirement, "operator"), text(requirement, "key"));
    let values = path.child("values");
    match operator {
        "In" | "NotIn" if list(requirement, "values").len() != 1 => {
            let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            causes.push(values.required(why));
        }
        "In" | "NotIn" => {}
        _ => causes.push(path.child("operator").invalid(operator, "not a valid selector operator")),
    }
    if key == "metadata.name" {
        for (i, name) in texts(requirement, "values").enumerate() {
            values.index(i).invalid_all(name, names::dns1123_subdomain(name), causes);
        }
    } else {
        causes.push(path.child("key").invalid(key, "not a valid field selector key"));
    }
}

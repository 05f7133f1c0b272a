//! The system fields of a new pod, and the fields derived from others.

use serde_json::{Value, json};

use super::{conditions, disabled, pod_level, requests};
use crate::json::{list, list_mut, present, texts};

/// Sets the status and generation of a new pod, and completes selectors from its labels.
pub(super) fn prepare(pod: &mut Value) {
    if !pod.is_object() {
        return;
    }
    if let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) {
        pod_level::complete(spec);
    }
    let class = requests::quality_of_service(pod.get("spec").unwrap_or(&Value::Null));
    pod["status"] = json!({"phase": "Pending", "qosClass": class});
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("generation".to_owned(), 1.into());
    }
    let null = Value::Null;
    let labels = pod.pointer("/metadata/labels").unwrap_or(&null).clone();
    let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    complete_selectors(spec, &labels);
    disabled::drop(spec);
}

/// Sets the condition of a gated pod.
pub(super) fn stamp(pod: &mut Value, now: &str) {
    if pod.get("spec").is_some_and(|spec| !list(spec, "schedulingGates").is_empty()) {
        let message = "Scheduling is blocked due to non-empty scheduling gates";
        conditions::set(pod, "PodScheduled", "False", ("SchedulingGated", message), now);
    }
}

fn complete_selectors(spec: &mut Value, labels: &Value) {
    for constraint in list_mut(spec, "topologySpreadConstraints") {
        complete(constraint, labels);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.get_mut("affinity").and_then(|affinity| affinity.get_mut(kind)) else {
            continue;
        };
        for term in list_mut(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = term.get_mut("podAffinityTerm") {
                complete(term, labels);
            }
        }
        for term in list_mut(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
            complete(term, labels);
        }
    }
}

/// Adds requirements to the selector for the labels that other pods must, or must not, share with
/// this one.
fn complete(term: &mut Value, labels: &Value) {
    if present(term, "labelSelector").is_none() {
        return;
    }
    let required = |field, operator| {
        let of = move |key: &str| {
            let value = labels.get(key)?;
            Some(json!({"key": key, "operator": operator, "values": [value]}))
        };
        texts(term, field).filter_map(of).collect::<Vec<Value>>()
    };
    let mut more = required("matchLabelKeys", "In");
    more.extend(required("mismatchLabelKeys", "NotIn"));
    if more.is_empty() {
        return;
    }
    let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
    let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
    if let Some(expressions) = expressions.as_array_mut() {
        expressions.extend(more);
    } else {
        *expressions = more.into();
    }
}

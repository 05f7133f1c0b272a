//! Updates of pods.

use serde_json::Value;

use super::super::path::Path;
use super::super::taints;
use super::{admit, containers, difference, disabled, validate};
use crate::json::{entries, int, list, list_mut, present, remove, restore, set_default, text};
use crate::status::StatusCause;

const SPEC: Path<'static> = Path::root("spec");
const CHANGEABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Restores the fields that the main resource cannot change, and counts changes of the spec.
pub(super) fn prepare(pod: &mut Value, old: &Value) {
    restore(pod, old, "status");
    let null = Value::Null;
    let before = old.get("spec").unwrap_or(&null);
    admit::tolerations(pod);
    if let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) {
        for field in ["priority", "preemptionPolicy"] {
            if let Some(own) = present(before, field) {
                set_default(spec, field, own.clone());
            }
        }
        keep_pod_level(spec, before);
        disabled::drop(spec);
    }
    count_change(pod, old);
}

/// Keeps pod-level resources that a client leaves out, because it may not know them.
pub(super) fn keep_pod_level(spec: &mut Value, before: &Value) {
    if present(spec, "resources").is_none() {
        restore(spec, before, "resources");
    }
}

/// Increases the generation if the spec changed.
pub(super) fn count_change(pod: &mut Value, old: &Value) {
    let null = Value::Null;
    let before = old.get("spec").unwrap_or(&null);
    let generation = old.get("metadata").and_then(|metadata| int(metadata, "generation")).unwrap_or_default();
    let is_same = same(pod.get("spec").unwrap_or(&null), before);
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        let generation = if is_same { generation } else { generation + 1 };
        metadata.insert("generation".to_owned(), generation.into());
    }
}

/// Validates a change of a pod.
pub(super) fn validate(pod: &Value, old: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    validate::metadata_and_spec(pod, &mut causes);
    let null = Value::Null;
    let (spec, before) = (pod.get("spec").unwrap_or(&null), old.get("spec").unwrap_or(&null));
    for field in ["containers", "initContainers"] {
        if !check_containers(spec, before, field, &mut causes) {
            return causes;
        }
    }
    if !check_deadline(spec, before, &mut causes) {
        return causes;
    }
    check_tolerations(spec, before, &mut causes);
    check_gates(spec, before, &mut causes);
    if same(spec, before) {
        return causes;
    }
    let munged = munge(spec, before, &mut causes);
    if !same(&munged, before) {
        let shown = difference::of(before, &munged);
        causes.push(SPEC.forbidden(&format!("{CHANGEABLE}\n{shown}")));
    }
    causes
}

/// Validates the containers. Returns whether to continue.
fn check_containers(spec: &Value, before: &Value, field: &str, causes: &mut Vec<StatusCause>) -> bool {
    let (own, path) = (list(spec, field), SPEC.child(field));
    if own.len() != list(before, field).len() {
        causes.push(path.forbidden("pod updates may not add or remove containers"));
        return false;
    }
    for (i, container) in own.iter().enumerate() {
        let path = path.index(i);
        if text(container, "image").is_empty() {
            causes.push(path.child("image").required(""));
        }
        containers::check_image_whitespace(container, &path, causes);
    }
    true
}

fn check_deadline(spec: &Value, before: &Value, causes: &mut Vec<StatusCause>) -> bool {
    const FIELD: &str = "activeDeadlineSeconds";
    let path = SPEC.child(FIELD);
    match (int(spec, FIELD), int(before, FIELD)) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            causes.push(path.invalid(new, "must be between 0 and 2147483647, inclusive"));
            false
        }
        (Some(new), Some(old)) if old < new => {
            causes.push(path.invalid(new, "must be less than or equal to previous value"));
            false
        }
        (None, Some(_)) => {
            let why = "must not update from a positive integer to nil value";
            causes.push(path.invalid(Value::Null, why));
            true
        }
        _ => true,
    }
}

/// Tolerations may be added, and their duration changed.
fn check_tolerations(spec: &Value, before: &Value, causes: &mut Vec<StatusCause>) {
    let lasting = |toleration: &Value| {
        let mut kept = toleration.clone();
        remove(&mut kept, "tolerationSeconds");
        kept
    };
    let own: Vec<Value> = list(spec, "tolerations").iter().map(lasting).collect();
    if list(before, "tolerations").iter().any(|old| !own.iter().any(|new| same(new, &lasting(old)))) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        causes.push(SPEC.child("tolerations").forbidden(why));
        return;
    }
    taints::check_tolerations(spec, "tolerations", &SPEC, causes);
}

/// Scheduling gates may only be removed.
fn check_gates(spec: &Value, before: &Value, causes: &mut Vec<StatusCause>) {
    let path = SPEC.child("schedulingGates");
    let mut refused: Vec<&str> = Vec::new();
    let gates = list(spec, "schedulingGates");
    for gate in gates {
        let name = text(gate, "name");
        let is_known = list(before, "schedulingGates").iter().any(|known| text(known, "name") == name);
        if is_known || refused.contains(&name) {
            continue;
        }
        refused.push(name);
        let at = gates.iter().rposition(|other| text(other, "name") == name).unwrap_or_default();
        let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
        causes.push(path.index(at).child("name").forbidden(&why));
    }
}

/// The new spec with all mutable fields restored. Any remaining difference is an error.
fn munge(spec: &Value, before: &Value, causes: &mut Vec<StatusCause>) -> Value {
    let mut munged = spec.clone();
    for field in ["containers", "initContainers"] {
        for (container, known) in list_mut(&mut munged, field).iter_mut().zip(list(before, field)) {
            restore(container, known, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(&mut munged, before, field);
    }
    const GRACE: &str = "terminationGracePeriodSeconds";
    if int(before, GRACE).is_some_and(|grace| grace < 0) && int(spec, GRACE) == Some(1) {
        restore(&mut munged, before, GRACE);
    }
    if !list(before, "schedulingGates").is_empty() {
        munge_gated(&mut munged, before, causes);
    }
    munged
}

/// The node affinity of a gated pod may only become stricter.
fn munge_gated(munged: &mut Value, before: &Value, causes: &mut Vec<StatusCause>) {
    let null = Value::Null;
    let selector = munged.get("nodeSelector").unwrap_or(&null);
    if !same(selector, before.get("nodeSelector").unwrap_or(&null)) {
        let is_kept = |(key, value): (&str, &Value)| selector.get(key) == Some(value);
        if !entries(before, "nodeSelector").all(is_kept) {
            let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            causes.push(SPEC.child("nodeSelector").invalid(selector.clone(), why));
        }
        restore(munged, before, "nodeSelector");
    }
    let node_affinity =
        |spec: &'_ Value| spec.get("affinity").and_then(|own| present(own, "nodeAffinity")).cloned();
    let (new, old) = (node_affinity(munged), node_affinity(before));
    if same(new.as_ref().unwrap_or(&null), old.as_ref().unwrap_or(&null)) {
        return;
    }
    check_node_affinity(new.as_ref(), old.as_ref(), causes);
    match (munged.get_mut("affinity").filter(|own| own.is_object()), old) {
        (None, None) => {}
        (None, Some(old)) => munged["affinity"] = serde_json::json!({"nodeAffinity": old}),
        (Some(own), old) => {
            let is_alone =
                ["podAffinity", "podAntiAffinity"].into_iter().all(|field| present(own, field).is_none());
            match old {
                Some(old) => own["nodeAffinity"] = old,
                None => remove(own, "nodeAffinity"),
            }
            if is_alone && present(before, "affinity").is_none() {
                remove(munged, "affinity");
            }
        }
    }
}

fn check_node_affinity(new: Option<&Value>, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    let null = Value::Null;
    let terms = |affinity: Option<&Value>| -> Vec<Value> {
        let required = affinity.and_then(|affinity| present(affinity, REQUIRED)).unwrap_or(&null);
        list(required, "nodeSelectorTerms").to_vec()
    };
    let (new, old) = (terms(new), terms(old));
    let affinity = SPEC.child("affinity");
    let node_affinity = affinity.child("nodeAffinity");
    let required = node_affinity.child(REQUIRED);
    let path = required.child("nodeSelectorTerms");
    if !old.is_empty() && old.len() != new.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        causes.push(invalid_terms(&new, &path, why));
        return;
    }
    for (i, (new, old)) in new.iter().zip(&old).enumerate() {
        if !only_adds(new, old) {
            let shown = shown_term(new);
            causes.push(StatusCause {
                reason: "FieldValueInvalid",
                message: format!(
                    "Invalid value: {shown}: only additions are allowed (no mutations or deletions)"
                ),
                field: path.index(i).to_string(),
            });
        }
    }
}

fn only_adds(new: &Value, old: &Value) -> bool {
    let fields = ["matchExpressions", "matchFields"];
    let is_empty = |term: &Value| fields.into_iter().all(|field| list(term, field).is_empty());
    if is_empty(old) {
        return is_empty(new);
    }
    fields.into_iter().all(|field| {
        let (new, old) = (list(new, field), list(old, field));
        new.len() >= old.len() && new.iter().zip(old).all(|(new, old)| same(new, old))
    })
}

fn invalid_terms(terms: &[Value], path: &Path<'_>, why: &str) -> StatusCause {
    let shown: Vec<String> = terms.iter().map(shown_term).collect();
    let shown = if terms.is_empty() { "null".to_owned() } else { format!("[{}]", shown.join(",")) };
    StatusCause {
        reason: "FieldValueInvalid",
        message: format!("Invalid value: {shown}: {why}"),
        field: path.to_string(),
    }
}

/// Upstream shows a term as its internal type, with that type's field names and order.
fn shown_term(term: &Value) -> String {
    let requirements = |field: &str| {
        if list(term, field).is_empty() {
            return "null".to_owned();
        }
        let shown = |requirement: &Value| {
            format!(
                r#"{{"Key":{},"Operator":{},"Values":{}}}"#,
                Value::from(text(requirement, "key")),
                Value::from(text(requirement, "operator")),
                requirement.get("values").unwrap_or(&Value::Null),
            )
        };
        let all: Vec<String> = list(term, field).iter().map(shown).collect();
        format!("[{}]", all.join(","))
    };
    format!(
        r#"{{"MatchExpressions":{},"MatchFields":{}}}"#,
        requirements("matchExpressions"),
        requirements("matchFields")
    )
}

/// Whether two values are equal, with empty equal to missing.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let is_kept = |(key, value): (&String, &Value)| {
                other.get(key).map_or_else(|| is_empty(value), |found| same(value, found))
            };
            let is_known = |(key, value): (&String, &Value)| one.contains_key(key) || is_empty(value);
            one.iter().all(is_kept) && other.iter().all(is_known)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Null, value) | (value, Value::Null) => is_empty(value),
        _ => one == other,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

//! The pod template of a workload, and the selector for its pods.

use serde_json::{Value, json};

use super::super::path::Path;
use super::super::{labels, pod};
use crate::json::{list, list_mut, object_mut, present, restore, set_default, text};
use crate::status::StatusCause;

/// Fills in the defaults of a template in a field.
pub(crate) fn default(object: &mut Value, field: &str) {
    if object_mut(object, field).is_none() {
        return;
    }
    let template = &mut object[field];
    for field in ["metadata", "spec"] {
        object_mut(template, field);
    }
    if let Some(metadata) = template["metadata"].as_object_mut() {
        metadata.retain(|_, value| !value.is_null());
    }
    pod::defaults::pod_spec(&mut template["spec"]);
}

/// Drops the fields of a template whose feature gates are off by default.
pub(crate) fn drop_disabled(object: &mut Value, field: &str) {
    if let Some(spec) = object.get_mut(field).and_then(|template| template.get_mut("spec")) {
        pod::disabled::drop(spec);
    }
}

/// Validates a template.
pub(crate) fn check(template: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let metadata = &template["metadata"];
    labels::check_labels(metadata, "labels", path, causes);
    labels::check_annotations(metadata, "annotations", path, causes);
    let (spec, path) = (&template["spec"], path.child("spec"));
    pod::validate::spec(spec, pod::spec::SpecOwner { pod: None }, &path, causes);
    if !list(spec, "ephemeralContainers").is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        causes.push(path.child("ephemeralContainers").forbidden(why));
    }
}

/// Validates a template whose pods must restart always.
pub(crate) fn check_lasting(template: &Value, owner: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (spec, path) = (&template["spec"], path.child("spec"));
    let policy = text(spec, "restartPolicy");
    if policy != "Always" {
        causes.push(path.child("restartPolicy").not_supported(policy, &["Always"]));
    }
    if present(spec, "activeDeadlineSeconds").is_some() {
        let why = format!("activeDeadlineSeconds in {owner} is not Supported");
        causes.push(path.child("activeDeadlineSeconds").forbidden(&why));
    }
}

/// The selector must match the labels of the template.
pub(crate) fn check_selected(
    template: &Value,
    selector: &Value,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let labels = template["metadata"].get("labels").unwrap_or(&Value::Null);
    let selects = !selector.is_null() && labels::selects(selector, labels);
    if !selects {
        let path = path.child("metadata");
        let why = "`selector` does not match template `labels`";
        causes.push(path.child("labels").invalid(labels.clone(), why));
    }
}

/// Validates a required selector, which must not be empty. Returns whether it is valid.
pub(crate) fn check_selector(
    spec: &Value,
    owner: &str,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) -> bool {
    let path = path.child("selector");
    let Some(selector) = present(spec, "selector") else {
        causes.push(path.required(""));
        return true;
    };
    check_given_selector(selector, owner, &path, causes)
}

/// The same for an optional selector.
pub(crate) fn check_given_selector(
    selector: &Value,
    owner: &str,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) -> bool {
    labels::check_selector(selector, path, causes);
    if is_empty(selector) {
        causes.push(path.invalid(selector.clone(), &format!("empty selector is invalid for {owner}")));
    }
    is_sound(selector)
}

/// Whether a label selector is valid or missing.
pub(crate) fn is_sound(selector: &Value) -> bool {
    let mut causes = Vec::new();
    labels::check_selector(selector, &Path::root("selector"), &mut causes);
    causes.is_empty()
}

/// Whether a label selector matches everything.
pub(crate) fn is_empty(selector: &Value) -> bool {
    let has_labels =
        present(selector, "matchLabels").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    !has_labels && list(selector, "matchExpressions").is_empty()
}

/// Copies the scheduling directives, the only mutable part of a suspended job's template.
pub(crate) fn take_scheduling_directives(template: &Value, old: &mut Value) {
    for field in ["metadata", "spec"] {
        object_mut(old, field);
    }
    if !old.is_object() {
        return;
    }
    for field in ["labels", "annotations"] {
        restore(&mut old["metadata"], &template["metadata"], field);
    }
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        restore(&mut old["spec"], &template["spec"], field);
    }
    let affinity = template.pointer("/spec/affinity/nodeAffinity").cloned().unwrap_or_default();
    if !affinity.is_null() || present(&old["spec"], "affinity").is_some() {
        set_default(&mut old["spec"], "affinity", json!({}));
        old["spec"]["affinity"]["nodeAffinity"] = affinity;
    }
}

/// Copies the resources, which may change in the template of a suspended job.
pub(crate) fn take_resources(template: &Value, old: &mut Value) {
    for field in ["containers", "initContainers"] {
        let containers = list(&template["spec"], field);
        let Some(spec) = old.get_mut("spec") else { return };
        let before = list_mut(spec, field);
        if before.len() != containers.len() {
            continue;
        }
        for (before, container) in before.iter_mut().zip(containers) {
            if text(before, "name") == text(container, "name") {
                restore(before, container, "resources");
            }
        }
    }
}

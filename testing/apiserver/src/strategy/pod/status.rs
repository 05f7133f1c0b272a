//! Changes of a pod's status.

use serde_json::Value;

use super::super::labels;
use super::super::names;
use super::super::path::Path;
use super::disabled;
use crate::json::{int, list, list_mut, present, remove, restore, text, text_at};
use crate::status::StatusCause;

const STATUS: Path<'static> = Path::root("status");

/// Restores everything that the status subresource cannot change.
pub(super) fn prepare(pod: &mut Value, old: &Value) {
    restore(pod, old, "spec");
    if let Some(metadata) = pod.get_mut("metadata") {
        let old = old.get("metadata").unwrap_or(&Value::Null);
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "generation"] {
            restore(metadata, old, field);
        }
    }
    let null = Value::Null;
    let before = old.get("status").unwrap_or(&null);
    let Some(status) = pod.get_mut("status").filter(|status| status.is_object()) else { return };
    disabled::drop_of_status(status);
    // A client that does not know them leaves them out.
    for field in
        ["resourceClaimStatuses", "extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses"]
    {
        if present(status, field).is_none() {
            restore(status, before, field);
        }
    }
    if text(status, "qosClass").is_empty() {
        restore(status, before, "qosClass");
    }
    if int(status, "observedGeneration").unwrap_or_default() == 0 {
        restore(status, before, "observedGeneration");
    }
    for condition in list_mut(status, "conditions") {
        // Upstream writes these even if they are unknown.
        for field in ["lastProbeTime", "lastTransitionTime"] {
            if let Some(fields) = condition.as_object_mut() {
                fields.entry(field).or_insert(Value::Null);
            }
        }
        if int(condition, "observedGeneration").unwrap_or_default() == 0 {
            let kind = text(condition, "type").to_owned();
            let known = list(before, "conditions").iter().find(|known| text(known, "type") == kind);
            match known {
                Some(known) => restore(condition, known, "observedGeneration"),
                None => remove(condition, "observedGeneration"),
            }
        }
    }
}

/// Validates a change of the status.
pub(super) fn validate(pod: &Value, old: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let null = Value::Null;
    let (status, before) = (pod.get("status").unwrap_or(&null), old.get("status").unwrap_or(&null));
    conditions(status, &mut causes);
    let nominated = text(status, "nominatedNodeName");
    if nominated != text(before, "nominatedNodeName") && !nominated.is_empty() {
        let path = STATUS.child("nominatedNodeName");
        path.invalid_all(nominated, names::dns1123_subdomain(nominated), &mut causes);
        if !text_at(old, "/spec/nodeName").is_empty() {
            causes.push(path.forbidden("may not be set on pods that are already bound to a node"));
        }
    }
    if let Some(generation) = int(status, "observedGeneration").filter(|generation| *generation < 0) {
        let path = STATUS.child("observedGeneration");
        causes.push(path.invalid(generation, "must be a non-negative integer"));
    }
    let class = text(status, "qosClass");
    if class != text(before, "qosClass") {
        causes.push(STATUS.child("qosClass").invalid(class, "field is immutable"));
    }
    for (field, containers) in
        [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")]
    {
        transitions(status, before, old.get("spec").unwrap_or(&null), (field, containers), &mut causes);
    }
    causes
}

fn conditions(status: &Value, causes: &mut Vec<StatusCause>) {
    let path = STATUS.child("conditions");
    for (i, condition) in list(status, "conditions").iter().enumerate() {
        let (kind, path) = (text(condition, "type"), path.index(i));
        if let Some(generation) = int(condition, "observedGeneration").filter(|generation| *generation < 0) {
            let path = path.child("observedGeneration");
            causes.push(path.invalid(generation, "must be a non-negative integer"));
        }
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            // Upstream's path is capitalised here.
            labels::check_key(kind, &path.child("Type"), causes);
        }
    }
}

/// Rejects the restart of terminated containers that must not restart.
fn transitions(
    status: &Value,
    before: &Value,
    spec: &Value,
    (field, containers): (&str, &str),
    causes: &mut Vec<StatusCause>,
) {
    let path = STATUS.child(field);
    for known in list(before, field) {
        let name = text(known, "name");
        let Some(ended) = known.pointer("/state/terminated").filter(|state| state.is_object()) else {
            continue;
        };
        let container = list(spec, containers).iter().find(|container| text(container, "name") == name);
        let own = container.map_or("", |container| text(container, "restartPolicy"));
        let has_rules = container.is_some_and(|own| !list(own, "restartPolicyRules").is_empty());
        let policy = match own {
            "" if containers == "initContainers" && text(spec, "restartPolicy") == "Always" => "OnFailure",
            "" => text(spec, "restartPolicy"),
            own => own,
        };
        let failed = int(ended, "exitCode").unwrap_or_default() != 0;
        if has_rules || policy == "Always" || (policy == "OnFailure" && failed) {
            continue;
        }
        let new = list(status, field).iter().enumerate().find(|(_, new)| text(new, "name") == name);
        let goes_on = new.filter(|(_, new)| !new.pointer("/state/terminated").is_some_and(Value::is_object));
        if let Some((i, _)) = goes_on {
            let path = path.index(i);
            let why = "may not be transitioned to non-terminated state";
            causes.push(path.child("state").forbidden(why));
        }
    }
}

//! Subresources that change the containers of a pod: resize and ephemeral containers.

use serde_json::Value;

use super::super::path::Path;
use super::update::{count_change, keep_pod_level, same};
use super::{difference, disabled, pod_level, requests, spec, validate};
use crate::json::{entries, list, list_mut, present, restore, text, text_at};
use crate::status::StatusCause;

const SPEC: Path<'static> = Path::root("spec");
/// Upstream's notation for a missing path.
const NOWHERE: Path<'static> = Path::root("[]");
const KINDS: [&str; 2] = ["containers", "initContainers"];
const METADATA: [&str; 7] = [
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
];

/// Restores everything that `pods/resize` cannot change.
pub(crate) fn prepare(pod: &mut Value, old: &Value) {
    let null = Value::Null;
    let before = old.get("spec").unwrap_or(&null);
    let has_all = KINDS.into_iter().all(|kind| {
        let own = pod.get("spec").map_or(0, |spec| list(spec, kind).len());
        own == list(before, kind).len()
    });
    // Otherwise the validation reports the error.
    if has_all && before.is_object() {
        let mut spec = before.clone();
        let wanted = pod.get("spec").unwrap_or(&null);
        restore(&mut spec, wanted, "resources");
        keep_pod_level(&mut spec, before);
        for kind in KINDS {
            let is_known = |(own, old): (&Value, &Value)| text(own, "name") == text(old, "name");
            if !list(wanted, kind).iter().zip(list(before, kind)).all(is_known) {
                restore(&mut spec, wanted, kind);
                continue;
            }
            for (container, wanted) in list_mut(&mut spec, kind).iter_mut().zip(list(wanted, kind)) {
                restore(container, wanted, "resources");
                restore(container, wanted, "resizePolicy");
            }
        }
        pod_level::complete(&mut spec);
        pod["spec"] = spec;
        restore_rest(pod, old);
    }
    finish(pod, old);
}

/// Restores everything that `pods/ephemeralcontainers` cannot change.
pub(crate) fn prepare_ephemeral(pod: &mut Value, old: &Value) {
    let mut spec = old.get("spec").cloned().unwrap_or_default();
    if spec.is_object() && pod.is_object() {
        restore(&mut spec, pod.get("spec").unwrap_or(&Value::Null), "ephemeralContainers");
        pod["spec"] = spec;
    }
    restore_rest(pod, old);
    finish(pod, old);
}

fn restore_rest(pod: &mut Value, old: &Value) {
    restore(pod, old, "status");
    if let (Some(metadata), Some(old)) = (pod.get_mut("metadata"), old.get("metadata")) {
        for field in METADATA {
            restore(metadata, old, field);
        }
    }
}

fn finish(pod: &mut Value, old: &Value) {
    if let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) {
        disabled::drop(spec);
    }
    count_change(pod, old);
}

/// Validates a change of the ephemeral containers.
pub(crate) fn validate_ephemeral(pod: &Value, old: &Value) -> Vec<StatusCause> {
    const FIELD: &str = "ephemeralContainers";
    if spec::is_mirror(old) {
        return vec![NOWHERE.forbidden("static pods do not support ephemeral containers")];
    }
    let mut causes = Vec::new();
    validate::metadata_and_spec(pod, &mut causes);
    let null = Value::Null;
    let (spec, before) = (pod.get("spec").unwrap_or(&null), old.get("spec").unwrap_or(&null));
    let path = SPEC.child(FIELD);
    for known in list(before, FIELD) {
        let name = text(known, "name");
        let why = match list(spec, FIELD).iter().rfind(|own| text(own, "name") == name) {
            None => format!("existing ephemeral containers {name:?} may not be removed\n"),
            Some(own) if !same(own, known) => {
                let shown = difference::of(known, own);
                format!("existing ephemeral containers {name:?} may not be changed\n{shown}")
            }
            Some(_) => continue,
        };
        causes.push(path.forbidden(&why));
    }
    causes
}

/// Validates a change of the containers' resources.
pub(crate) fn validate(pod: &Value, old: &Value) -> Vec<StatusCause> {
    let null = Value::Null;
    let (spec, before) = (pod.get("spec").unwrap_or(&null), old.get("spec").unwrap_or(&null));
    if spec::is_mirror(old) {
        return vec![NOWHERE.forbidden("static pods cannot be resized")];
    }
    if text_at(old, "/spec/os/name") == "windows" {
        return vec![NOWHERE.forbidden("windows pods cannot be resized")];
    }
    let mut causes = Vec::new();
    validate::metadata_and_spec(pod, &mut causes);
    let class = match text_at(old, "/status/qosClass") {
        "" => requests::quality_of_service(before),
        class => class,
    };
    if class != requests::quality_of_service(spec) {
        let shown = text_at(pod, "/status/qosClass");
        causes.push(SPEC.invalid(shown, "Pod QOS Class may not change as a result of resizing"));
    }
    if !is_supported(old) {
        causes.push(SPEC.forbidden("Pod running on node without support for resize"));
    }
    let mut munged = spec.clone();
    check_pod_level(&mut munged, spec, before, &mut causes);
    if !check_order(spec, before, &mut causes) {
        return causes;
    }
    check_removed(spec, before, &mut causes);
    check_containers(&mut munged, before, &mut causes);
    if causes.is_empty() && !same(&munged, before) {
        causes.push(SPEC.forbidden("only cpu and memory resources are mutable"));
    }
    causes
}

/// Whether the pod's kubelet reports the resources of its containers.
fn is_supported(pod: &Value) -> bool {
    let null = Value::Null;
    let status = pod.get("status").unwrap_or(&null);
    let is_running =
        |container: &&Value| container.pointer("/state/running").is_some_and(|state| !state.is_null());
    let running = list(status, "containerStatuses").iter().find(is_running);
    running.is_none_or(|container| present(container, "resources").is_some())
}

fn check_pod_level(munged: &mut Value, spec: &Value, before: &Value, causes: &mut Vec<StatusCause>) {
    let is_set = |spec: &Value| {
        let resources = present(spec, "resources");
        resources.is_some_and(|own| {
            ["requests", "limits"].into_iter().any(|field| entries(own, field).next().is_some())
        })
    };
    if !is_set(spec) && !is_set(before) {
        return;
    }
    let path = SPEC.child("resources");
    let null = Value::Null;
    let (own, known) = (spec.get("resources").unwrap_or(&null), before.get("resources").unwrap_or(&null));
    if own.is_null() && !known.is_null() {
        causes.push(path.forbidden("pod-level resources cannot be removed"));
        return;
    }
    for (field, what) in [("requests", "requests"), ("limits", "limits")] {
        if !known.is_null() && is_removed(own, known, field) {
            let why = format!("pod-level resource {what} cannot be removed");
            causes.push(path.child(field).forbidden(&why));
        }
    }
    if let Some(resources) = munged.get_mut("resources") {
        restore_computed(resources, known);
    }
    if !same(munged.get("resources").unwrap_or(&null), known) {
        causes.push(SPEC.forbidden("only cpu and memory resources are mutable at pod-level"));
    }
}

/// Whether the containers and their order are unchanged.
fn check_order(spec: &Value, before: &Value, causes: &mut Vec<StatusCause>) -> bool {
    let sound = causes.len();
    for kind in KINDS {
        let (own, known, path) = (list(spec, kind), list(before, kind), SPEC.child(kind));
        if own.len() != known.len() {
            causes.push(path.forbidden(&format!("{kind} may not be added or removed on resize")));
            continue;
        }
        for (i, _) in own
            .iter()
            .zip(known)
            .enumerate()
            .filter(|(_, (own, known))| text(own, "name") != text(known, "name"))
        {
            let why = format!("{kind} may not be renamed or reordered on resize");
            causes.push(path.index(i).child("name").forbidden(&why));
        }
    }
    causes.len() == sound
}

/// Requests and limits may change but not be removed.
fn check_removed(spec: &Value, before: &Value, causes: &mut Vec<StatusCause>) {
    let null = Value::Null;
    for kind in ["initContainers", "containers"] {
        let all = SPEC.child(kind);
        for (i, (own, known)) in list(spec, kind).iter().zip(list(before, kind)).enumerate() {
            let path = all.index(i);
            let path = path.child("resources");
            let (own, known) =
                (own.get("resources").unwrap_or(&null), known.get("resources").unwrap_or(&null));
            for field in ["requests", "limits"] {
                if is_removed(own, known, field) {
                    causes.push(path.child(field).forbidden(&format!("resource {field} cannot be removed")));
                }
            }
        }
    }
}

fn is_removed(own: &Value, known: &Value, field: &str) -> bool {
    let has = |name| own.get(field).is_some_and(|amounts| amounts.get(name).is_some());
    entries(known, field).any(|(name, _)| !has(name))
}

/// Only the cpu and memory of containers may change.
fn check_containers(munged: &mut Value, before: &Value, causes: &mut Vec<StatusCause>) {
    for kind in KINDS {
        let path = SPEC.child(kind);
        for (i, (own, known)) in list_mut(munged, kind).iter_mut().zip(list(before, kind)).enumerate() {
            let null = Value::Null;
            if let Some(resources) = own.get_mut("resources") {
                restore_computed(resources, known.get("resources").unwrap_or(&null));
            }
            if same(own, known) {
                continue;
            }
            causes.push(if kind == "containers" {
                SPEC.forbidden("only cpu and memory resources are mutable")
            } else {
                let why = "only cpu and memory resources for init or sidecar containers are mutable";
                path.index(i).forbidden(why)
            });
        }
    }
}

/// Restores the previous cpu and memory amounts.
fn restore_computed(resources: &mut Value, known: &Value) {
    for field in ["requests", "limits"] {
        let known = known.get(field).unwrap_or(&Value::Null);
        if present(resources, field).is_none() && known.is_null() {
            continue;
        }
        if let Some(amounts) = crate::json::object_mut(resources, field) {
            for name in ["cpu", "memory"] {
                match known.get(name) {
                    Some(amount) => {
                        amounts.insert(name.to_owned(), amount.clone());
                    }
                    None => {
                        amounts.remove(name);
                    }
                }
            }
        }
    }
}

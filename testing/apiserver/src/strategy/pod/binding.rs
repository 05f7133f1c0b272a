//! Binds a pod to a node.

use http::StatusCode;
use serde_json::Value;

use super::super::names;
use super::super::path::Path;
use super::super::traits::Lookup;
use super::admit::{self, KIND};
use super::conditions;
use crate::json::{entries, list, object_mut, present, text, text_at};
use crate::status::{Details, Result, Status, StatusCause};

/// Binds a pod according to a `Binding`, and copies the topology labels of the node. `now` is in
/// the format of the API.
pub(crate) fn bind(pod: &mut Value, binding: &Value, objects: &dyn Lookup, now: &str) -> Result<()> {
    let name = text_at(pod, "/metadata/name").to_owned();
    if text_at(binding, "/metadata/name") != name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    let null = Value::Null;
    let target = binding.get("target").unwrap_or(&null);
    let (kind, node) = (text(target, "kind"), text(target, "name"));
    check_target(kind, node)?;
    check_preconditions(pod, binding, &name)?;
    check_unbound(pod).map_err(|why| conflict(&name, &why))?;
    let topology = if kind == "Node" { admit::topology_labels(node, objects) } else { Vec::new() };
    if let Some(spec) = object_mut(pod, "spec") {
        spec.insert("nodeName".to_owned(), node.into());
    }
    if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("nominatedNodeName");
    }
    copy(pod, binding, "annotations");
    copy(pod, binding, "labels");
    admit::set_labels(pod, topology);
    conditions::set(pod, "PodScheduled", "True", ("", ""), now);
    Ok(())
}

fn check_target(kind: &str, node: &str) -> Result<()> {
    let target = Path::root("target");
    let mut causes: Vec<StatusCause> = Vec::new();
    if !kind.is_empty() && kind != "Node" {
        causes.push(target.child("kind").not_supported(kind, &["Node", "<empty>"]));
    }
    if node.is_empty() {
        causes.push(target.child("name").required(""));
    } else if matches!(kind, "" | "Node") {
        target.child("name").invalid_all(node, names::dns1123_subdomain(node), &mut causes);
    }
    if causes.is_empty() {
        return Ok(());
    }
    let wrong: Vec<String> =
        causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    let message = if let [one] = wrong.as_slice() { one.clone() } else { format!("[{}]", wrong.join(", ")) };
    // Upstream has no better status for this error.
    Err(Status { code: StatusCode::INTERNAL_SERVER_ERROR, reason: "", message, details: Box::default() })
}

fn check_preconditions(pod: &Value, binding: &Value, name: &str) -> Result<()> {
    for (field, shown) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let pointer = format!("/metadata/{field}");
        let (wanted, found) = (text_at(binding, &pointer), text_at(pod, &pointer));
        if !wanted.is_empty() && wanted != found {
            let namespace = text_at(pod, "/metadata/namespace");
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/pods/{namespace}/{name}, ResourceVersion: 0, \
                 AdditionalErrorMsg: Precondition failed: {shown} in precondition: {wanted}, {shown} in object meta: \
                 {found}"
            );
            return Err(Status::conflict(&KIND, name, why));
        }
    }
    Ok(())
}

fn check_unbound(pod: &Value) -> std::result::Result<(), String> {
    let name = text_at(pod, "/metadata/name");
    if pod.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = text_at(pod, "/spec/nodeName");
    if !node.is_empty() {
        return Err(format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod.get("spec").is_some_and(|spec| !list(spec, "schedulingGates").is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

fn conflict(name: &str, why: &str) -> Status {
    const RESOURCE: &str = "pods/binding";
    Status {
        code: StatusCode::CONFLICT,
        reason: "Conflict",
        message: format!("Operation cannot be fulfilled on {RESOURCE} {name:?}: {why}"),
        details: Box::new(Details { name: name.to_owned(), kind: RESOURCE.to_owned(), ..Details::default() }),
    }
}

/// Copies labels or annotations of the binding to the pod.
fn copy(pod: &mut Value, binding: &Value, field: &str) {
    let Some(metadata) = binding.get("metadata").filter(|metadata| present(metadata, field).is_some()) else {
        return;
    };
    let Some(own) = pod.get_mut("metadata").and_then(|own| object_mut(own, field)) else { return };
    own.extend(entries(metadata, field).map(|(key, value)| (key.to_owned(), value.clone())));
}

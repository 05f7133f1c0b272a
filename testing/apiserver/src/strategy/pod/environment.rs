//! Validates the environment of a container.

use serde_json::Value;

use super::super::labels;
use super::super::names;
use super::super::path::Path;
use super::file_path;
use crate::json::{list, present, text};
use crate::quantity::Quantity;
use crate::status::StatusCause;

const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];

/// Validates the variables of a container.
pub(super) fn check(container: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let variables = path.child("env");
    for (i, variable) in list(container, "env").iter().enumerate() {
        let path = variables.index(i);
        match text(variable, "name") {
            "" => causes.push(path.child("name").required("")),
            name => path.child("name").invalid_all(name, names::env_var(name), causes),
        }
        if let Some(source) = present(variable, "valueFrom") {
            check_source(source, text(variable, "value"), &path.child("valueFrom"), causes);
        }
    }
    check_from(container, path, causes);
}

fn check_source(source: &Value, value: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let mut given = 0;
    for kind in SOURCES {
        let Some(reference) = present(source, kind) else { continue };
        given += 1;
        let path = path.child(kind);
        match kind {
            "fieldRef" => check_field(reference, &FIELDS, &path, causes),
            "resourceFieldRef" => check_resource(reference, false, &path, causes),
            "fileKeyRef" => check_file(reference, &path, causes),
            _ => check_key(reference, &path, causes),
        }
    }
    let why = match given {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !value.is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    causes.push(path.invalid("", why));
}

/// Validates a reference to a field of the pod.
pub(super) fn check_field(reference: &Value, known: &[&str], path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (version, field) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    if version.is_empty() {
        causes.push(path.child("apiVersion").required(""));
        return;
    }
    if field.is_empty() {
        causes.push(path.child("fieldPath").required(""));
        return;
    }
    let field_path = path.child("fieldPath");
    let refuse = |why: String| field_path.invalid(field, &format!("error converting fieldPath: {why}"));
    if version != "v1" {
        causes.push(refuse(format!("unsupported pod version: {version}")));
        return;
    }
    if let Some((name, subscript)) = field.strip_suffix("']").and_then(|field| field.split_once("['")) {
        match name {
            "metadata.annotations" => labels::check_key(&subscript.to_lowercase(), path, causes),
            "metadata.labels" => labels::check_key(subscript, path, causes),
            _ => causes.push(refuse(format!("field label does not support subscript: {field}"))),
        }
        return;
    }
    let is_field = FIELDS.contains(&field)
        || matches!(
            field,
            "metadata.annotations"
                | "metadata.labels"
                | "spec.restartPolicy"
                | "spec.schedulerName"
                | "status.phase"
        );
    if !is_field {
        causes.push(refuse(format!("field label not supported: {field}")));
    } else if !known.contains(&field) {
        causes.push(field_path.not_supported(field, known));
    }
}

/// Validates a reference to a resource of a container.
pub(super) fn check_resource(
    reference: &Value,
    is_volume: bool,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let resource = text(reference, "resource");
    let is_pages = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if is_volume && text(reference, "containerName").is_empty() {
        causes.push(path.child("containerName").required(""));
    } else if resource.is_empty() {
        causes.push(path.child("resource").required(""));
    } else if !RESOURCES.contains(&resource) && !is_pages {
        causes.push(path.child("resource").not_supported(resource, &RESOURCES));
    }
    let divisor = reference.get("divisor").map_or(Quantity::ZERO, Quantity::of);
    if divisor.is_zero() {
        return;
    }
    let divisor = divisor.to_string();
    let is_unit = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"]
        .contains(&divisor.as_str());
    let (is_known, units, what) = match resource {
        "limits.cpu" | "requests.cpu" => (matches!(divisor.as_str(), "1m" | "1"), "1m and 1", "cpu"),
        "limits.memory" | "requests.memory" => (is_unit, UNITS, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (is_unit, UNITS, "local ephemeral storage")
        }
        _ if is_pages => (is_unit, UNITS, "hugepages"),
        _ => return,
    };
    if !is_known {
        let why = format!("only divisor's values {units} are supported with the {what} resource");
        causes.push(path.child("divisor").invalid(resource, &why));
    }
}

const UNITS: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";

fn check_key(reference: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (name, key) = (text(reference, "name"), text(reference, "key"));
    path.child("name").invalid_all(name, names::dns1123_subdomain(name), causes);
    if key.is_empty() {
        causes.push(path.child("key").required(""));
    } else {
        path.child("key").invalid_all(key, names::config_key(key), causes);
    }
}

fn check_file(reference: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    match text(reference, "key") {
        "" => causes.push(path.child("key").required("")),
        key => path.child("key").invalid_all(key, names::env_var(key), causes),
    }
    match text(reference, "volumeName") {
        "" => causes.push(path.child("volumeName").required("")),
        name => path.child("volumeName").invalid_all(name, names::dns1123_label(name), causes),
    }
    match text(reference, "path") {
        "" => causes.push(path.child("path").required("")),
        file => file_path::check_no_backsteps(file, &path.child("path"), causes),
    }
}

fn check_from(container: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let all = path.child("envFrom");
    for (i, source) in list(container, "envFrom").iter().enumerate() {
        let path = all.index(i);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            path.child("prefix").invalid_all(prefix, names::env_var(prefix), causes);
        }
        let mut given = 0;
        for kind in ["configMapRef", "secretRef"] {
            let Some(reference) = present(source, kind) else { continue };
            given += 1;
            let path = path.child(kind);
            match text(reference, "name") {
                "" => causes.push(path.child("name").required("")),
                // The name may be a prefix that is completed later.
                name => {
                    let masked = match name.strip_suffix('-') {
                        Some(rest) if !rest.is_empty() => format!("{}a", &rest[..floor(rest)]),
                        _ => name.to_owned(),
                    };
                    path.child("name").invalid_all(name, names::dns1123_subdomain(&masked), causes);
                }
            }
        }
        match given {
            0 => causes.push(all.invalid("", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => causes.push(all.invalid("", "may not have more than one field specified at a time")),
        }
    }
}

/// The start of the last character of a text.
fn floor(text: &str) -> usize {
    text.char_indices().next_back().map_or(0, |(at, _)| at)
}

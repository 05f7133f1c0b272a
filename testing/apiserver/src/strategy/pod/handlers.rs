//! Validates the probes and hooks of a container.

use serde_json::Value;

use super::super::names;
use super::super::path::Path;
use crate::json::{int, list, present, text};
use crate::status::StatusCause;

const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];
const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used \
     for validation is '[-A-Za-z0-9]+')";

/// Validates the probes and hooks of a container or sidecar.
pub(super) fn check(container: &Value, spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let grace = int(spec, "terminationGracePeriodSeconds");
    if let Some(lifecycle) = present(container, "lifecycle") {
        let path = path.child("lifecycle");
        for hook in ["postStart", "preStop"] {
            if let Some(handler) = present(lifecycle, hook) {
                check_handler(
                    handler,
                    &["exec", "httpGet", "tcpSocket", "sleep"],
                    grace,
                    &path.child(hook),
                    causes,
                );
            }
        }
    }
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = present(container, field) else { continue };
        let path = path.child(field);
        check_probe(probe, grace, &path, causes);
        if field == "readinessProbe" {
            if let Some(seconds) = int(probe, "terminationGracePeriodSeconds") {
                let path = path.child("terminationGracePeriodSeconds");
                causes.push(path.invalid(seconds, "must not be set for readinessProbes"));
            }
        } else if let Some(count) = int(probe, "successThreshold").filter(|count| *count != 1) {
            causes.push(path.child("successThreshold").invalid(count, "must be 1"));
        }
    }
}

fn check_probe(probe: &Value, grace: Option<i64>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    check_handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], grace, path, causes);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        if let Some(number) = int(probe, field).filter(|number| *number < 0) {
            causes.push(path.child(field).invalid(number, "must be greater than or equal to 0"));
        }
    }
    if let Some(seconds) = int(probe, "terminationGracePeriodSeconds").filter(|seconds| *seconds <= 0) {
        causes.push(path.child("terminationGracePeriodSeconds").invalid(seconds, "must be greater than 0"));
    }
}

fn check_handler(
    handler: &Value,
    known: &[&str],
    grace: Option<i64>,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let mut has_one = false;
    for kind in HANDLERS.into_iter().filter(|kind| known.contains(kind)) {
        let Some(action) = present(handler, kind) else { continue };
        let path = path.child(kind);
        if has_one {
            causes.push(path.forbidden("may not specify more than 1 handler type"));
            continue;
        }
        has_one = true;
        match kind {
            "exec" if list(action, "command").is_empty() => causes.push(path.child("command").required("")),
            "exec" => {}
            "httpGet" => check_http_get(action, &path, causes),
            "sleep" => check_sleep(action, grace, &path, causes),
            _ => check_port(action, &path, causes),
        }
    }
    if !has_one {
        causes.push(path.required("must specify a handler type"));
    }
}

fn check_http_get(action: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if text(action, "path").is_empty() {
        causes.push(path.child("path").required(""));
    }
    check_port(action, path, causes);
    let scheme = text(action, "scheme");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        causes.push(path.child("scheme").not_supported(scheme, &["HTTP", "HTTPS"]));
    }
    for header in list(action, "httpHeaders") {
        let name = text(header, "name");
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            causes.push(path.child("httpHeaders").invalid(name, HEADER));
        }
    }
}

fn check_port(action: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let path = path.child("port");
    match action.get("port") {
        Some(Value::String(name)) => path.invalid_all(name, names::port_name(name), causes),
        port => {
            let number = port.and_then(Value::as_i64).unwrap_or_default();
            causes.extend(names::port_number(number).map(|why| path.invalid(number, why)));
        }
    }
}

fn check_sleep(action: &Value, grace: Option<i64>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let seconds = int(action, "seconds").unwrap_or_default();
    if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
        let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        causes.push(path.invalid(seconds, &why));
    }
}

//! Validates the containers of a pod.

use serde_json::Value;

use super::super::checks::required_one_of;
use super::super::names;
use super::super::path::Path;
use super::spec::claim_names;
use super::volumes::Volumes;
use super::{environment, handlers, requests, requirements, security, volumes};
use crate::json::{int, list, present, text};
use crate::status::StatusCause;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const NOT_IN_EPHEMERAL: [&str; 10] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "volumeDevices",
];

/// Validates all containers of a pod.
pub(super) fn check_all(spec: &Value, volumes: &Volumes<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let regular = list(spec, "containers");
    let regular_path = path.child("containers");
    if regular.is_empty() {
        causes.push(regular_path.required(""));
    }
    for (i, container) in regular.iter().enumerate() {
        let path = regular_path.index(i);
        check_common(container, spec, volumes, &path, causes);
        let name = text(container, "name");
        if regular[..i].iter().any(|other| text(other, "name") == name) {
            causes.push(path.child("name").duplicate(name));
        }
        handlers::check(container, spec, &path, causes);
        check_restart_policy(container, &path, causes);
    }
    check_host_ports(regular, &regular_path, causes);
    check_init(spec, volumes, path, causes);
    check_ephemeral(spec, volumes, path, causes);
}

fn check_init(spec: &Value, volumes: &Volumes<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (regular, init) = (list(spec, "containers"), list(spec, "initContainers"));
    let init_path = path.child("initContainers");
    for (i, container) in init.iter().enumerate() {
        let path = init_path.index(i);
        check_common(container, spec, volumes, &path, causes);
        check_restart_policy(container, &path, causes);
        let name = text(container, "name");
        let mut others = regular.iter().chain(&init[..i]);
        if others.any(|other| text(other, "name") == name) && !name.is_empty() {
            causes.push(path.child("name").duplicate(name));
        }
        // Init containers run one at a time, so each is checked alone. Upstream's path always names
        // the first.
        check_host_ports(std::slice::from_ref(container), &init_path, causes);
        if requests::is_sidecar(container) {
            handlers::check(container, spec, &path, causes);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if present(container, field).is_some() {
                    let why = "may not be set for init containers without restartPolicy=Always";
                    causes.push(path.child(field).forbidden(why));
                }
            }
            let resize = path.child("resizePolicy");
            for (j, policy) in list(container, "resizePolicy").iter().enumerate() {
                if text(policy, "restartPolicy") == "RestartContainer" {
                    let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    let path = resize.index(j);
                    causes.push(path.child("restartPolicy").invalid("RestartContainer", why));
                }
            }
        }
    }
}

fn check_ephemeral(spec: &Value, volumes: &Volumes<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    const NOT_HERE: &str = "cannot be set for an Ephemeral Container";
    let own = list(spec, "ephemeralContainers");
    let own_path = path.child("ephemeralContainers");
    let is_other = |name: &str| {
        let mut others = list(spec, "containers").iter().chain(list(spec, "initContainers"));
        others.any(|other| text(other, "name") == name)
    };
    for (i, container) in own.iter().enumerate() {
        let path = own_path.index(i);
        check_common(container, spec, volumes, &path, causes);
        check_image_whitespace(container, &path, causes);
        let name = text(container, "name");
        if is_other(name) || own[..i].iter().any(|other| text(other, "name") == name) {
            causes.push(path.child("name").duplicate(name));
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !is_other(target) {
            causes.push(path.child("targetContainerName").not_found(target, ""));
        }
        for field in NOT_IN_EPHEMERAL {
            let is_set = match container.get(field) {
                None | Some(Value::Null) => false,
                Some(Value::Object(map)) if field == "resources" => !map.is_empty(),
                Some(_) => true,
            };
            if is_set {
                causes.push(path.child(field).forbidden(NOT_HERE));
            }
        }
        let mounts = path.child("volumeMounts");
        for (i, mount) in list(container, "volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !text(mount, field).is_empty() {
                    causes.push(mounts.index(i).child(field).forbidden(NOT_HERE));
                }
            }
        }
    }
}

/// Validates what all types of containers have in common.
fn check_common(
    container: &Value,
    spec: &Value,
    volumes: &Volumes<'_>,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    match text(container, "name") {
        "" => causes.push(path.child("name").required("")),
        name => path.child("name").invalid_all(name, names::dns1123_label(name), causes),
    }
    if text(container, "image").is_empty() {
        causes.push(path.child("image").required(""));
    }
    required_one_of(container, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], path, causes);
    check_ports(container, path, causes);
    environment::check(container, path, causes);
    volumes::check_mounts(container, volumes, path, causes);
    volumes::check_devices(container, volumes, path, causes);
    required_one_of(container, "imagePullPolicy", &PULL_POLICIES, path, causes);
    let null = Value::Null;
    let resources = container.get("resources").unwrap_or(&null);
    requirements::check(resources, &claim_names(spec), &path.child("resources"), causes);
    check_resize_policy(container, spec, path, causes);
    security::check_container(container, spec, path, causes);
}

/// Rejects whitespace around the name of an image, which templates may have.
pub(super) fn check_image_whitespace(container: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let image = text(container, "image");
    if image.trim() != image {
        causes.push(path.child("image").invalid(image, "must not have leading or trailing whitespace"));
    }
}

fn check_ports(container: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (ports, path) = (list(container, "ports"), path.child("ports"));
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            let wrong = names::port_name(name);
            if wrong.is_empty() && ports[..i].iter().any(|other| text(other, "name") == name) {
                causes.push(path.child("name").duplicate(name));
            }
            path.child("name").invalid_all(name, wrong, causes);
        }
        match int(port, "containerPort").unwrap_or_default() {
            0 => causes.push(path.child("containerPort").required("")),
            number => check_port_number(number, &path.child("containerPort"), causes),
        }
        match int(port, "hostPort").unwrap_or_default() {
            0 => {}
            number => check_port_number(number, &path.child("hostPort"), causes),
        }
        required_one_of(port, "protocol", &PROTOCOLS, &path, causes);
    }
}

fn check_port_number(number: i64, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    causes.extend(names::port_number(number).map(|why| path.invalid(number, why)));
}

/// Rejects duplicate host ports.
fn check_host_ports(containers: &[Value], path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let mut taken: Vec<String> = Vec::new();
    for (i, container) in containers.iter().enumerate() {
        let container_path = path.index(i);
        let path = container_path.child("ports");
        for (j, port) in list(container, "ports").iter().enumerate() {
            let Some(number) = int(port, "hostPort").filter(|number| *number != 0) else { continue };
            let port = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
            if taken.contains(&port) {
                causes.push(path.index(j).child("hostPort").duplicate(port));
            } else {
                taken.push(port);
            }
        }
    }
}

fn check_restart_policy(container: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let rules = list(container, "restartPolicyRules");
    match present(container, "restartPolicy").and_then(Value::as_str) {
        None if rules.is_empty() => return,
        None => {
            let why = "must specify restartPolicy when restart rules are used";
            causes.push(path.child("restartPolicy").required(why));
        }
        Some(policy) if RESTART_POLICIES.contains(&policy) => {}
        Some(policy) => {
            causes.push(path.child("restartPolicy").not_supported(policy, &RESTART_POLICIES));
        }
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > 20 {
        causes.push(too_many(&path, rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        let action = text(rule, "action");
        if !matches!(action, "Restart" | "RestartAllContainers") {
            causes.push(path.child("action").not_supported(action, &["Restart", "RestartAllContainers"]));
        }
        let codes_path = path.child("exitCodes");
        let Some(codes) = present(rule, "exitCodes") else {
            causes.push(codes_path.required("must be specified"));
            continue;
        };
        let operator = text(codes, "operator");
        if !matches!(operator, "In" | "NotIn") {
            causes.push(codes_path.child("operator").not_supported(operator, &["In", "NotIn"]));
        }
        let count = list(codes, "values").len();
        if count > 255 {
            causes.push(too_many(&codes_path.child("values"), count, 255));
        }
    }
}

fn too_many(path: &Path<'_>, count: usize, limit: usize) -> StatusCause {
    StatusCause {
        reason: "FieldValueTooMany",
        message: format!("Too many: {count}: must have at most {limit} items"),
        field: path.to_string(),
    }
}

fn check_resize_policy(container: &Value, spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (policies, path) = (list(container, "resizePolicy"), path.child("resizePolicy"));
    for (i, policy) in policies.iter().enumerate() {
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if policies[..i].iter().any(|other| text(other, "resourceName") == resource) {
            causes.push(path.index(i).duplicate(resource));
        }
        match resource {
            "cpu" | "memory" => {}
            "" => causes.push(path.required("")),
            _ => causes.push(path.not_supported(resource, &["cpu", "memory"])),
        }
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => causes.push(path.required("")),
            _ => causes.push(path.not_supported(restart, &["NotRequired", "RestartContainer"])),
        }
        if text(spec, "restartPolicy") == "Never" && restart != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            causes.push(path.invalid(restart, why));
        }
    }
}

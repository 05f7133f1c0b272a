//! Validates the security contexts of a pod and its containers.

use serde_json::Value;

use super::super::path::Path;
use super::defaults::CONTAINERS;
use super::file_path;
use crate::json::{flag, int, list, present, text};
use crate::status::StatusCause;

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

/// Validates the security context of a pod.
pub(super) fn check_pod(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let owner = path;
    let Some(context) = present(spec, "securityContext") else { return };
    let path = path.child("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        check_id(int(context, field), &path.child(field), causes);
    }
    let groups = path.child("supplementalGroups");
    for (i, group) in list(context, "supplementalGroups").iter().enumerate() {
        check_id(group.as_i64(), &groups.index(i), causes);
    }
    check_sysctls(context, &path, causes);
    check_known(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], &path, causes);
    if let Some(profile) = present(context, "seccompProfile") {
        check_seccomp(profile, &path.child("seccompProfile"), causes);
    }
    check_app_armor(context, &path, causes);
    check_known(context, "supplementalGroupsPolicy", &["Merge", "Strict"], &path, causes);
    check_known(context, "seLinuxChangePolicy", &["MountOption", "Recursive"], &path, causes);
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        causes.push(owner.child("shareProcessNamespace").invalid(true, why));
    }
}

/// Validates the security context of a container.
pub(super) fn check_container(
    container: &Value,
    spec: &Value,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let Some(context) = present(container, "securityContext") else { return };
    let path = path.child("securityContext");
    for field in ["runAsUser", "runAsGroup"] {
        check_id(int(context, field), &path.child(field), causes);
    }
    check_known(context, "procMount", &["Default", "Unmasked"], &path, causes);
    let has_host_users = spec.get("hostUsers").and_then(Value::as_bool).unwrap_or(true);
    if has_host_users && text(context, "procMount") == "Unmasked" {
        let why = "`hostUsers` must be false to use `Unmasked`";
        causes.push(path.child("procMount").invalid("Unmasked", why));
    }
    if let Some(profile) = present(context, "seccompProfile") {
        check_seccomp(profile, &path.child("seccompProfile"), causes);
    }
    check_escalation(context, &path, causes);
    check_app_armor(context, &path, causes);
}

fn check_id(id: Option<i64>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if let Some(id) = id.filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        causes.push(path.invalid(id, "must be between 0 and 2147483647, inclusive"));
    }
}

fn check_known(context: &Value, field: &str, known: &[&str], path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if let Some(value) = present(context, field).and_then(Value::as_str)
        && !known.contains(&value)
    {
        causes.push(path.child(field).not_supported(value, known));
    }
}

fn check_seccomp(profile: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (kind, file) = (text(profile, "type"), present(profile, "localhostProfile"));
    match kind {
        "" => causes.push(path.child("type").required("type is required when seccompProfile is set")),
        _ if !PROFILES.contains(&kind) => causes.push(path.child("type").not_supported(kind, &PROFILES)),
        _ => {}
    }
    let path = path.child("localhostProfile");
    match (kind, file) {
        ("Localhost", None) => causes.push(path.required("must be set when seccomp type is Localhost")),
        ("Localhost", Some(file)) => {
            file_path::check_descends(file.as_str().unwrap_or_default(), &path, causes);
        }
        (_, Some(file)) => {
            let shown = format!(r#"{{"Type":{},"LocalhostProfile":{file}}}"#, Value::from(kind));
            causes.push(invalid_shown(&shown, &path, "can only be set when seccomp type is Localhost"));
        }
        _ => {}
    }
}

fn check_app_armor(context: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    const REQUIRED: &str = "must be set when AppArmor type is Localhost";
    let Some(profile) = present(context, "appArmorProfile") else { return };
    let path = path.child("appArmorProfile");
    let file_path = path.child("localhostProfile");
    let file = present(profile, "localhostProfile").map(|file| file.as_str().unwrap_or_default());
    match (text(profile, "type"), file) {
        ("Localhost", None | Some("")) => causes.push(file_path.required(REQUIRED)),
        ("Localhost", Some(file)) => {
            if file.trim() != file {
                causes.push(file_path.invalid(file, "must not be padded with whitespace"));
            }
            if file.len() > 4095 {
                causes.push(file_path.too_long(4095));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            causes.push(file_path.invalid(file, "can only be set when AppArmor type is Localhost"));
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => causes.push(path.child("type").required("type is required when appArmorProfile is set")),
        (kind, _) => causes.push(path.child("type").not_supported(kind, &PROFILES)),
    }
}

fn check_sysctls(context: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    const WHY: &str = "must have at most 253 characters and match regex \
        ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let (all, path) = (list(context, "sysctls"), path.child("sysctls"));
    for (i, sysctl) in all.iter().enumerate() {
        let (name, path) = (text(sysctl, "name"), path.index(i));
        let path = path.child("name");
        if name.is_empty() {
            causes.push(path.required(""));
        } else if !is_sysctl(name) {
            causes.push(path.invalid(name, WHY));
        } else if all[..i].iter().any(|other| text(other, "name") == name) {
            causes.push(path.duplicate(name));
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let is_edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_segment = |segment: &str| {
        let bytes = segment.as_bytes();
        let edges = [bytes.first(), bytes.last()];
        edges.into_iter().all(|edge| edge.is_some_and(|byte| is_edge(*byte)))
            && bytes.iter().all(|byte| is_edge(*byte) || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(is_segment)
}

/// Privileged containers and CAP_SYS_ADMIN require privilege escalation.
fn check_escalation(context: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if context.get("allowPrivilegeEscalation").and_then(Value::as_bool) != Some(false) {
        return;
    }
    let mut refuse = |what: &str| {
        let why = format!("cannot set `allowPrivilegeEscalation` to false and {what}");
        causes.push(invalid_shown(&shown_context(context), path, &why));
    };
    if flag(context, "privileged") {
        refuse("`privileged` to true");
    }
    let added = context.get("capabilities").map_or(&[][..], |own| list(own, "add"));
    for _ in added.iter().filter(|capability| capability.as_str() == Some("CAP_SYS_ADMIN")) {
        refuse("`capabilities.Add` CAP_SYS_ADMIN");
    }
}

/// Upstream shows the context as its internal type, with that type's field names and order.
fn shown_context(context: &Value) -> String {
    let shown = |object: &Value, field: &str| object.get(field).unwrap_or(&Value::Null).to_string();
    let capabilities = present(context, "capabilities").map_or_else(
        || "null".to_owned(),
        |own| format!(r#"{{"Add":{},"Drop":{}}}"#, shown(own, "add"), shown(own, "drop")),
    );
    let fields = [
        ("Privileged", "privileged"),
        ("SELinuxOptions", "seLinuxOptions"),
        ("WindowsOptions", "windowsOptions"),
        ("RunAsUser", "runAsUser"),
        ("RunAsGroup", "runAsGroup"),
        ("RunAsNonRoot", "runAsNonRoot"),
        ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem"),
        ("AllowPrivilegeEscalation", "allowPrivilegeEscalation"),
        ("ProcMount", "procMount"),
        ("SeccompProfile", "seccompProfile"),
        ("AppArmorProfile", "appArmorProfile"),
    ];
    let mut all = format!(r#"{{"Capabilities":{capabilities}"#);
    for (name, field) in fields {
        all.push_str(&[",\"", name, "\":", &shown(context, field)].concat());
    }
    all + "}"
}

fn invalid_shown(shown: &str, path: &Path<'_>, why: &str) -> StatusCause {
    StatusCause {
        reason: "FieldValueInvalid",
        message: format!("Invalid value: {shown}: {why}"),
        field: path.to_string(),
    }
}

/// Rejects Windows options on Linux.
pub(super) fn check_linux(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    const WHY: &str = "windows options cannot be set for a linux pod";
    let has_options = |object: &Value| {
        object.get("securityContext").is_some_and(|context| present(context, "windowsOptions").is_some())
    };
    if has_options(spec) {
        causes.push(path.child("securityContext").child("windowsOptions").forbidden(WHY));
    }
    for field in CONTAINERS {
        let all = path.child(field);
        for (i, _) in list(spec, field).iter().enumerate().filter(|(_, container)| has_options(container)) {
            let path = all.index(i);
            causes.push(path.child("securityContext").child("windowsOptions").forbidden(WHY));
        }
    }
}

/// Rejects Linux options on Windows.
pub(super) fn check_windows(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    const OF_PODS: [(&str, bool); 15] = [
        ("appArmorProfile", true),
        ("seLinuxOptions", true),
        ("seccompProfile", true),
        ("fsGroup", true),
        ("fsGroupChangePolicy", true),
        ("sysctls", true),
        ("runAsUser", true),
        ("runAsGroup", true),
        ("supplementalGroups", true),
        ("supplementalGroupsPolicy", true),
        ("seLinuxChangePolicy", true),
        ("hostUsers", false),
        ("hostPID", false),
        ("hostIPC", false),
        ("shareProcessNamespace", false),
    ];
    const OF_CONTAINERS: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    const WHY: &str = "cannot be set for a windows pod";
    let (null, context_path) = (Value::Null, path.child("securityContext"));
    let context = spec.get("securityContext").unwrap_or(&null);
    for (field, is_of_context) in OF_PODS {
        let (object, path) = if is_of_context { (context, &context_path) } else { (spec, path) };
        let may_be_false = matches!(field, "hostPID" | "hostIPC");
        if present(object, field).is_some_and(|value| !(may_be_false && *value == Value::Bool(false))) {
            causes.push(path.child(field).forbidden(WHY));
        }
    }
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        let all = path.child(kind);
        for (i, container) in list(spec, kind).iter().enumerate() {
            let Some(context) = present(container, "securityContext") else { continue };
            let path = all.index(i);
            let path = path.child("securityContext");
            for field in OF_CONTAINERS.into_iter().filter(|field| present(context, field).is_some()) {
                causes.push(path.child(field).forbidden(WHY));
            }
        }
    }
}

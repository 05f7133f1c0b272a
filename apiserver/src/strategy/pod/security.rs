//! What is wrong with the security contexts of a pod and its containers.

use serde_json::Value;

use super::super::json::{flag, int, list, present, text};
use super::super::path::Path;
use super::defaults::CONTAINERS;
use crate::status::Cause;

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

/// The security context of a pod.
pub(super) fn check_pod(spec: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let Some(context) = present(spec, "securityContext") else { return };
    let path = path.child("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        check_id(int(context, field), &path.child(field), causes);
    }
    let groups = path.child("supplementalGroups");
    for (i, group) in list(context, "supplementalGroups").iter().enumerate() {
        check_id(group.as_i64(), &groups.index(i), causes);
    }
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        causes.push(path.child("shareProcessNamespace").invalid(true, why));
    }
    check_known(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], &path, causes);
    check_profile(context, &path, causes);
    check_known(context, "supplementalGroupsPolicy", &["Merge", "Strict"], &path, causes);
}

/// The security context of a container.
pub(super) fn check_container(container: &Value, spec: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
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
    check_profile(context, &path, causes);
}

fn check_id(id: Option<i64>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if let Some(id) = id.filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        causes.push(path.invalid(id, "must be between 0 and 2147483647, inclusive"));
    }
}

fn check_known(context: &Value, field: &str, known: &[&str], path: &Path<'_>, causes: &mut Vec<Cause>) {
    if let Some(value) = present(context, field).and_then(Value::as_str)
        && !known.contains(&value)
    {
        causes.push(path.child(field).not_supported(value, known));
    }
}

fn check_profile(context: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let Some(profile) = present(context, "seccompProfile") else { return };
    let path = path.child("seccompProfile");
    match text(profile, "type") {
        "Localhost" if present(profile, "localhostProfile").is_none() => {
            let why = "must be set when seccomp type is Localhost";
            causes.push(path.child("localhostProfile").required(why));
        }
        "" => causes.push(path.child("type").required("type is required when seccompProfile is set")),
        kind if !PROFILES.contains(&kind) => causes.push(path.child("type").not_supported(kind, &PROFILES)),
        _ => {}
    }
}

/// Options of Windows are not for Linux.
pub(super) fn check_linux(spec: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
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

/// Options of Linux are not for Windows.
pub(super) fn check_windows(spec: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    const WHY: &str = "cannot be set for a windows pod";
    for field in ["hostPID", "hostIPC", "shareProcessNamespace"] {
        if flag(spec, field) {
            causes.push(path.child(field).forbidden(WHY));
        }
    }
    let context_path = path.child("securityContext");
    if let Some(context) = present(spec, "securityContext") {
        for field in [
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "fsGroup",
            "fsGroupChangePolicy",
            "sysctls",
            "runAsUser",
            "runAsGroup",
            "supplementalGroups",
            "supplementalGroupsPolicy",
        ] {
            if present(context, field).is_some() {
                causes.push(context_path.child(field).forbidden(WHY));
            }
        }
    }
}

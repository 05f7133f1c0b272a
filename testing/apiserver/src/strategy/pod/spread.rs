//! Validates topology spread constraints.

use serde_json::Value;

use super::super::labels;
use super::super::path::Path;
use super::affinity;
use crate::json::{int, list, present, text};
use crate::status::StatusCause;

const NOT_POSITIVE: &str = "must be greater than zero";

/// Validates the constraints of a pod.
pub(super) fn check(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let constraints = list(spec, "topologySpreadConstraints");
    let path = path.child("topologySpreadConstraints");
    for (i, constraint) in constraints.iter().enumerate() {
        let path = path.index(i);
        let (key, action) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        let skew = int(constraint, "maxSkew").unwrap_or_default();
        if skew <= 0 {
            causes.push(path.child("maxSkew").invalid(skew, NOT_POSITIVE));
        }
        if key.is_empty() {
            causes.push(path.child("topologyKey").required("can not be empty"));
        }
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            let known = ["DoNotSchedule", "ScheduleAnyway"];
            causes.push(path.child("whenUnsatisfiable").not_supported(action, &known));
        }
        let is_same =
            |other: &Value| text(other, "topologyKey") == key && text(other, "whenUnsatisfiable") == action;
        if constraints[i + 1..].iter().any(is_same) {
            let path = path.child("{topologyKey, whenUnsatisfiable}");
            causes.push(path.duplicate(format!("{{{key}, {action}}}")));
        }
        check_domains(constraint, action, &path, causes);
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let policy = text(constraint, field);
            if present(constraint, field).is_some() && !matches!(policy, "Honor" | "Ignore") {
                causes.push(path.child(field).not_supported(policy, &["Honor", "Ignore"]));
            }
        }
        affinity::check_label_keys(constraint, &path, causes);
        if let Some(selector) = present(constraint, "labelSelector") {
            labels::check_selector(selector, &path.child("labelSelector"), causes);
        }
    }
}

fn check_domains(constraint: &Value, action: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let Some(domains) = int(constraint, "minDomains") else { return };
    let path = path.child("minDomains");
    if domains <= 0 {
        causes.push(path.invalid(domains, NOT_POSITIVE));
    }
    if action != "DoNotSchedule" {
        let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        causes.push(path.invalid(domains, &why));
    }
}

//! Pods: defaults, validation, updates, binding and eviction.

mod admit;
mod affinity;
pub(crate) mod binding;
mod conditions;
mod containers;
mod create;
pub(crate) mod defaults;
pub(super) mod difference;
pub(crate) mod disabled;
mod environment;
pub(crate) mod eviction;
mod file_path;
mod handlers;
mod image;
mod limits;
pub(crate) mod pdb;
mod pod_level;
pub(crate) mod requests;
pub(super) mod requirements;
pub(crate) mod resize;
mod security;
pub(crate) mod spec;
mod spread;
mod status;
mod update;
pub(crate) mod validate;
mod volumes;

use serde_json::Value;

use super::traits::{Lookup, Strategy};
use crate::json::{flag, int, list, present, text, text_at};
use crate::status::{Result, StatusCause};

/// Pods.
pub(crate) struct Pods;

impl Strategy for Pods {
    fn default(&self, object: &mut Value) {
        defaults::pod(object);
    }

    fn admit(&self, object: &mut Value, objects: &dyn Lookup) -> Result<()> {
        admit::pod(object, objects)
    }

    fn prepare_for_create(&self, object: &mut Value) {
        create::prepare(object);
    }

    fn stamp_new(&self, object: &mut Value, now: &str) {
        create::stamp(object, now);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value) {
        update::prepare(object, old);
    }

    fn prepare_for_status_update(&self, object: &mut Value, old: &Value) {
        status::prepare(object, old);
    }

    fn validate(&self, object: &Value) -> Vec<StatusCause> {
        validate::create(object)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<StatusCause> {
        update::validate(object, old)
    }

    fn validate_status_update(&self, object: &Value, old: &Value) -> Vec<StatusCause> {
        status::validate(object, old)
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]
    }

    fn field(&self, object: &Value, name: &str) -> String {
        let null = Value::Null;
        let (spec, status) = (object.get("spec").unwrap_or(&null), object.get("status").unwrap_or(&null));
        match name {
            "spec.hostNetwork" => flag(spec, "hostNetwork").to_string(),
            "status.podIP" => match list(status, "podIPs") {
                [first, ..] => text(first, "ip").to_owned(),
                [] => text(status, "podIP").to_owned(),
            },
            _ => match name.split_once('.') {
                Some(("spec", field)) => text(spec, field).to_owned(),
                Some(("status", field)) => text(status, field).to_owned(),
                _ => String::new(),
            },
        }
    }

    fn has_generation(&self) -> bool {
        true
    }
}

/// The grace period of a pod's deletion in seconds, given the requested one. It is zero for unbound
/// and completed pods.
pub(crate) fn grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let own = || pod.get("spec").and_then(|spec| int(spec, "terminationGracePeriodSeconds"));
    let is_over = matches!(text_at(pod, "/status/phase"), "Failed" | "Succeeded");
    if is_over || text_at(pod, "/spec/nodeName").is_empty() {
        return 0;
    }
    match asked.or_else(own).unwrap_or_default() {
        period if period < 0 => 1,
        period => period,
    }
}

/// Whether a pod is terminating.
fn is_going(pod: &Value) -> bool {
    pod.get("metadata").is_some_and(|metadata| present(metadata, "deletionTimestamp").is_some())
}

#[cfg(test)]
mod tests;

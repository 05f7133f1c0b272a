//! Taints that an administrator puts on devices.

use serde_json::Value;

use super::checks::{check_conditions, check_driver_name, too_many};
use super::path::Path;
use super::traits::Strategy;
use super::{labels, names, status};
use crate::json::{list, object_mut, present, restore, set_default, text};
use crate::status::StatusCause;

/// Taints of the devices that a selector matches.
pub(crate) struct DeviceTaintRule;

const SPEC: Path<'static> = Path::root("spec");
const STATUS: Path<'static> = Path::root("status");
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const POOL_NAME_LENGTH: usize = 253;
const MOST_CONDITIONS: usize = 8;

impl Strategy for DeviceTaintRule {
    fn default(&self, rule: &mut Value) {
        object_mut(rule, "spec");
        object_mut(&mut rule["spec"], "taint");
        object_mut(rule, "status");
    }

    fn prepare_for_create(&self, rule: &mut Value) {
        status::reset(rule);
        object_mut(rule, "status");
    }

    fn stamp_new(&self, rule: &mut Value, now: &str) {
        set_default(&mut rule["spec"]["taint"], "timeAdded", now);
    }

    fn prepare_for_update(&self, rule: &mut Value, old: &Value) {
        restore(rule, old, "status");
    }

    /// Another effect counts from now, unless the caller writes another time.
    fn stamp_update(&self, rule: &mut Value, old: &Value, now: &str) {
        let (taint, before) = (&mut rule["spec"]["taint"], &old["spec"]["taint"]);
        set_default(taint, "timeAdded", now);
        if text(taint, "effect") != text(before, "effect") && taint["timeAdded"] == before["timeAdded"] {
            taint["timeAdded"] = now.into();
        }
    }

    fn prepare_for_status_update(&self, rule: &mut Value, old: &Value) {
        status::only_status(rule, old);
        status::keep_metadata(rule, old);
    }

    fn validate(&self, rule: &Value) -> Vec<StatusCause> {
        check_spec(rule, None)
    }

    fn validate_update(&self, rule: &Value, old: &Value) -> Vec<StatusCause> {
        check_spec(rule, Some(old))
    }

    fn validate_status_update(&self, rule: &Value, _old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let status = &rule["status"];
        check_conditions(status, &STATUS, &mut causes);
        let count = list(status, "conditions").len();
        if count > MOST_CONDITIONS {
            causes.push(too_many(&STATUS.child("conditions"), count, MOST_CONDITIONS));
        }
        causes
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

fn check_spec(rule: &Value, old: Option<&Value>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let spec = &rule["spec"];
    if let Some(selector) = present(spec, "deviceSelector") {
        check_selector(selector, &mut causes);
    }
    let (taint, path) = (&spec["taint"], SPEC.child("taint"));
    labels::check_key(text(taint, "key"), &path.child("key"), &mut causes);
    let value = text(taint, "value");
    path.child("value").invalid_all(value, labels::value(value), &mut causes);
    let (effect, path) = (text(taint, "effect"), path.child("effect"));
    if old.is_some_and(|old| text(&old["spec"]["taint"], "effect") == effect) {
        // Upstream checks only changes.
    } else if effect.is_empty() {
        causes.push(path.required(""));
    } else if !EFFECTS.contains(&effect) {
        causes.push(path.not_supported(effect, &EFFECTS));
    }
    causes
}

fn check_selector(selector: &Value, causes: &mut Vec<StatusCause>) {
    let path = SPEC.child("deviceSelector");
    if present(selector, "driver").is_some() {
        check_driver_name(selector, "driver", &path, causes);
    }
    if present(selector, "pool").is_some() {
        check_pool_name(text(selector, "pool"), &path.child("pool"), causes);
    }
    if present(selector, "device").is_some() {
        let name = text(selector, "device");
        path.child("device").invalid_all(name, names::dns1123_label(name), causes);
    }
}

/// Subdomains with slashes between them.
fn check_pool_name(name: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if name.is_empty() {
        causes.push(path.required(""));
        return;
    }
    if name.len() > POOL_NAME_LENGTH {
        causes.push(path.too_long(POOL_NAME_LENGTH));
    }
    for part in name.split('/') {
        path.invalid_all(part, names::dns1123_subdomain(part), causes);
    }
}

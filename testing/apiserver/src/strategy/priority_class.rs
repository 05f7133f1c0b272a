//! Priority classes.

use serde_json::Value;

use super::checks::{immutable_root, one_of_here};
use super::path::Path;
use super::traits::{Lookup, Strategy};
use crate::json::{flag, int, set_default, text_at};
use crate::kinds::built_in;
use crate::status::{Cause, Result, Status};

/// Priority classes.
pub(crate) struct PriorityClass;

/// The highest priority for user-defined classes.
pub(crate) const HIGHEST_USER_DEFINABLE: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";
/// The predefined classes: name, value, description.
pub(crate) const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

const GROUP: &str = "scheduling.k8s.io";
const RESOURCE: &str = "priorityclasses";

impl Strategy for PriorityClass {
    fn default(&self, class: &mut Value) {
        set_default(class, "value", 0);
        set_default(class, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn admit(&self, class: &mut Value, objects: &dyn Lookup) -> Result<()> {
        admit_default(class, objects, |_| true)
    }

    fn admit_update(&self, class: &mut Value, _old: &Value, objects: &dyn Lookup) -> Result<()> {
        let name = text_at(class, "/metadata/name").to_owned();
        admit_default(class, objects, |other| other != name)
    }

    fn validate(&self, class: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        let (name, value) = (text_at(class, "/metadata/name"), int(class, "value").unwrap_or_default());
        if name.starts_with(SYSTEM_PREFIX) {
            if let Some(why) = not_system(name, value, flag(class, "globalDefault")) {
                let why = format!(
                    "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {why}"
                );
                causes.push(Path::root("metadata").child("name").forbidden(&why));
            }
        } else if value > HIGHEST_USER_DEFINABLE {
            let why = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_DEFINABLE}");
            causes.push(Path::root("value").forbidden(&why));
        }
        let policy = class.get("preemptionPolicy");
        one_of_here(policy, &["PreemptLowerPriority", "Never"], &Path::root("preemptionPolicy"), &mut causes);
        causes
    }

    fn validate_update(&self, class: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        if int(class, "value") != int(old, "value") {
            causes.push(Path::root("value").forbidden("may not be changed in an update."));
        }
        immutable_root(class, old, "preemptionPolicy", &mut causes);
        causes
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn changes_generation(&self, _class: &Value, _old: &Value) -> bool {
        false
    }
}

/// Rejects a second default class.
fn admit_default(class: &Value, objects: &dyn Lookup, counts: impl Fn(&str) -> bool) -> Result<()> {
    if !flag(class, "globalDefault") {
        return Ok(());
    }
    let classes = objects.list(GROUP, RESOURCE, "");
    let defaults = classes.iter().filter(|class| flag(class, "globalDefault"));
    let Some(other) = defaults.min_by_key(|class| int(class, "value")) else { return Ok(()) };
    let other = text_at(other, "/metadata/name");
    let kind = built_in().iter().find(|kind| kind.group == GROUP && kind.resource == RESOURCE);
    match kind {
        Some(kind) if counts(other) => {
            let why =
                format!("PriorityClass {other} is already marked as default. Only one default can exist");
            Err(Status::forbidden(kind, text_at(class, "/metadata/name"), why))
        }
        _ => Ok(()),
    }
}

/// Why a class with a system prefix is not a system class.
fn not_system(name: &str, value: i64, is_default: bool) -> Option<String> {
    let Some((_, expected, _)) = SYSTEM_CLASSES.iter().find(|class| class.0 == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if value != *expected {
        return Some(format!("value of {name} PriorityClass must be {expected}"));
    }
    is_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

//! Priority classes.

use serde_json::Value;

use super::checks::{immutable_root, one_of_here};
use super::path::Path;
use super::traits::{Lookup, Strategy};
use crate::json::{flag, int, object_mut, present, set_default, text, text_at};
use crate::kinds::{Kind, built_in};
use crate::status::{Result, Status, StatusCause};

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

    fn validate(&self, class: &Value) -> Vec<StatusCause> {
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

    fn validate_update(&self, class: &Value, old: &Value) -> Vec<StatusCause> {
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

/// Sets the priority and the preemption policy of a new pod or group from its class, or from the
/// default class; upstream's admission plugin Priority. `noun` names the object in messages,
/// `different` is the message for another priority than the computed one.
pub(crate) fn admit(
    object: &mut Value,
    noun: &str,
    different: impl Fn(i64, i64) -> String,
    refuse: impl Fn(&Value, String) -> Status,
    objects: &dyn Lookup,
) -> Result<()> {
    let name = text_at(object, "/spec/priorityClassName");
    let class = if name.is_empty() {
        default_class(objects)
    } else {
        let missing = || refuse(object, format!("no PriorityClass with name {name} was found"));
        Some(objects.get(GROUP, RESOURCE, "", name).ok_or_else(missing)?)
    };
    let computed = class.as_ref().and_then(|class| int(class, "value")).unwrap_or_default();
    let policy = class.as_ref().map_or("PreemptLowerPriority", |class| text(class, "preemptionPolicy"));
    let spec = object.get("spec").unwrap_or(&Value::Null);
    if let Some(given) = int(spec, "priority").filter(|given| *given != computed) {
        return Err(refuse(object, different(given, computed)));
    }
    let given = text(spec, "preemptionPolicy");
    if !policy.is_empty() && present(spec, "preemptionPolicy").is_some() && given != policy {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in {noun} spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(refuse(object, why));
    }
    let Some(spec) = object_mut(object, "spec") else { return Ok(()) };
    if let Some(class) = &class {
        spec.insert("priorityClassName".to_owned(), text_at(class, "/metadata/name").into());
    }
    spec.insert("priority".to_owned(), computed.into());
    if !policy.is_empty() {
        spec.insert("preemptionPolicy".to_owned(), policy.into());
    }
    Ok(())
}

/// The rejection of a new object, which may not have a name yet.
pub(crate) fn forbidden(kind: &Kind, object: &Value, why: impl std::fmt::Display) -> Status {
    let names = ["/metadata/name", "/metadata/generateName"].map(|pointer| text_at(object, pointer));
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
    Status::forbidden(kind, name, why)
}

/// The default class. Of several ones it is the lowest.
fn default_class(objects: &dyn Lookup) -> Option<Value> {
    let classes = objects.list(GROUP, RESOURCE, "").into_iter();
    classes
        .filter(|class| flag(class, "globalDefault"))
        .min_by_key(|class| int(class, "value").unwrap_or_default())
}

/// Rejects a second default class.
fn admit_default(class: &Value, objects: &dyn Lookup, counts: impl Fn(&str) -> bool) -> Result<()> {
    if !flag(class, "globalDefault") {
        return Ok(());
    }
    let Some(other) = default_class(objects) else { return Ok(()) };
    let other = text_at(&other, "/metadata/name");
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

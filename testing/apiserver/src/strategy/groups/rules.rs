//! Rules that groups and the templates of workloads share. Upstream writes them as tags on the
//! fields of its types: an update checks only what it changes.

use serde_json::Value;

use super::super::checks::too_many;
use super::super::names::{self, Wrong};
use super::super::path::Path;
use super::super::{labels, priority_class};
use crate::json::{list, text};
use crate::status::StatusCause;

const POLICIES: [&str; 2] = ["Never", "PreemptLowerPriority"];
const MOST_CLAIMS: usize = 4;
const MOST_TOPOLOGIES: usize = 1;
static NOTHING: Value = Value::Null;

/// A value, and in an update the one that it replaces. A missing value is null.
#[derive(Clone, Copy)]
pub(super) struct ValueUpdate<'a> {
    pub(super) new: &'a Value,
    pub(super) old: Option<&'a Value>,
}

impl<'a> ValueUpdate<'a> {
    /// The change of a field.
    pub(super) fn field(self, name: &str) -> Self {
        let of = |object: &'a Value| object.get(name).unwrap_or(&NOTHING);
        Self { new: of(self.new), old: self.old.map(of) }
    }

    /// Whether an update leaves the value as it is.
    pub(super) fn is_none(self) -> bool {
        self.old == Some(self.new)
    }

    /// The items of a list.
    pub(super) fn items(self) -> &'a [Value] {
        items(self.new)
    }

    /// Reports a change by an update. Returns whether the value is new and has to be checked.
    pub(super) fn immutable(self, path: &Path<'_>, causes: &mut Vec<StatusCause>) -> bool {
        if self.old.is_some() && !self.is_none() {
            causes.push(path.invalid(Value::Null, "field is immutable"));
        }
        self.old.is_none()
    }
}

/// The items of a list; empty for anything else.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_set(value: &Value) -> bool {
    !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty())
}

/// Exactly one of two fields must be set.
pub(super) fn union(
    owner: ValueUpdate<'_>,
    members: [&str; 2],
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let changes = members.map(|member| owner.field(member));
    let is_same = |change: &ValueUpdate<'_>| change.old.is_some_and(|old| is_set(old) == is_set(change.new));
    if changes.iter().all(is_same) {
        return;
    }
    let [first, second] = members;
    match changes.map(|change| is_set(change.new)) {
        [true, true] => causes.push(path.invalid(
            format!("{{{first}, {second}}}"),
            &format!("must specify exactly one of: `{first}`, `{second}`"),
        )),
        [false, false] => {
            causes.push(path.invalid("", &format!("must specify one of: `{first}`, `{second}`")));
        }
        _ => {}
    }
}

/// A name that must be set.
pub(super) fn required_name(
    change: ValueUpdate<'_>,
    check: fn(&str) -> Wrong,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    match change.new.as_str().unwrap_or_default() {
        _ if change.is_none() => {}
        "" => causes.push(path.required("")),
        name => path.invalid_all(name, check(name), causes),
    }
}

/// The name of another object, if set.
pub(super) fn object_name(change: ValueUpdate<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if let Some(name) = change.new.as_str().filter(|_| !change.is_none()) {
        path.invalid_all(name, names::dns1123_subdomain(name), causes);
    }
}

/// How the members are scheduled: `count` is the field of a gang that says how many it needs.
pub(super) fn policy(change: ValueUpdate<'_>, count: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if change.is_none() {
        return;
    }
    union(change, ["basic", "gang"], path, causes);
    change.field("basic").immutable(&path.child("basic"), causes);
    let (gang, path) = (change.field("gang"), path.child("gang"));
    match (gang.old, gang.new) {
        (Some(Value::Null), Value::Null) | (None, Value::Null) => {}
        (Some(Value::Null), _) => {
            causes.push(path.invalid(Value::Null, "field cannot be set once created"));
        }
        (Some(_), Value::Null) => {
            causes.push(path.invalid(Value::Null, "field cannot be cleared once set"));
        }
        _ => least_count(gang.field(count), &path.child(count), causes),
    }
}

fn least_count(change: ValueUpdate<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    match change.new.as_i64().unwrap_or_default() {
        _ if change.is_none() => {}
        0 => causes.push(path.required("")),
        count if count < 1 => causes.push(path.invalid(count, "must be greater than or equal to 1")),
        _ => {}
    }
}

/// The domains that the members must share.
pub(super) fn constraints(change: ValueUpdate<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if !change.immutable(path, causes) {
        return;
    }
    let path = path.child("topology");
    let topology = list(change.new, "topology");
    if topology.len() > MOST_TOPOLOGIES {
        causes.push(too_many(&path, topology.len(), MOST_TOPOLOGIES));
        return;
    }
    for (i, constraint) in topology.iter().enumerate() {
        let (key, path) = (text(constraint, "key"), path.index(i));
        let path = path.child("key");
        if key.is_empty() {
            causes.push(path.required(""));
        } else {
            labels::check_key(key, &path, causes);
        }
    }
}

/// The resource claims that the members share.
pub(super) fn claims(change: ValueUpdate<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if change.is_none() {
        return;
    }
    let is_new = change.immutable(path, causes);
    if !few_enough(change.items(), MOST_CLAIMS, path, causes) || !is_new {
        return;
    }
    unique(change.items(), path, causes);
    for (i, claim) in change.items().iter().enumerate() {
        let (claim, path) = (ValueUpdate { new: claim, old: None }, path.index(i));
        union(claim, ["resourceClaimName", "resourceClaimTemplateName"], &path, causes);
        required_name(claim.field("name"), names::dns1123_label, &path.child("name"), causes);
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            object_name(claim.field(field), &path.child(field), causes);
        }
    }
}

/// The status of the shared claims.
pub(super) fn claim_statuses(change: ValueUpdate<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if change.is_none() || !few_enough(change.items(), MOST_CLAIMS, path, causes) {
        return;
    }
    unique(change.items(), path, causes);
    for (i, status) in change.items().iter().enumerate() {
        let known = named(change.old.map_or(&[], items), text(status, "name"));
        let name = ValueUpdate { new: status, old: known }.field("resourceClaimName");
        object_name(name, &path.index(i).child("resourceClaimName"), causes);
    }
}

/// The item of a list with a name.
pub(super) fn named<'a>(items: &'a [Value], name: &str) -> Option<&'a Value> {
    items.iter().find(|item| text(item, "name") == name)
}

/// Rejects a list of more than `most` items. Returns whether it is short enough.
pub(super) fn few_enough(
    items: &[Value],
    most: usize,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) -> bool {
    if items.len() > most {
        causes.push(too_many(path, items.len(), most));
    }
    items.len() <= most
}

/// The names of a short list must differ.
pub(super) fn unique(items: &[Value], path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    for (i, item) in items.iter().enumerate() {
        if named(&items[..i], text(item, "name")).is_some() {
            causes.push(path.index(i).duplicate(item.clone()));
        }
    }
}

/// The fields that groups and templates share, from the disruption mode on.
pub(super) fn disruption(owner: ValueUpdate<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (mode, at) = (owner.field("disruptionMode"), path.child("disruptionMode"));
    if mode.immutable(&at, causes) && !mode.new.is_null() {
        union(mode, ["single", "all"], &at, causes);
    }
    let (class, at) = (owner.field("priorityClassName"), path.child("priorityClassName"));
    if class.immutable(&at, causes) {
        object_name(class, &at, causes);
    }
    let (priority, at) = (owner.field("priority"), path.child("priority"));
    const HIGHEST: i64 = priority_class::HIGHEST_USER_DEFINABLE;
    if priority.immutable(&at, causes)
        && let Some(priority) = priority.new.as_i64().filter(|priority| *priority > HIGHEST)
    {
        causes.push(at.invalid(priority, &format!("must be less than or equal to {HIGHEST}")));
    }
    let (policy, at) = (owner.field("preemptionPolicy"), path.child("preemptionPolicy"));
    if policy.immutable(&at, causes)
        && let Some(policy) = policy.new.as_str().filter(|policy| !POLICIES.contains(policy))
    {
        causes.push(at.not_supported(policy, &POLICIES));
    }
}

/// The group that contains a group.
pub(super) fn parent(owner: ValueUpdate<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    const FIELD: &str = "parentCompositePodGroupName";
    let (name, path) = (owner.field(FIELD), path.child(FIELD));
    if name.immutable(&path, causes) {
        object_name(name, &path, causes);
    }
}

/// The template of a workload that a group is made from.
pub(super) fn workload_reference(reference: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let reference = ValueUpdate { new: reference, old: None };
    let (name, at) = (reference.field("workloadName"), path.child("workloadName"));
    required_name(name, names::dns1123_subdomain, &at, causes);
    let (name, at) = (reference.field("templateName"), path.child("templateName"));
    required_name(name, names::dns1123_label, &at, causes);
}

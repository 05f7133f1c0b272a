//! Field ownership for requests other than apply: the `metadata.managedFields` of created, updated
//! and patched objects.
//!
//! The caller decides about tracking by calling [`record_update`] on create or not. Later updates
//! do not track an object without managed fields, and so cost nothing, until the first apply
//! ([`super::apply`]).
//!
//! Simplifications: entries of other versions are assumed to have the same fields (no kind here has
//! two differing versions), and metadata that a type's status update resets is recorded
//! nevertheless.

use jiff::Timestamp;
use serde_json::Value;

use super::fields::Set;
use super::owners::{Owned, Owner, Owners, managed_fields, remove_managed_fields};
use super::typed::{self, TypeRef};
use crate::schema::TypeId;
use crate::time::timestamp;

/// The identity of a write for field ownership.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldManager<'a> {
    /// The name; [`manager_name`] derives it from a request.
    pub name: &'a str,
    /// The API version of the write: `apps/v1`.
    pub api_version: &'a str,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The type of the object; `None` for custom resources.
    pub type_id: Option<TypeId>,
    /// Whether the status can only be written through its subresource.
    pub status_apart: bool,
    /// The time of the request.
    pub now: Timestamp,
}

/// The name of a field manager: the `fieldManager` parameter, or the start of the User-Agent.
pub(crate) fn manager_name(field_manager: &str, user_agent: &str) -> String {
    const MAX_BYTES: usize = 128;
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for character in product.chars().filter(|character| !character.is_control()) {
        if name.len() + character.len_utf8() > MAX_BYTES {
            break;
        }
        name.push(character);
    }
    name
}

/// Records the write in the managed fields of `new`. `old` is the previous object; `None` for a new
/// one.
///
/// Upstream does this after defaulting and before admission.
pub(crate) fn record_update(manager: &FieldManager<'_>, old: Option<&Value>, new: &mut Value) {
    let mut owners = owners_before(manager, old, new);
    remove_managed_fields(new);
    if owners.is_empty() && old.is_some() {
        return;
    }
    match old {
        Some(old) => manager.update(&mut owners, old, new),
        None => manager.update(&mut owners, &typed::zero(manager.type_id), new),
    }
    owners.write_to(new);
}

/// Restores the managed fields of `old` if nothing but their times changed.
pub(crate) fn keep_times(old: &Value, new: &mut Value) {
    let (Some(before), Some(after)) = (managed_fields(old), managed_fields(new)) else { return };
    if same_but_for_times(before, after) && same_but_for_managed_fields(old, new) {
        new["metadata"]["managedFields"] = before.clone();
    }
}

impl FieldManager<'_> {
    pub(super) fn type_ref(&self) -> TypeRef {
        TypeRef::of(self.type_id)
    }

    /// The time in the format of `metadata.managedFields`.
    pub(super) fn time(&self) -> String {
        timestamp(self.now)
    }

    /// The fields that this request cannot write.
    pub(super) fn ignored(&self) -> Set {
        match self.subresource {
            "" if self.status_apart => Set::of(&[&["status"]]),
            "status" => Set::of(&[&["spec"]]),
            _ => Set::default(),
        }
    }

    /// Makes the manager the owner of the fields that it changes.
    pub(super) fn update(&self, owners: &mut Owners, old: &Value, new: &Value) {
        let comparison = typed::compare(old, new, self.type_ref()).without(&self.ignored());
        owners.disown(&comparison, None);
        let changed = stripped(&comparison.modified.union(&comparison.added));
        if !changed.is_empty() {
            let owner = Owner::update(self.name, self.api_version, self.subresource);
            let owned = owners.0.entry(owner).or_default();
            *owned = Owned {
                fields: std::mem::take(&mut owned.fields).union(&changed),
                api_version: self.api_version.to_owned(),
                time: Some(self.time()),
            };
        }
        owners.cap();
    }
}

/// The fields without those that are never owned.
pub(super) fn stripped(fields: &Set) -> Set {
    let nobodys = Set::of(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ]);
    fields.difference(&nobodys)
}

fn owners_before(manager: &FieldManager<'_>, old: Option<&Value>, new: &Value) -> Owners {
    // Clients that drop or corrupt the managed fields do not lose them.
    let of_old = || Owners::of(old).unwrap_or_default();
    if !manager.subresource.is_empty() {
        return of_old();
    }
    if managed_fields(new).and_then(Value::as_array).is_some_and(|entries| is_reset(entries)) {
        return Owners::default();
    }
    Owners::of(Some(new)).ok().filter(|owners| !owners.is_empty()).unwrap_or_else(of_old)
}

/// Whether the caller clears the managed fields, by an empty list or a list with one empty entry.
fn is_reset(entries: &[Value]) -> bool {
    match entries {
        [] => true,
        [entry] => entry.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    }
}

fn same_but_for_times(before: &Value, after: &Value) -> bool {
    let (Some(before), Some(after)) = (before.as_array(), after.as_array()) else { return false };
    let same_entry = |(before, after): (&Value, &Value)| {
        let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else { return false };
        let timeless = |fields: &'_ serde_json::Map<String, Value>| {
            fields.len() - usize::from(fields.contains_key("time"))
        };
        timeless(before) == timeless(after)
            && before.iter().all(|(name, value)| name == "time" || after.get(name) == Some(value))
    };
    before.len() == after.len() && before.iter().zip(after).all(same_entry)
}

fn same_but_for_managed_fields(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
    let same_metadata = |old: &Value, new: &Value| {
        let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
        old.len() == new.len()
            && old.iter().all(|(name, value)| name == "managedFields" || new.get(name) == Some(value))
    };
    old.len() == new.len()
        && old.iter().all(|(name, value)| match new.get(name) {
            Some(new) if name == "metadata" => same_metadata(value, new),
            other => other == Some(value),
        })
}

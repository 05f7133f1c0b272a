//! Updates existing objects.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::writer::{State, Writer};
use crate::depth;
use crate::json::{object_mut, restore, text_in};
use crate::kinds::{Kind, Subresource};
use crate::object::StoredObject;
use crate::patch::managed::{keep_times, record_update};
use crate::status::{Result, Status, StatusCause};
use crate::strategy::pod::{disabled, resize};
use crate::strategy::{self, Strategy, namespace};
use crate::time::timestamp;

/// The part of an object that an update may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything except the subresources.
    Main,
    /// The status.
    Status,
    /// Whatever the rules of the subresource allow.
    Sub(Subresource),
}

impl Part {
    /// Whether changes increase the generation.
    fn counts(self) -> bool {
        use Subresource::{EphemeralContainers, Resize, Scale};
        matches!(self, Self::Main | Self::Sub(EphemeralContainers | Resize | Scale))
    }

    /// The name in paths and in managedFields.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Sub(subresource) => subresource.name(),
        }
    }
}

/// The result of a replacement.
pub(crate) enum Updated {
    /// The object was created.
    Created(Arc<StoredObject>),
    /// The object was updated, or already equal.
    Changed(Arc<StoredObject>),
}

impl Writer<'_> {
    /// Replaces an object, or creates it if the kind allows creation on update.
    pub(crate) fn replace(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        part: Part,
        object: Value,
    ) -> Result<Updated> {
        let given = text_in(&object, &["metadata", "name"]);
        if given.is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        }
        if given != name {
            return Err(Status::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        let given = text_in(&object, &["metadata", "namespace"]);
        if !given.is_empty() && given != namespace {
            let message =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
        if part == Part::Main
            && strategy::of(kind).allows_create_on_update()
            && self.state.get(kind, namespace, name).is_err()
        {
            return self.create(kind, namespace, object).map(Updated::Created);
        }
        self.update(kind, namespace, name, part, |_, old| {
            check_uid(kind, name, &object, old)?;
            Ok(object)
        })
        .map(Updated::Changed)
    }

    /// Updates an object. `change` derives the new object from the current one and may look up
    /// others; the result is validated and stored.
    pub(crate) fn update(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        part: Part,
        change: impl FnOnce(&State, &Value) -> Result<Value>,
    ) -> Result<Arc<StoredObject>> {
        let current = Arc::clone(self.state.get(kind, namespace, name)?);
        let mut old = current.value(kind);
        let mut new = change(self.state, &old)?;
        depth::check(&new)?;
        check_version(kind, name, part, &new, &old)?;
        let strategy = strategy::of(kind);
        if kind.is_converted() {
            strategy::event::to_core(&mut new);
            strategy::event::to_core(&mut old);
        }
        if !(self.pod_groups || kind.custom) {
            disabled::drop_group(&mut new, &old);
        }
        strategy.default(&mut new);
        keep_metadata(&mut new, &old);
        if part == Part::Main {
            strategy.admit_update(&mut new, &old, &*self.state)?;
        }
        prepare(strategy, kind, part, &mut new, &old);
        match part {
            Part::Main => strategy.stamp_update(&mut new, &old, &timestamp(self.now)),
            Part::Status => strategy.stamp_status(&mut new, &old, &timestamp(self.now)),
            Part::Sub(_) => {}
        }
        if kind.is_definition() {
            strategy::crd::establish(&mut new, &timestamp(self.now));
        }
        let causes = causes(strategy, part, &new, &old);
        if !causes.is_empty() {
            return Err(Status::invalid(kind, name, causes));
        }
        let counts =
            if kind.custom { spec_changes(&new, &old) } else { strategy.changes_generation(&new, &old) };
        if part.counts() && (kind.custom || strategy.has_generation()) && counts {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            new["metadata"]["generation"] = (generation + 1).into();
        }
        if new == old {
            return Ok(current);
        }
        if self.applies {
            keep_times(&old, &mut new);
            if new == old {
                return Ok(current);
            }
        }
        if !self.applies && (self.managed_fields || is_managed(&old)) {
            record_update(&self.field_manager(kind, &kind.api_version(), part.name()), Some(&old), &mut new);
        }
        Ok(self.keep(kind, new))
    }

    /// Stores a changed object, or removes one whose last finalizer is gone.
    pub(super) fn keep(&mut self, kind: &Kind, new: Value) -> Arc<StoredObject> {
        let ended = is_ended(kind, &new);
        if self.dry_run {
            // The object and its version stay unchanged.
            let version = text_in(&new, &["metadata", "resourceVersion"]).parse().unwrap_or_default();
            return Arc::new(StoredObject::new(kind, new, version));
        }
        let object = Arc::new(StoredObject::new(kind, new, self.state.store.next_version()));
        if ended {
            self.remove(kind, Arc::clone(&object));
            return object;
        }
        self.state.store.put(&kind.resource_key(), Arc::clone(&object));
        self.kept(kind, &object);
        object
    }

    /// Stores a new or changed object without validation.
    pub(crate) fn keep_as_is(&mut self, kind: &Kind, object: Value) {
        let object = Arc::new(StoredObject::new(kind, object, self.state.store.next_version()));
        self.state.store.put(&kind.resource_key(), Arc::clone(&object));
        self.kept(kind, &object);
    }
}

/// Whether a terminating object can be removed.
pub(super) fn is_ended(kind: &Kind, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let none = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    metadata.get("deletionTimestamp").is_some()
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0
        && none(&metadata["finalizers"])
        && (!kind.is_namespace() || none(&object["spec"]["finalizers"]))
}

/// Rejects a replacement that is meant for another object of the same name.
fn check_uid(kind: &Kind, name: &str, new: &Value, old: &Value) -> Result<()> {
    let (wanted, uid) = (text_in(new, &["metadata", "uid"]), text_in(old, &["metadata", "uid"]));
    if wanted.is_empty() || wanted == uid {
        return Ok(());
    }
    let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
    Err(Status::conflict(kind, name, why))
}

/// Rejects an update that is not based on the current version.
fn check_version(kind: &Kind, name: &str, part: Part, new: &Value, old: &Value) -> Result<()> {
    let of = |object| text_in(object, &["metadata", "resourceVersion"]);
    match of(new) {
        "" | "0" => {}
        wanted if wanted == of(old) => return Ok(()),
        wanted if wanted.parse::<u64>().is_err() => {
            let why = format!("strconv.ParseUint: parsing {wanted:?}: invalid syntax");
            return Err(Status::unknown(StatusCode::INTERNAL_SERVER_ERROR, why));
        }
        _ => return Err(Status::stale(kind, name)),
    }
    let must = kind.custom || !strategy::of(kind).allows_unconditional_update();
    if must && matches!(part, Part::Main | Part::Status) {
        let cause =
            StatusCause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
        // Upstream names the resource in this error.
        return Err(Status::invalid_of(&kind.stored_in_group, &kind.resource, name, vec![cause]));
    }
    Ok(())
}

/// Restores the metadata that updates cannot change.
fn keep_metadata(new: &mut Value, old: &Value) {
    object_mut(new, "metadata");
    let (metadata, old) = (&mut new["metadata"], &old["metadata"]);
    let kept = [
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "namespace",
        "resourceVersion",
        "selfLink",
    ];
    for field in kept {
        restore(metadata, old, field);
    }
    // A different UID is rejected, not overwritten.
    for field in ["uid", "managedFields"] {
        if metadata.get(field).is_none() {
            restore(metadata, old, field);
        }
    }
}

fn prepare(strategy: &dyn Strategy, kind: &Kind, part: Part, new: &mut Value, old: &Value) {
    match part {
        Part::Main => {
            strategy.prepare_for_update(new, old);
            if kind.custom && kind.has(Subresource::Status) {
                restore(new, old, "status");
            }
        }
        Part::Status => {
            strategy.prepare_for_status_update(new, old);
            if kind.custom {
                keep_only(new, old, "status");
            }
        }
        Part::Sub(Subresource::Resize) => resize::prepare(new, old),
        Part::Sub(Subresource::EphemeralContainers) => resize::prepare_ephemeral(new, old),
        Part::Sub(Subresource::Finalize) => namespace::prepare_for_finalize(new, old),
        Part::Sub(_) => {}
    }
}

fn causes(strategy: &dyn Strategy, part: Part, new: &Value, old: &Value) -> Vec<StatusCause> {
    let causes = match part {
        Part::Main => strategy.validate_update(new, old),
        Part::Status => strategy.validate_status_update(new, old),
        Part::Sub(Subresource::Resize) => resize::validate(new, old),
        Part::Sub(Subresource::EphemeralContainers) => resize::validate_ephemeral(new, old),
        Part::Sub(Subresource::Finalize) => namespace::validate_finalize(new),
        Part::Sub(_) => return Vec::new(),
    };
    StatusCause::union(strategy::meta::validate_update(new, old), causes)
}

/// Restores everything except one field and the managed fields.
fn keep_only(new: &mut Value, old: &Value, field: &str) {
    let changed = std::mem::replace(new, old.clone());
    restore(&mut new["metadata"], &changed["metadata"], "managedFields");
    restore(new, &changed, field);
}

/// Whether a custom object changed outside of its metadata and status.
fn spec_changes(new: &Value, old: &Value) -> bool {
    let counted = |object: &Value, other: &Value| {
        object.as_object().into_iter().flatten().any(|(key, value)| {
            !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status")
                && other.get(key) != Some(value)
        })
    };
    counted(new, old) || counted(old, new)
}

/// Whether the object has managed fields.
fn is_managed(object: &Value) -> bool {
    object["metadata"]["managedFields"].as_array().is_some_and(|managers| !managers.is_empty())
}

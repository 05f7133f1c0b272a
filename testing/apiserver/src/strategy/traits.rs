//! The traits of strategies, and the lookup of other objects.

use serde_json::Value;

use super::names::{self, Wrong};
use crate::status::{Result, StatusCause};

/// Looks up other objects for a strategy.
pub(crate) trait Lookup {
    /// One object, as JSON.
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value>;

    /// Those of the given labels that an object has; empty if it does not exist.
    fn labels(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
        keys: &[&'static str],
    ) -> Vec<(&'static str, Value)> {
        let Some(object) = self.get(group, resource, namespace, name) else { return Vec::new() };
        let labels = &object["metadata"]["labels"];
        keys.iter().filter_map(|key| Some((*key, labels.get(key)?.clone()))).collect()
    }

    /// All objects of a resource, in one namespace or, for `""`, in all.
    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Value>;
}

/// The behaviour that a kind adds. Objects are decoded JSON: known fields have the right types.
pub(crate) trait Strategy: Send + Sync {
    /// Fills in defaults. Runs on each write before validation, on old and new objects.
    fn default(&self, _object: &mut Value) {}

    /// Admits a new object: everything that depends on other objects, and rejections other than
    /// field errors (403, 404).
    fn admit(&self, _object: &mut Value, _objects: &dyn Lookup) -> Result<()> {
        Ok(())
    }

    /// Admits a change through the main resource. Runs before `prepare_for_update`.
    fn admit_update(&self, _object: &mut Value, _old: &Value, _objects: &dyn Lookup) -> Result<()> {
        Ok(())
    }

    /// Admits a deletion.
    fn admit_delete(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    /// Removes or sets the fields that callers may not write on create, such as the status. The
    /// object already has its name and UID.
    fn prepare_for_create(&self, _object: &mut Value) {}

    /// Sets the times of a new object. Runs after `prepare_for_create`; `now` is in the format of
    /// the API.
    fn stamp_new(&self, _object: &mut Value, _now: &str) {}

    /// Restores the fields that callers may not change through the main resource, such as the
    /// status.
    fn prepare_for_update(&self, _object: &mut Value, _old: &Value) {}

    /// Restores the fields that callers may not change through the status subresource: everything
    /// but the status and some metadata.
    fn prepare_for_status_update(&self, _object: &mut Value, _old: &Value) {}

    /// Sets the times of an object that changes through the main resource. Runs after
    /// `prepare_for_update`.
    fn stamp_update(&self, _object: &mut Value, _old: &Value, _now: &str) {}

    /// Sets the times of a status. Runs after `prepare_for_status_update`.
    fn stamp_status(&self, _object: &mut Value, _old: &Value, _now: &str) {}

    /// Validates a new object, except for its metadata.
    fn validate(&self, _object: &Value) -> Vec<StatusCause> {
        Vec::new()
    }

    /// Validates a change. `validate` is not called for changes.
    fn validate_update(&self, _object: &Value, _old: &Value) -> Vec<StatusCause> {
        Vec::new()
    }

    /// Validates a change of the status.
    fn validate_status_update(&self, _object: &Value, _old: &Value) -> Vec<StatusCause> {
        Vec::new()
    }

    /// The fields that field selectors may use, besides `metadata.name` and `metadata.namespace`.
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The value of a selectable field.
    fn field(&self, _object: &Value, _name: &str) -> String {
        String::new()
    }

    /// Whether `metadata.generation` counts changes of the spec. True for most kinds with a status.
    fn has_generation(&self) -> bool {
        false
    }

    /// Validates a name. The default is a DNS-1123 subdomain.
    fn check_name(&self, name: &str) -> Wrong {
        names::dns1123_subdomain(name)
    }

    /// Whether a change through the main resource increases the generation. Only called for kinds
    /// with generations.
    fn changes_generation(&self, object: &Value, old: &Value) -> bool {
        object.get("spec") != old.get("spec")
    }

    /// Whether an update may omit the resourceVersion.
    fn allows_unconditional_update(&self) -> bool {
        true
    }

    /// Whether an update of a missing object creates it.
    fn allows_create_on_update(&self) -> bool {
        false
    }
}

/// The strategy of kinds that add nothing.
pub(super) struct Plain;

impl Strategy for Plain {}

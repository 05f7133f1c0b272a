//! The traits of strategies: what a kind adds, and the objects that it may look up.

use serde_json::Value;

use super::names::{self, Wrong};
use crate::status::{Cause, Result};

/// Objects that a strategy may look up.
pub(crate) trait Lookup {
    /// One object, as JSON.
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value>;

    /// Some labels of an object, as far as it has them. Empty when it is not there.
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

/// What a kind adds. The object is JSON that has been pruned to its schema: known fields have the right types.
pub(crate) trait Strategy: Send + Sync {
    /// Fills in what the caller left out. Runs on each write, before the checks, on objects old and new.
    fn default(&self, _object: &mut Value) {}

    /// Admission of a new object: what depends on other objects, and refusals that are no field errors (403, 404).
    fn admit(&self, _object: &mut Value, _objects: &dyn Lookup) -> Result<()> {
        Ok(())
    }

    /// Admission of a change through the main resource. Runs before `prepare_for_update`.
    fn admit_update(&self, _object: &mut Value, _old: &Value, _objects: &dyn Lookup) -> Result<()> {
        Ok(())
    }

    /// Admission of a deletion.
    fn admit_delete(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    /// Removes or sets what callers may not write when they create (the status, for one). The
    /// object has its name and UID by then.
    fn prepare_for_create(&self, _object: &mut Value) {}

    /// Restores what callers may not change through the main resource (the status, for one).
    fn prepare_for_update(&self, _object: &mut Value, _old: &Value) {}

    /// Restores what callers may not change through the status subresource (all but the status and some metadata).
    fn prepare_for_status_update(&self, _object: &mut Value, _old: &Value) {}

    /// What is wrong with a new object, beside what is wrong with any object's metadata.
    fn validate(&self, _object: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// What is wrong with a change. `validate` is not called beside it.
    fn validate_update(&self, _object: &Value, _old: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// What is wrong with a change of the status.
    fn validate_status_update(&self, _object: &Value, _old: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// The names of the fields that field selectors may name, beside `metadata.name` and `metadata.namespace`.
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The value of a selectable field.
    fn field(&self, _object: &Value, _name: &str) -> String {
        String::new()
    }

    /// Whether `metadata.generation` counts the changes of the spec. True for most kinds that have a status.
    fn has_generation(&self) -> bool {
        false
    }

    /// What is wrong with a name. DNS-1123 subdomains by default.
    fn check_name(&self, name: &str) -> Wrong {
        names::dns1123_subdomain(name)
    }

    /// Whether the main resource's next generation is due. Only asked where there are generations.
    fn changes_generation(&self, object: &Value, old: &Value) -> bool {
        object.get("spec") != old.get("spec")
    }

    /// Whether an update may leave out the resourceVersion.
    fn allows_unconditional_update(&self) -> bool {
        true
    }

    /// Whether an update of what is not there creates it.
    fn allows_create_on_update(&self) -> bool {
        false
    }
}

/// A kind that adds nothing.
pub(super) struct Plain;

impl Strategy for Plain {}

//! What a kind adds to the general handling of objects: defaults, checks, and what it never lets a caller write. Upstream's
//! word is strategy.

pub mod json;
pub mod labels;
pub mod names;
pub mod path;
pub mod pod;
pub mod quantity;
pub mod resources;
pub mod selectors;
pub mod taints;

use serde_json::Value;

use crate::kinds::Kind;
use crate::status::{Cause, Result};

/// Objects that a strategy may look up.
pub trait Lookup {
    /// One object, as JSON.
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value>;
    /// All objects of a resource, in one namespace or, for `""`, in all.
    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Value>;
}

/// What a kind adds. The object is JSON that has been pruned to its schema: known fields have the right types.
pub trait Strategy: Send + Sync {
    /// Fills in what the caller left out. Runs on each write, before the checks, on objects old and new.
    fn default(&self, _object: &mut Value) {}

    /// Admission of a new object: what depends on other objects, and refusals that are no field errors (403, 404).
    fn admit(&self, _object: &mut Value, _objects: &dyn Lookup) -> Result<()> {
        Ok(())
    }

    /// Removes or sets what callers may not write when they create (the status, for one).
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

    /// How a name that cannot be is refused; `None` when it can be. DNS-1123 subdomains by default.
    fn invalid_name(&self, _name: &str) -> Option<&'static str> {
        None
    }

    /// How long deletion waits when the caller does not say, in seconds. Pods that run have 30.
    fn default_grace_period(&self, _object: &Value) -> i64 {
        0
    }
}

/// A kind that adds nothing.
struct Plain;

impl Strategy for Plain {}

/// The strategy of a kind.
pub fn of(kind: &Kind) -> &'static dyn Strategy {
    match (kind.group.as_ref(), kind.resource.as_ref()) {
        ("", "pods") => &pod::Pods,
        _ => &Plain,
    }
}

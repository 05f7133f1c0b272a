//! Leases.

use serde_json::Value;

use super::labels;
use super::path::Path;
use super::traits::Strategy;
use crate::json::{int, object_mut, present, text};
use crate::status::StatusCause;

/// Leases.
pub(crate) struct Lease;

const STRATEGY: &str = "OldestEmulationVersion";

impl Strategy for Lease {
    fn default(&self, lease: &mut Value) {
        object_mut(lease, "spec");
    }

    fn validate(&self, lease: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let (spec, path) = (&lease["spec"], Path::root("spec"));
        if let Some(seconds) = int(spec, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
            causes.push(path.child("leaseDurationSeconds").invalid(seconds, "must be greater than 0"));
        }
        if let Some(count) = int(spec, "leaseTransitions").filter(|count| *count < 0) {
            let why = "must be greater than or equal to 0";
            causes.push(path.child("leaseTransitions").invalid(count, why));
        }
        let strategy = present(spec, "strategy").and_then(Value::as_str);
        if let Some(strategy) = strategy {
            let path = path.child("strategy");
            let path = path.child("strategy");
            if strategy.contains('/') {
                path.invalid_all(strategy, labels::key(strategy), &mut causes);
            } else if strategy != STRATEGY {
                causes.push(path.not_supported(strategy, &[STRATEGY]));
            }
        }
        if !text(spec, "preferredHolder").is_empty() && strategy.is_none_or(str::is_empty) {
            let why = "may only be specified if `strategy` is defined";
            causes.push(path.child("preferredHolder").forbidden(why));
        }
        causes
    }

    fn prepare_for_create(&self, lease: &mut Value) {
        drop_coordinated(lease, None);
    }

    fn prepare_for_update(&self, lease: &mut Value, old: &Value) {
        drop_coordinated(lease, Some(old));
    }

    fn validate_update(&self, lease: &Value, _old: &Value) -> Vec<StatusCause> {
        self.validate(lease)
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

/// Coordinated leader election is disabled by default: its fields are dropped from new objects, and
/// kept in existing ones.
fn drop_coordinated(lease: &mut Value, old: Option<&Value>) {
    let is_used = old.is_some_and(|old| {
        present(&old["spec"], "strategy").is_some() || present(&old["spec"], "preferredHolder").is_some()
    });
    if !is_used && let Some(spec) = lease.get_mut("spec") {
        crate::json::remove(spec, "strategy");
        crate::json::remove(spec, "preferredHolder");
    }
}

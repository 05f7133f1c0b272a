//! Composite pod groups.

use serde_json::Value;

use super::super::checks::check_conditions;
use super::super::path::Path;
use super::super::status;
use super::super::traits::{Lookup, Strategy};
use super::rules::{self, ValueUpdate};
use crate::json::{object_mut, restore};
use crate::status::{Result, StatusCause};

/// Pod groups, or composite ones, that are scheduled together.
pub(crate) struct CompositePodGroup;

const SPEC: Path<'static> = Path::root("spec");

impl Strategy for CompositePodGroup {
    fn default(&self, group: &mut Value) {
        super::default(group);
    }

    fn admit(&self, group: &mut Value, objects: &dyn Lookup) -> Result<()> {
        super::admit_priority(group, "compositepodgroups", "composite pod group", objects)
    }

    fn prepare_for_create(&self, group: &mut Value) {
        status::reset(group);
        object_mut(group, "status");
    }

    fn prepare_for_update(&self, group: &mut Value, old: &Value) {
        restore(group, old, "status");
    }

    fn prepare_for_status_update(&self, group: &mut Value, old: &Value) {
        status::only_status(group, old);
        status::keep_metadata(group, old);
    }

    fn validate(&self, group: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        check_spec(ValueUpdate { new: &group["spec"], old: None }, &mut causes);
        causes
    }

    fn validate_update(&self, group: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        check_spec(ValueUpdate { new: &group["spec"], old: Some(&old["spec"]) }, &mut causes);
        causes
    }

    fn validate_status_update(&self, group: &Value, _old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        check_conditions(&group["status"], &Path::root("status"), &mut causes);
        causes
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

fn check_spec(spec: ValueUpdate<'_>, causes: &mut Vec<StatusCause>) {
    rules::parent(spec, &SPEC, causes);
    let (reference, path) = (spec.field("workloadRef"), SPEC.child("workloadRef"));
    let is_new = reference.immutable(&path, causes);
    if reference.new.is_null() {
        causes.push(path.required(""));
    } else if is_new {
        rules::workload_reference(reference.new, &path, causes);
    }
    let (policy, path) = (spec.field("schedulingPolicy"), SPEC.child("schedulingPolicy"));
    if policy.immutable(&path, causes) {
        rules::policy(policy, "minGroupCount", &path, causes);
    }
    let (constraints, path) = (spec.field("schedulingConstraints"), SPEC.child("schedulingConstraints"));
    rules::constraints(constraints, &path, causes);
    rules::disruption(spec, &SPEC, causes);
}

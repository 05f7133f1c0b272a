//! Pod groups.

use serde_json::{Value, json};

use super::super::checks::check_conditions;
use super::super::path::Path;
use super::super::status;
use super::super::traits::{Lookup, Strategy};
use super::rules::{self, ValueUpdate};
use crate::json::{list, object_mut, present, restore, text};
use crate::status::{Result, StatusCause};

/// Pods that are scheduled together.
pub(crate) struct PodGroup;

/// The finalizer that keeps a group while it has active pods.
pub(crate) const PROTECTION: &str = "scheduling.k8s.io/podgroup-protection";
const SPEC: Path<'static> = Path::root("spec");
const STATUS: Path<'static> = Path::root("status");

impl Strategy for PodGroup {
    fn default(&self, group: &mut Value) {
        super::default(group);
    }

    fn admit(&self, group: &mut Value, objects: &dyn Lookup) -> Result<()> {
        super::admit_priority(group, "podgroups", "pod group", objects)?;
        protect(group);
        Ok(())
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
        let spec = &group["spec"];
        if present(spec, "parentCompositePodGroupName").is_some() && present(spec, "workloadRef").is_none() {
            let why = "must be set when parentCompositePodGroupName is set";
            causes.push(SPEC.child("workloadRef").required(why));
        }
        check_spec(ValueUpdate { new: spec, old: None }, &mut causes);
        causes
    }

    fn validate_update(&self, group: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        check_spec(ValueUpdate { new: &group["spec"], old: Some(&old["spec"]) }, &mut causes);
        causes
    }

    fn validate_status_update(&self, group: &Value, old: &Value) -> Vec<StatusCause> {
        const FIELD: &str = "resourceClaimStatuses";
        let mut causes = Vec::new();
        let (spec, status, path) = (&group["spec"], &group["status"], STATUS.child(FIELD));
        check_conditions(status, &STATUS, &mut causes);
        for (i, claim) in list(status, FIELD).iter().enumerate() {
            let name = text(claim, "name");
            if rules::named(list(spec, "resourceClaims"), name).is_none() {
                let why = "must match the name of an entry in `spec.resourceClaims`";
                causes.push(path.index(i).child("name").invalid(name, why));
            }
        }
        let change = ValueUpdate { new: status, old: Some(&old["status"]) }.field(FIELD);
        rules::claim_statuses(change, &path, &mut causes);
        causes
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

/// Adds the finalizer to a new group; upstream's admission plugin PodGroupProtection.
fn protect(group: &mut Value) {
    let Some(metadata) = object_mut(group, "metadata") else { return };
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut().filter(|all| !all.iter().any(|one| one == PROTECTION))
    {
        finalizers.push(PROTECTION.into());
    }
}

fn check_spec(spec: ValueUpdate<'_>, causes: &mut Vec<StatusCause>) {
    rules::parent(spec, &SPEC, causes);
    let (reference, path) = (spec.field("workloadRef"), SPEC.child("workloadRef"));
    if reference.immutable(&path, causes) && !reference.new.is_null() {
        rules::workload_reference(reference.new, &path, causes);
    }
    rules::policy(spec.field("schedulingPolicy"), "minCount", &SPEC.child("schedulingPolicy"), causes);
    let (constraints, path) = (spec.field("schedulingConstraints"), SPEC.child("schedulingConstraints"));
    rules::constraints(constraints, &path, causes);
    rules::claims(spec.field("resourceClaims"), &SPEC.child("resourceClaims"), causes);
    rules::disruption(spec, &SPEC, causes);
}

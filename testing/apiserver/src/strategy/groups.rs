//! The kinds of gang scheduling: pod groups, composite pod groups and workloads. They are served
//! with [`Settings::pod_groups`](crate::Settings::pod_groups).

mod composite;
mod pod_group;
mod rules;
mod workload;

use serde_json::{Value, json};

use super::priority_class;
use super::traits::Lookup;
use crate::json::{object_mut, set_default};
use crate::kinds::built_in;
use crate::status::{Result, Status};

pub(crate) use composite::CompositePodGroup;
pub(crate) use pod_group::{PROTECTION, PodGroup};
pub(crate) use workload::Workload;

const GROUP: &str = "scheduling.k8s.io";

/// The defaults that both kinds of groups share.
fn default(group: &mut Value) {
    object_mut(group, "spec");
    object_mut(group, "status");
    set_default(&mut group["spec"], "disruptionMode", json!({"single": {}}));
    set_default(&mut group["spec"], "preemptionPolicy", "PreemptLowerPriority");
}

/// Sets the priority and the preemption policy of a new group from its class.
fn admit_priority(group: &mut Value, resource: &str, noun: &str, objects: &dyn Lookup) -> Result<()> {
    let refuse = |group: &Value, why: String| {
        // The table of kinds is constant, and contains the kinds of groups.
        let kind = built_in().iter().find(|kind| kind.group == GROUP && kind.resource == resource);
        kind.map_or_else(|| Status::internal(&why), |kind| priority_class::forbidden(kind, group, &why))
    };
    let different = |given: i64, computed: i64| {
        format!(
            "priority set in the {noun} ({given}) must match the priority computed ({computed}) based on the priority \
             class set in the spec"
        )
    };
    priority_class::admit(group, noun, different, refuse, objects)
}

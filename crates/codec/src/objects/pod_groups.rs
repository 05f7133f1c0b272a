//! Groups of pods.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use supercargo_framework::objects::{Body, GroupPolicy, PodGroup};

use super::document::Document;
use crate::error::FieldError;
use crate::interners::Interners;
use crate::json::{List, Obj, Str};
use crate::metadata::Metadata;
use crate::pod::Condition;

/// The condition that says whether the group was scheduled once.
const INITIALLY_SCHEDULED: &str = "PodGroupInitiallyScheduled";

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WirePodGroup<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<GroupSpec<'a>>,
    #[serde(borrow)]
    status: Obj<GroupStatus<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GroupSpec<'a> {
    #[serde(borrow)]
    parent_composite_pod_group_name: Option<Str<'a>>,
    scheduling_policy: Obj<Policy>,
    #[serde(borrow)]
    scheduling_constraints: Obj<Constraints<'a>>,
    disruption_mode: Obj<DisruptionMode>,
    priority: Option<i32>,
    #[serde(borrow)]
    preemption_policy: Option<Str<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Policy {
    gang: Option<Obj<Gang>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Gang {
    min_count: i32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Constraints<'a> {
    #[serde(borrow)]
    topology: List<Obj<Topology<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Topology<'a> {
    #[serde(borrow)]
    key: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DisruptionMode {
    all: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupStatus<'a> {
    #[serde(borrow)]
    conditions: List<Obj<Condition<'a>>>,
}

impl<'a> Document<'a> for WirePodGroup<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, shared: &mut Interners, _: Option<Arc<Value>>) -> Result<Body, FieldError> {
        let spec = &self.spec;
        let gang = spec.scheduling_policy.gang.as_ref();
        let mut conditions = self.status.conditions.iter().enumerate();
        let condition = conditions.find(|(_, condition)| &*condition.kind == INITIALLY_SCHEDULED);
        Ok(Body::PodGroup(PodGroup {
            policy: gang.map_or(GroupPolicy::Basic, |gang| GroupPolicy::Gang(gang.min_count)),
            parent: spec.parent_composite_pod_group_name.as_ref().map(|name| shared.text(name)),
            topology_key: spec.scheduling_constraints.topology.iter().next().map(|it| shared.text(&it.key)),
            is_disrupted_whole: spec.disruption_mode.all.is_some(),
            priority: spec.priority.unwrap_or_default(),
            never_preempts: spec.preemption_policy.as_ref().map(|policy| &**policy == "Never"),
            initially_scheduled: condition.map(|(i, it)| shared.pod_condition(i, it)).transpose()?,
        }))
    }
}

//! Groups of pods.

use serde::Deserialize;
use serde::de::IgnoredAny;
use supercargo_framework::objects::{Body, CompositePodGroup, GroupKind, GroupPolicy, GroupSpec, PodGroup};
use supercargo_framework::raw_object::RawObject;

use super::document::Document;
use crate::error::FieldError;
use crate::interners::Interners;
use crate::json::{List, Obj, Str};
use crate::metadata::{Metadata, time};
use crate::pod::{ClaimStatus, Condition, WirePodClaim};

/// The condition that says whether the group was scheduled once.
const INITIALLY_SCHEDULED: &str = "PodGroupInitiallyScheduled";

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WirePodGroup<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<WireSpec<'a>>,
    #[serde(borrow)]
    status: Obj<GroupStatus<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireCompositePodGroup<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<WireSpec<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireSpec<'a> {
    #[serde(borrow)]
    parent_composite_pod_group_name: Option<Str<'a>>,
    scheduling_policy: Obj<Policy>,
    #[serde(borrow)]
    scheduling_constraints: Option<Obj<Constraints<'a>>>,
    disruption_mode: Obj<DisruptionMode>,
    priority: Option<i32>,
    #[serde(borrow)]
    preemption_policy: Option<Str<'a>>,
    /// Of a PodGroup.
    #[serde(borrow)]
    resource_claims: List<Obj<WirePodClaim<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Policy {
    gang: Option<Obj<Gang>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Gang {
    /// Of a PodGroup.
    min_count: i32,
    /// Of a CompositePodGroup.
    min_group_count: i32,
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
#[serde(default, rename_all = "camelCase")]
struct GroupStatus<'a> {
    #[serde(borrow)]
    conditions: List<Obj<Condition<'a>>>,
    #[serde(borrow)]
    resource_claim_statuses: List<Obj<ClaimStatus<'a>>>,
}

impl<'a> Document<'a> for WirePodGroup<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        let mut conditions = self.status.conditions.iter().enumerate();
        let condition = conditions.find(|(_, condition)| &*condition.kind == INITIALLY_SCHEDULED);
        let statuses = &self.status.resource_claim_statuses;
        Ok(Body::PodGroup(PodGroup {
            spec: self.spec.read(GroupKind::Pods, &self.metadata, shared)?,
            initially_scheduled: condition.map(|(i, it)| shared.pod_condition(i, it)).transpose()?,
            claims: self.spec.resource_claims.iter().map(|claim| shared.pod_claim(claim)).collect(),
            claim_statuses: statuses.iter().map(|status| shared.claim_status(status)).collect(),
        }))
    }
}

impl<'a> Document<'a> for WireCompositePodGroup<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        let spec = self.spec.read(GroupKind::Groups, &self.metadata, shared)?;
        Ok(Body::CompositePodGroup(CompositePodGroup { spec }))
    }
}

impl WireSpec<'_> {
    fn read(
        &self,
        kind: GroupKind,
        metadata: &Metadata<'_>,
        shared: &mut Interners,
    ) -> Result<GroupSpec, FieldError> {
        let minimum = self.scheduling_policy.gang.as_ref().map(|gang| match kind {
            GroupKind::Pods => gang.min_count,
            GroupKind::Groups => gang.min_group_count,
        });
        let constraints = self.scheduling_constraints.as_ref();
        let topology = constraints.and_then(|constraints| constraints.topology.iter().next());
        let created = time(&metadata.creation_timestamp, "metadata.creationTimestamp")?;
        Ok(GroupSpec {
            policy: minimum.map_or(GroupPolicy::Basic, GroupPolicy::Gang),
            parent: self.parent_composite_pod_group_name.as_ref().map(|name| shared.text(name)),
            topology_key: topology.map(|topology| shared.text(&topology.key)),
            has_empty_constraints: constraints.is_some() && topology.is_none(),
            is_disrupted_whole: self.disruption_mode.all.is_some(),
            priority: self.priority.unwrap_or_default(),
            never_preempts: self.preemption_policy.as_ref().map(|policy| &**policy == "Never"),
            created: created.map_or(0, jiff::Timestamp::as_second),
        })
    }
}

//! Groups of pods that are scheduled together.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Body, Object};
use crate::pod::PodCondition;
use crate::pod_claims::{PodClaim, PodClaimName, PodClaimStatus};

/// scheduling.k8s.io/v1beta1 PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodGroup {
    /// `spec`.
    #[serde(flatten)]
    pub spec: GroupSpec,
    /// The condition `PodGroupInitiallyScheduled`.
    pub initially_scheduled: Option<PodCondition>,
    /// `spec.resourceClaims`: pods with the same entry share its claim.
    #[serde(default)]
    pub claims: Box<[PodClaim]>,
    /// `status.resourceClaimStatuses`.
    #[serde(default)]
    pub claim_statuses: Box<[PodClaimStatus]>,
}

impl PodGroup {
    /// The name of the claim of an entry of `spec.resourceClaims` (upstream's
    /// `resourceclaim.NameFromPodGroup`).
    pub fn claim_name<'a>(&'a self, claim: &'a PodClaim) -> PodClaimName<'a> {
        claim.name_by(|entry| self.claim_statuses.iter().find(|status| *status.name == *entry))
    }
}

/// scheduling.k8s.io/v1alpha3 CompositePodGroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompositePodGroup {
    /// `spec`.
    #[serde(flatten)]
    pub spec: GroupSpec,
}

/// What groups of both kinds ask for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// `spec.schedulingPolicy`.
    pub policy: GroupPolicy,
    /// `spec.parentCompositePodGroupName`.
    pub parent: Option<Arc<str>>,
    /// The key of `spec.schedulingConstraints.topology`, which has at most one entry.
    pub topology_key: Option<Arc<str>>,
    /// Whether `spec.schedulingConstraints` is set, but has no topology.
    #[serde(default)]
    pub has_empty_constraints: bool,
    /// Whether `spec.disruptionMode` is `all`: preemption takes all of its pods or none.
    pub is_disrupted_whole: bool,
    /// `spec.priority`; 0 if unset.
    pub priority: i32,
    /// Whether `spec.preemptionPolicy` is `Never`; `None` if unset.
    pub never_preempts: Option<bool>,
    /// `metadata.creationTimestamp` in seconds; 0 if unset.
    #[serde(default)]
    pub created: i64,
}

/// `spec.schedulingPolicy` of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupPolicy {
    /// `basic`: the group is queued as one, and any of its pods may be scheduled.
    #[default]
    Basic,
    /// `gang`: at least this many pods (`minCount`), or groups (`minGroupCount`), are scheduled, or
    /// none.
    Gang(i32),
}

impl GroupSpec {
    /// Whether `spec.schedulingConstraints` is set.
    pub fn has_constraints(&self) -> bool {
        self.topology_key.is_some() || self.has_empty_constraints
    }

    /// The number of pods, or groups, that must be scheduled at once, or be on nodes already.
    pub fn min_count(&self) -> i32 {
        match self.policy {
            GroupPolicy::Basic => 1,
            GroupPolicy::Gang(min_count) => min_count,
        }
    }
}

impl From<GroupSpec> for PodGroup {
    fn from(spec: GroupSpec) -> Self {
        Self { spec, ..Self::default() }
    }
}

/// What a group consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GroupKind {
    /// Pods: a PodGroup.
    Pods,
    /// Groups: a CompositePodGroup.
    Groups,
}

/// Names a group. Displayed as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// Its kind.
    pub kind: GroupKind,
    /// `namespace/name`.
    pub key: Arc<str>,
}

impl GroupKey {
    /// The key of a PodGroup.
    pub fn of_pods(key: Arc<str>) -> Self {
        Self { kind: GroupKind::Pods, key }
    }

    /// The key of a CompositePodGroup.
    pub fn of_groups(key: Arc<str>) -> Self {
        Self { kind: GroupKind::Groups, key }
    }

    /// The key of an object; `None` if it is no group.
    pub fn of(object: &Object) -> Option<Self> {
        let kind = match object.body {
            Body::PodGroup(_) => GroupKind::Pods,
            Body::CompositePodGroup(_) => GroupKind::Groups,
            _ => return None,
        };
        Some(Self { kind, key: Arc::clone(&object.key) })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(_, name)| name)
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)
    }
}

/// The spec of a group; `None` if the object is of another kind.
pub(super) fn spec_of(object: &Object) -> Option<&GroupSpec> {
    match &object.body {
        Body::PodGroup(group) => Some(&group.spec),
        Body::CompositePodGroup(group) => Some(&group.spec),
        _ => None,
    }
}

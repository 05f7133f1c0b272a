//! Groups of pods that are scheduled together.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::pod::PodCondition;

/// scheduling.k8s.io/v1beta1 PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodGroup {
    /// `spec.schedulingPolicy`.
    pub policy: GroupPolicy,
    /// `spec.parentCompositePodGroupName`.
    pub parent: Option<Arc<str>>,
    /// The key of `spec.schedulingConstraints.topology`, which has at most one entry.
    pub topology_key: Option<Arc<str>>,
    /// Whether `spec.disruptionMode` is `all`: preemption takes all of its pods or none.
    pub is_disrupted_whole: bool,
    /// `spec.priority`; 0 if unset.
    pub priority: i32,
    /// Whether `spec.preemptionPolicy` is `Never`; `None` if unset.
    pub never_preempts: Option<bool>,
    /// The condition `PodGroupInitiallyScheduled`.
    pub initially_scheduled: Option<PodCondition>,
}

/// `spec.schedulingPolicy` of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupPolicy {
    /// `basic`: the group is queued as one, and any of its pods may be scheduled.
    #[default]
    Basic,
    /// `gang`: at least this many pods (`minCount`) are scheduled, or none.
    Gang(i32),
}

impl PodGroup {
    /// The number of pods that must be scheduled at once, or be on nodes already.
    pub fn min_count(&self) -> i32 {
        match self.policy {
            GroupPolicy::Basic => 1,
            GroupPolicy::Gang(min_count) => min_count,
        }
    }
}

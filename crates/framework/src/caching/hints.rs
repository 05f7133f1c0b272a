//! What a plugin may declare of a queueing hint, so that the queue asks it once for many pods.

use std::sync::Arc;

use bitflags::bitflags;

use crate::caching::HintMarks;
use crate::event::Change;
use crate::objects::GroupKey;
use crate::resource::Resource;

bitflags! {
    /// The parts of a pending pod that a hint reads; none if the event alone decides. The queue
    /// asks a hint once for all pods that are equal in these parts.
    ///
    /// In every scope, a hint may compare the pod's UID with that of the event's pod: an event
    /// about a pending pod is evaluated for that pod by itself.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct HintScope: u16 {
        /// The namespace.
        const NAMESPACE = 1 << 0;
        /// The labels.
        const LABELS = 1 << 1;
        /// The controlling owner.
        const CONTROLLER = 1 << 2;
        /// The requests in `spec` and `status`.
        const REQUESTS = 1 << 3;
        /// `nodeSelector` and node affinity.
        const NODE_AFFINITY = 1 << 4;
        /// Pod affinity and anti-affinity.
        const POD_AFFINITY = 1 << 5;
        /// `topologySpreadConstraints`.
        const TOPOLOGY_SPREAD = 1 << 6;
        /// `tolerations`.
        const TOLERATIONS = 1 << 7;
        /// Host ports.
        const HOST_PORTS = 1 << 8;
        /// Volumes.
        const VOLUMES = 1 << 9;
        /// Anything.
        const POD = 1 << 10;
        /// The labels, of a pod with `matchLabelKeys`.
        const MATCH_LABELS = 1 << 11;
    }
}

/// What a change offers at most: a hint queues no pod whose `spec` requests more, unless devices
/// provide it. `None` if the hint may queue any pod.
pub type OfferFn = fn(&Change) -> Option<&Resource>;

/// The ResourceClaim that a change is about, by its key: a hint queues no pod that does not name
/// it. `None` if the hint may queue any pod.
pub type ClaimFn = fn(&Change) -> Option<&Arc<str>>;

/// The group that a change is about: a hint queues only pods of the tree that the group is in.
/// `None` if the hint queues no pod.
pub type GroupFn = fn(&Change) -> Option<GroupKey>;

/// Whether a hint reads labels of pending pods after this change.
pub type LabelsFn = fn(&Change) -> bool;

/// What is known of a hint. The default suits an event without a hint.
#[derive(Clone, Copy, Debug)]
pub struct HintCaching {
    /// The parts of the pending pod that the hint reads.
    pub scope: HintScope,
    /// The changes after which the hint reads labels, if not after all.
    pub labels: Option<LabelsFn>,
    /// What the change offers at most, for a hint that reads requests.
    pub offer: Option<OfferFn>,
    /// The claim that the change is about, for a hint that reads claims.
    pub claim: Option<ClaimFn>,
    /// The group that the change is about, for a hint that reads the pod's group.
    pub group: Option<GroupFn>,
    /// What pods ask for and the change brings.
    pub marks: Option<HintMarks>,
}

impl Default for HintCaching {
    fn default() -> Self {
        Self::of(HintScope::empty())
    }
}

impl HintCaching {
    /// A hint that reads these parts of the pod.
    pub fn of(scope: HintScope) -> Self {
        Self { scope, labels: None, offer: None, claim: None, group: None, marks: None }
    }

    /// The parts of the pod that the hint reads after a change.
    pub fn scope_after(&self, change: &Change) -> HintScope {
        let reads_labels = self.labels.is_none_or(|labels| labels(change));
        if reads_labels { self.scope } else { self.scope - HintScope::LABELS }
    }
}

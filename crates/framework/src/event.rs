//! Cluster events: what changed, and which changes plugins register for.

use std::fmt;
use std::sync::Arc;

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

use crate::node::NodeRecord;
use crate::objects::Object;
use crate::pod::PodInfo;
use crate::text::Text;

pub use crate::event_registration::{EventRegistration, HintFn};

bitflags! {
    /// A set of actions on an object.
    ///
    /// The bit order is upstream's and matters: matching also compares the numbers, so an update
    /// without details matches only plugins that registered all updates.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
    pub struct ActionType: u32 {
        /// Created.
        const ADD = 1 << 0;
        /// Deleted.
        const DELETE = 1 << 1;
        /// A node's allocatable resources changed.
        const UPDATE_NODE_ALLOCATABLE = 1 << 2;
        /// A node's labels changed.
        const UPDATE_NODE_LABEL = 1 << 3;
        /// A node's taints changed or it was uncordoned.
        const UPDATE_NODE_TAINT = 1 << 4;
        /// A node's conditions changed.
        const UPDATE_NODE_CONDITION = 1 << 5;
        /// A node's annotations changed.
        const UPDATE_NODE_ANNOTATION = 1 << 6;
        /// A node's declared features changed.
        const UPDATE_NODE_DECLARED_FEATURE = 1 << 7;
        /// A node's preemption policy changed.
        const UPDATE_NODE_PREEMPTION_POLICY = 1 << 8;
        /// A pod's labels changed.
        const UPDATE_POD_LABEL = 1 << 9;
        /// A pod's request shrank.
        const UPDATE_POD_SCALE_DOWN = 1 << 10;
        /// A pod's request grew.
        const UPDATE_POD_SCALE_UP = 1 << 11;
        /// A pod got more tolerations.
        const UPDATE_POD_TOLERATION = 1 << 12;
        /// A pod lost its last scheduling gate.
        const UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 1 << 13;
        /// A pod's generated resource claims changed.
        const UPDATE_POD_GENERATED_RESOURCE_CLAIM = 1 << 14;
        /// Any update.
        const UPDATE = Self::UPDATE_NODE_ALLOCATABLE.bits()
            | Self::UPDATE_NODE_LABEL.bits()
            | Self::UPDATE_NODE_TAINT.bits()
            | Self::UPDATE_NODE_CONDITION.bits()
            | Self::UPDATE_NODE_ANNOTATION.bits()
            | Self::UPDATE_NODE_DECLARED_FEATURE.bits()
            | Self::UPDATE_NODE_PREEMPTION_POLICY.bits()
            | Self::UPDATE_POD_LABEL.bits()
            | Self::UPDATE_POD_SCALE_DOWN.bits()
            | Self::UPDATE_POD_SCALE_UP.bits()
            | Self::UPDATE_POD_TOLERATION.bits()
            | Self::UPDATE_POD_SCHEDULING_GATES_ELIMINATED.bits()
            | Self::UPDATE_POD_GENERATED_RESOURCE_CLAIM.bits();
        /// Everything.
        const ALL = Self::ADD.bits() | Self::DELETE.bits() | Self::UPDATE.bits();
    }
}

impl ActionType {
    /// The name in event labels.
    fn label(self) -> &'static str {
        match self {
            Self::ADD => "Add",
            Self::DELETE => "Delete",
            Self::UPDATE_NODE_ALLOCATABLE => "UpdateNodeAllocatable",
            Self::UPDATE_NODE_LABEL => "UpdateNodeLabel",
            Self::UPDATE_NODE_TAINT => "UpdateNodeTaint",
            Self::UPDATE_NODE_CONDITION => "UpdateNodeCondition",
            Self::UPDATE_NODE_ANNOTATION => "UpdateNodeAnnotation",
            Self::UPDATE_NODE_DECLARED_FEATURE => "UpdateNodeDeclaredFeature",
            Self::UPDATE_NODE_PREEMPTION_POLICY => "UpdateNodePreemptionPolicy",
            Self::UPDATE_POD_LABEL => "UpdatePodLabel",
            Self::UPDATE_POD_SCALE_DOWN => "UpdatePodScaleDown",
            Self::UPDATE_POD_SCALE_UP => "UpdatePodScaleUp",
            Self::UPDATE_POD_TOLERATION => "UpdatePodToleration",
            Self::UPDATE_POD_SCHEDULING_GATES_ELIMINATED => "UpdatePodSchedulingGatesEliminated",
            Self::UPDATE_POD_GENERATED_RESOURCE_CLAIM => "UpdatePodGeneratedResourceClaim",
            Self::UPDATE => "Update",
            Self::ALL => "All",
            _ => "",
        }
    }
}

/// The kind of the object of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventResource {
    /// Any pod. Only for registrations: stands for the next three.
    Pod,
    /// A pod with a node, or one that gave up its nominated node.
    AssignedPod,
    /// A pod without a node, other than the waiting one. The queue matches only additions, and only
    /// if a plugin registers them by this name; upstream matches them with GenericWorkload only.
    UnscheduledPod,
    /// The waiting pod itself, updated. A hint need not compare UIDs. As upstream, an update of a
    /// pod in flight is also matched against the other pods in flight, so a hint may queue too
    /// many.
    TargetPod,
    /// A node.
    Node,
    /// Any other kind, by its upstream name (`PersistentVolumeClaim`, `storage.k8s.io/CSINode`, …),
    /// or as `<plural>.<version>.<group>` if upstream has no name for it.
    Other(Text),
    /// Every kind.
    Any,
}

impl EventResource {
    /// The name in event labels.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pod => "Pod",
            Self::AssignedPod => "AssignedPod",
            Self::UnscheduledPod => "UnscheduledPod",
            Self::TargetPod => "TargetPod",
            Self::Node => "Node",
            Self::Other(name) => name,
            Self::Any => "*",
        }
    }

    fn covers(&self, incoming: &Self) -> bool {
        self == incoming
            || *self == Self::Any
            || (*self == Self::Pod
                && matches!(incoming, Self::AssignedPod | Self::UnscheduledPod | Self::TargetPod))
    }
}

/// An event in the cluster, or one that a plugin registers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterEvent {
    /// The kind.
    pub resource: EventResource,
    /// The actions.
    pub action: ActionType,
    label: Option<&'static str>,
}

impl ClusterEvent {
    /// An event.
    pub const fn new(resource: EventResource, action: ActionType) -> Self {
        Self { resource, action, label: None }
    }

    /// An event that covers everything, with its own label.
    pub const fn wildcard(label: &'static str) -> Self {
        Self { resource: EventResource::Any, action: ActionType::ALL, label: Some(label) }
    }

    /// Whether the event covers everything.
    pub fn is_wildcard(&self) -> bool {
        self.resource == EventResource::Any && self.action == ActionType::ALL
    }

    /// Whether `incoming` matches the registered event `self`.
    ///
    /// Same as upstream's `MatchClusterEvents`, including its quirk: an incoming action that is
    /// numerically larger than the registered one never matches. A generic update therefore matches
    /// only registrations of all updates.
    pub fn matches(&self, incoming: &Self) -> bool {
        self.is_wildcard()
            || (self.resource.covers(&incoming.resource)
                && self.action.intersects(incoming.action)
                && incoming.action.bits() <= self.action.bits())
    }
}

/// The event's label in metrics and logs, such as `NodeAdd`.
impl fmt::Display for ClusterEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.label {
            Some(label) => f.pad(label),
            None => write!(f, "{}{}", self.resource.as_str(), self.action.label()),
        }
    }
}

/// The objects of an event, before and after.
#[derive(Clone, Debug, Default)]
pub enum Change {
    /// The event has no object.
    #[default]
    Unspecified,
    /// A pod.
    Pod {
        /// Before; `None` if it was added.
        old: Option<Arc<PodInfo>>,
        /// After; `None` if it was deleted.
        new: Option<Arc<PodInfo>>,
    },
    /// A node.
    Node {
        /// Before; `None` if it was added.
        old: Option<Arc<NodeRecord>>,
        /// After; `None` if it was deleted.
        new: Option<Arc<NodeRecord>>,
    },
    /// Another kind.
    Object {
        /// Before; `None` if it was added.
        old: Option<Arc<Object>>,
        /// After; `None` if it was deleted.
        new: Option<Arc<Object>>,
    },
}

impl Change {
    /// The pod after the event.
    pub fn new_pod(&self) -> Option<&Arc<PodInfo>> {
        match self {
            Self::Pod { new, .. } => new.as_ref(),
            _ => None,
        }
    }

    /// The pod before the event.
    pub fn old_pod(&self) -> Option<&Arc<PodInfo>> {
        match self {
            Self::Pod { old, .. } => old.as_ref(),
            _ => None,
        }
    }

    /// The node after the event.
    pub fn new_node(&self) -> Option<&Arc<NodeRecord>> {
        match self {
            Self::Node { new, .. } => new.as_ref(),
            _ => None,
        }
    }

    /// The node before the event.
    pub fn old_node(&self) -> Option<&Arc<NodeRecord>> {
        match self {
            Self::Node { old, .. } => old.as_ref(),
            _ => None,
        }
    }
}

/// The result of a queueing hint for a rejected pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueingHint {
    /// The event does not help: leave the pod where it is.
    Skip,
    /// The pod may be schedulable now: retry it.
    Queue,
}

impl QueueingHint {
    /// `Queue` if the condition holds.
    pub fn queue_if(condition: bool) -> Self {
        if condition { Self::Queue } else { Self::Skip }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_match_by_resource_and_action() {
        use EventResource::{Any, AssignedPod, Node, Pod, TargetPod, UnscheduledPod};
        let event = ClusterEvent::new;
        let cases = [
            ("the same", event(Node, ActionType::ADD), event(Node, ActionType::ADD), true),
            ("another resource", event(Node, ActionType::ADD), event(Pod, ActionType::ADD), false),
            (
                "Pod covers assigned pods",
                event(Pod, ActionType::DELETE),
                event(AssignedPod, ActionType::DELETE),
                true,
            ),
            (
                "Pod covers unscheduled pods",
                event(Pod, ActionType::ADD),
                event(UnscheduledPod, ActionType::ADD),
                true,
            ),
            (
                "Pod covers the waiting pod",
                event(Pod, ActionType::UPDATE),
                event(TargetPod, ActionType::UPDATE),
                true,
            ),
            (
                "the waiting pod is no other pod",
                event(UnscheduledPod, ActionType::UPDATE),
                event(TargetPod, ActionType::UPDATE),
                false,
            ),
            (
                "one of several actions",
                event(Node, ActionType::ADD | ActionType::UPDATE_NODE_LABEL),
                event(Node, ActionType::UPDATE_NODE_LABEL),
                true,
            ),
            (
                "a generic update does not match a registration of one kind of update",
                event(AssignedPod, ActionType::UPDATE_POD_LABEL),
                event(AssignedPod, ActionType::UPDATE),
                false,
            ),
            (
                "a specific update matches a registration of all updates",
                event(Pod, ActionType::UPDATE),
                event(AssignedPod, ActionType::UPDATE_POD_LABEL),
                true,
            ),
            (
                "the wildcard matches everything",
                event(Any, ActionType::ALL),
                event(Node, ActionType::ADD),
                true,
            ),
            (
                "a wildcard event does not match a plain registration",
                event(Node, ActionType::ADD),
                ClusterEvent::wildcard("UnschedulableTimeout"),
                false,
            ),
        ];
        for (name, registered, incoming, expected) in cases {
            assert_eq!(registered.matches(&incoming), expected, "{name}");
        }
    }

    #[test]
    fn event_labels_match_upstream() {
        let label = |resource, action| ClusterEvent::new(resource, action).to_string();
        assert_eq!(label(EventResource::Node, ActionType::ADD), "NodeAdd");
        assert_eq!(label(EventResource::UnscheduledPod, ActionType::ADD), "UnscheduledPodAdd");
        assert_eq!(label(EventResource::TargetPod, ActionType::UPDATE), "TargetPodUpdate");
        for action in ActionType::UPDATE.iter() {
            assert!(label(EventResource::Any, action).starts_with("*Update"), "{action:?}");
        }
        assert_eq!(
            label(EventResource::Other("storage.k8s.io/CSINode".into()), ActionType::UPDATE),
            "storage.k8s.io/CSINodeUpdate"
        );
        assert_eq!(ClusterEvent::wildcard("ForceActivate").to_string(), "ForceActivate");
    }
}

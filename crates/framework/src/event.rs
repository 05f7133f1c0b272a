//! Cluster events: what changed, in the words in which plugins say what could help a pod they turned down.

use std::fmt;
use std::sync::Arc;

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

use crate::context::QueueContext;
use crate::node::NodeRecord;
use crate::objects::Object;
use crate::pod::PodInfo;
use crate::text::Text;

bitflags! {
    /// What happened to an object.
    ///
    /// The bit order is upstream's and matters: matching also compares the numbers, so that an update that is not known
    /// in detail only matches plugins that asked for every update.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
    pub struct ActionType: u32 {
        /// Created.
        const ADD = 1 << 0;
        /// Gone.
        const DELETE = 1 << 1;
        /// A node's allocatable changed.
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
        /// A pod's labels changed.
        const UPDATE_POD_LABEL = 1 << 8;
        /// A pod's request shrank.
        const UPDATE_POD_SCALE_DOWN = 1 << 9;
        /// A pod got more tolerations.
        const UPDATE_POD_TOLERATION = 1 << 10;
        /// A pod lost its last scheduling gate.
        const UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 1 << 11;
        /// A pod's generated resource claims changed.
        const UPDATE_POD_GENERATED_RESOURCE_CLAIM = 1 << 12;
        /// Any update.
        const UPDATE = Self::UPDATE_NODE_ALLOCATABLE.bits()
            | Self::UPDATE_NODE_LABEL.bits()
            | Self::UPDATE_NODE_TAINT.bits()
            | Self::UPDATE_NODE_CONDITION.bits()
            | Self::UPDATE_NODE_ANNOTATION.bits()
            | Self::UPDATE_NODE_DECLARED_FEATURE.bits()
            | Self::UPDATE_POD_LABEL.bits()
            | Self::UPDATE_POD_SCALE_DOWN.bits()
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
            Self::UPDATE_POD_LABEL => "UpdatePodLabel",
            Self::UPDATE_POD_SCALE_DOWN => "UpdatePodScaleDown",
            Self::UPDATE_POD_TOLERATION => "UpdatePodToleration",
            Self::UPDATE_POD_SCHEDULING_GATES_ELIMINATED => "UpdatePodSchedulingGatesEliminated",
            Self::UPDATE_POD_GENERATED_RESOURCE_CLAIM => "UpdatePodGeneratedResourceClaim",
            Self::UPDATE => "Update",
            Self::ALL => "All",
            _ => "",
        }
    }
}

/// The kind of object an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventResource {
    /// Any pod.
    Pod,
    /// A pod that has a node. Internal: plugins register [`EventResource::Pod`].
    AssignedPod,
    /// A pod that has no node. A plugin that registers its additions hears of new pods that wait, which upstream has
    /// from 1.37 on under the name UnscheduledPod; who registers [`EventResource::Pod`] hears of their updates only.
    UnschedulablePod,
    /// A node.
    Node,
    /// Any other kind, by its upstream name (`PersistentVolumeClaim`, `storage.k8s.io/CSINode`, …) or, for kinds
    /// upstream does not know, as `<plural>.<version>.<group>`.
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
            Self::UnschedulablePod => "UnschedulablePod",
            Self::Node => "Node",
            Self::Other(name) => name,
            Self::Any => "*",
        }
    }

    fn covers(&self, incoming: &Self) -> bool {
        self == incoming
            || *self == Self::Any
            || (*self == Self::Pod && matches!(incoming, Self::AssignedPod | Self::UnschedulablePod))
    }
}

/// Something that happened in the cluster, or that a plugin wants to hear of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterEvent {
    /// What it is about.
    pub resource: EventResource,
    /// What happened.
    pub action: ActionType,
    label: Option<&'static str>,
}

impl ClusterEvent {
    /// An event.
    pub const fn new(resource: EventResource, action: ActionType) -> Self {
        Self { resource, action, label: None }
    }

    /// An event that covers everything, under a name of its own.
    pub const fn wildcard(label: &'static str) -> Self {
        Self { resource: EventResource::Any, action: ActionType::ALL, label: Some(label) }
    }

    /// Whether the event covers everything.
    pub fn is_wildcard(&self) -> bool {
        self.resource == EventResource::Any && self.action == ActionType::ALL
    }

    /// Whether a plugin that registered `self` hears of `incoming`.
    ///
    /// Same as upstream's `MatchClusterEvents`, with its quirk: an incoming action that is numerically larger than the
    /// registered one never matches, so a generic update only reaches plugins that registered every update.
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
    /// The event is about no object in particular.
    #[default]
    Unspecified,
    /// A pod.
    Pod {
        /// Before; `None` when it is new.
        old: Option<Arc<PodInfo>>,
        /// After; `None` when it is gone.
        new: Option<Arc<PodInfo>>,
    },
    /// A node.
    Node {
        /// Before; `None` when it is new.
        old: Option<Arc<NodeRecord>>,
        /// After; `None` when it is gone.
        new: Option<Arc<NodeRecord>>,
    },
    /// Another kind.
    Object {
        /// Before; `None` when it is new.
        old: Option<Arc<Object>>,
        /// After; `None` when it is gone.
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

/// What an event means for a pod that a plugin turned down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueingHint {
    /// Nothing; leave the pod where it is.
    Skip,
    /// The pod may fit now; try again.
    Queue,
}

impl QueueingHint {
    /// `Queue` when the condition holds.
    pub fn queue_if(condition: bool) -> Self {
        if condition { Self::Queue } else { Self::Skip }
    }
}

/// Judges one event for one waiting pod. An error counts as `Queue`.
pub type HintFn =
    Arc<dyn Fn(&QueueContext<'_>, &PodInfo, &Change) -> Result<QueueingHint, String> + Send + Sync>;

/// An event that a plugin wants to hear of, and how it judges it.
pub struct EventRegistration {
    /// The event.
    pub event: ClusterEvent,
    /// The judge; `None` means always `Queue`.
    pub hint: Option<HintFn>,
}

impl EventRegistration {
    /// An event that always queues.
    pub fn always(resource: EventResource, action: ActionType) -> Self {
        Self { event: ClusterEvent::new(resource, action), hint: None }
    }

    /// An event that queues when `hint` says so.
    pub fn hinted(
        resource: EventResource,
        action: ActionType,
        hint: impl Fn(&PodInfo, &Change) -> Result<QueueingHint, String> + Send + Sync + 'static,
    ) -> Self {
        Self::reading(resource, action, move |_, pod, change| hint(pod, change))
    }

    /// The same with a `hint` that reads other objects.
    pub fn reading(
        resource: EventResource,
        action: ActionType,
        hint: impl Fn(&QueueContext<'_>, &PodInfo, &Change) -> Result<QueueingHint, String>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { event: ClusterEvent::new(resource, action), hint: Some(Arc::new(hint)) }
    }
}

impl fmt::Debug for EventRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.event, if self.hint.is_some() { " with hint" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_match_by_resource_and_action() {
        use EventResource::{Any, AssignedPod, Node, Pod};
        let event = ClusterEvent::new;
        let cases = [
            ("the same", event(Node, ActionType::ADD), event(Node, ActionType::ADD), true),
            ("another resource", event(Node, ActionType::ADD), event(Pod, ActionType::ADD), false),
            (
                "Pod hears of assigned pods",
                event(Pod, ActionType::DELETE),
                event(AssignedPod, ActionType::DELETE),
                true,
            ),
            (
                "one of several actions",
                event(Node, ActionType::ADD | ActionType::UPDATE_NODE_LABEL),
                event(Node, ActionType::UPDATE_NODE_LABEL),
                true,
            ),
            (
                "a generic update does not reach a plugin that asked for one kind of update",
                event(AssignedPod, ActionType::UPDATE_POD_LABEL),
                event(AssignedPod, ActionType::UPDATE),
                false,
            ),
            (
                "a specific update reaches a plugin that asked for all",
                event(Pod, ActionType::UPDATE),
                event(AssignedPod, ActionType::UPDATE_POD_LABEL),
                true,
            ),
            (
                "the wildcard hears everything",
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
    fn labels_are_upstreams() {
        let label = |resource, action| ClusterEvent::new(resource, action).to_string();
        assert_eq!(label(EventResource::Node, ActionType::ADD), "NodeAdd");
        assert_eq!(label(EventResource::UnschedulablePod, ActionType::UPDATE), "UnschedulablePodUpdate");
        assert_eq!(
            label(EventResource::Other("storage.k8s.io/CSINode".into()), ActionType::UPDATE),
            "storage.k8s.io/CSINodeUpdate"
        );
        assert_eq!(ClusterEvent::wildcard("ForceActivate").to_string(), "ForceActivate");
    }
}

//! Cluster events: what changed, and which changes plugins register for.

use std::fmt;
use std::sync::Arc;

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

use crate::context::QueueContext;
use crate::node::NodeRecord;
use crate::objects::Object;
use crate::pod::PodInfo;
use crate::resource::Resource;
use crate::text::Text;

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

/// A queueing hint: evaluates one event for one pending pod. An error counts as `Queue`.
pub type HintFn =
    Arc<dyn Fn(&QueueContext<'_>, &PodInfo, &Change) -> Result<QueueingHint, String> + Send + Sync>;

bitflags! {
    /// The parts of a pending pod that a hint reads; none if the event alone decides. The queue
    /// asks a hint once for all pods that are equal in these parts.
    ///
    /// In every scope, a hint may compare the pod's UID with that of the event's pod: an event
    /// about a pending pod is evaluated for that pod by itself.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The PodGroup that a change is about, by its key: a hint queues only its pods. `None` if the hint
/// queues no pod.
pub type GroupFn = fn(&Change) -> Option<Arc<str>>;

/// Whether a hint reads labels of pending pods after this change.
pub type LabelsFn = fn(&Change) -> bool;

impl HintScope {
    /// The parts that a hint of this scope reads after a change. `labels` are the changes after
    /// which it reads labels, if not after all.
    #[must_use]
    pub fn after(self, labels: Option<LabelsFn>, change: &Change) -> Self {
        if labels.is_none_or(|labels| labels(change)) { self } else { self - Self::LABELS }
    }
}

/// An event that a plugin registers, with its queueing hint.
pub struct EventRegistration {
    /// The event.
    pub event: ClusterEvent,
    /// The hint; `None` always queues.
    pub hint: Option<HintFn>,
    /// The parts of the pending pod that the hint reads.
    pub scope: HintScope,
    /// The changes after which the hint reads labels, if not after all.
    pub labels: Option<LabelsFn>,
    /// What the change offers at most, for a hint that reads requests.
    pub offer: Option<OfferFn>,
    /// The claim that the change is about, for a hint that reads claims.
    pub claim: Option<ClaimFn>,
    /// The PodGroup that the change is about, for a hint that reads the pod's group.
    pub group: Option<GroupFn>,
}

impl EventRegistration {
    /// An event that always queues.
    pub fn always(resource: EventResource, action: ActionType) -> Self {
        Self {
            event: ClusterEvent::new(resource, action),
            hint: None,
            scope: HintScope::empty(),
            labels: None,
            offer: None,
            claim: None,
            group: None,
        }
    }

    /// An event that queues if `hint` returns `Queue`. The hint may read all of the pod.
    pub fn hinted(
        resource: EventResource,
        action: ActionType,
        hint: impl Fn(&PodInfo, &Change) -> Result<QueueingHint, String> + Send + Sync + 'static,
    ) -> Self {
        Self::reading(resource, action, move |_, pod, change| hint(pod, change))
    }

    /// The same with a `hint` that reads objects of other kinds.
    pub fn reading(
        resource: EventResource,
        action: ActionType,
        hint: impl Fn(&QueueContext<'_>, &PodInfo, &Change) -> Result<QueueingHint, String>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let event = ClusterEvent::new(resource, action);
        Self {
            event,
            hint: Some(Arc::new(hint)),
            scope: HintScope::POD,
            labels: None,
            offer: None,
            claim: None,
            group: None,
        }
    }

    /// Declares that the hint reads only these parts of the pod.
    #[must_use]
    pub fn scoped(self, scope: HintScope) -> Self {
        Self { scope, ..self }
    }

    /// Declares that the hint reads labels only after these changes. The scope must contain labels.
    #[must_use]
    pub fn reading_labels_if(self, labels: LabelsFn) -> Self {
        Self { labels: Some(labels), ..self }
    }

    /// Declares that the hint queues no pod that requests more than the change offers, so that the
    /// queue need not call it for such pods. The scope must contain requests.
    #[must_use]
    pub fn offering(self, offer: OfferFn) -> Self {
        Self { offer: Some(offer), ..self }
    }

    /// Declares that the hint queues no pod without the claim that the change is about, so that the
    /// queue need not call it for such pods.
    #[must_use]
    pub fn of_claim(self, claim: ClaimFn) -> Self {
        Self { claim: Some(claim), ..self }
    }

    /// Declares that the hint queues only pods of the PodGroup that the change is about, so that
    /// the queue need not call it for others.
    #[must_use]
    pub fn of_group(self, group: GroupFn) -> Self {
        Self { group: Some(group), ..self }
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

//! What the scheduler requests from its caller.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use supercargo_framework::binding::ApiCall;
use supercargo_framework::objects::GroupKind;
use supercargo_framework::plugin::{Nomination, PreBindPlugin};
use supercargo_framework::pod::{PodCondition, PodKey};
use supercargo_framework::{PodInfo, ResourceVersion, Text, Uid};

use supercargo_evaluation::extender::ExtenderSpec;

/// One plugin's part in PreBind.
pub struct PreBindWork {
    /// The plugin's name.
    pub name: Text,
    /// The plugin.
    pub plugin: Arc<dyn PreBindPlugin>,
    /// What PreBindPreFlight prepared for PreBind.
    pub work: Box<dyn Any + Send>,
}

/// A change of a pod's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusPatch {
    /// The pod.
    pub pod: PodKey,
    /// Its UID: the server refuses to patch another pod of this name.
    pub uid: Uid,
    /// The PodScheduled condition, if it changes.
    pub condition: Option<PodCondition>,
    /// The change of `nominatedNodeName`.
    pub nomination: Nomination,
}

impl StatusPatch {
    /// Applies the change to the pod.
    pub(crate) fn apply(&self, pod: &mut PodInfo) {
        if let Some(condition) = &self.condition {
            pod.status.pod_scheduled = Some(condition.clone());
        }
        if let Nomination::Override(node) = &self.nomination {
            pod.status.nominated_node_name.clone_from(node);
        }
    }
}

/// A change of a PodGroup's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPatch {
    /// The group: `namespace/name`.
    pub group: Arc<str>,
    /// Its UID: the server refuses to patch another group of this name.
    pub uid: Uid,
    /// The condition PodGroupInitiallyScheduled.
    pub condition: PodCondition,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// Something expected happened.
    Normal,
    /// Something failed.
    Warning,
}

/// A victim of a preemption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VictimEviction {
    /// The pod.
    pub pod: PodKey,
    /// Its UID: another pod of this name is spared.
    pub uid: Uid,
    /// The DisruptionTarget condition to write before the pod is deleted, unless the pod has it.
    /// Without a transition time, the existing one stays.
    pub condition: Option<PodCondition>,
}

/// An event about a pod (events.k8s.io/v1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodEvent {
    /// The pod.
    pub pod: PodKey,
    /// Its UID.
    pub uid: Uid,
    /// Its resource version, which is part of the identity of an event series.
    pub resource_version: ResourceVersion,
    /// The profile: the event's reporting controller.
    pub scheduler_name: Arc<str>,
    /// Normal or Warning.
    pub kind: EventType,
    /// The reason, such as `Scheduled`.
    pub reason: Text,
    /// The action, such as `Binding`.
    pub action: Text,
    /// The text.
    pub note: String,
    /// The group for which the pod was preempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub related: Option<GroupReference>,
}

/// Names a version of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReference {
    /// The kind.
    pub kind: GroupKind,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// The UID.
    pub uid: Uid,
    /// The resource version.
    pub resource_version: Arc<str>,
}

impl PodEvent {
    /// An event about a pod, reported by the pod's profile.
    pub(crate) fn about(
        pod: &PodInfo,
        kind: EventType,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) -> Self {
        Self {
            pod: pod.key(),
            uid: pod.uid.clone(),
            resource_version: pod.resource_version.clone(),
            scheduler_name: Arc::clone(&pod.spec.scheduler_name),
            kind,
            reason: reason.into(),
            action: action.into(),
            note,
            related: None,
        }
    }
}

/// Work for the caller. Each variant names the [`Input`](crate::Input) that it ends in, if any.
pub enum Effect {
    /// Run PreBind: the groups one after the other, the plugins of a group in parallel. Ends in
    /// `Input::PreBound`.
    StartPreBind {
        /// The pod.
        pod: Arc<PodInfo>,
        /// Its node.
        node: Arc<str>,
        /// The work.
        groups: Vec<Vec<PreBindWork>>,
    },
    /// Cancel PreBind of this pod.
    CancelPreBind(Uid),
    /// Call the extenders one after the other, until one binds the pod or one that is not ignorable
    /// fails. If there is none, call the plugins until one does not skip. Ends in `Input::Bound`.
    Bind {
        /// The pod.
        pod: Arc<PodInfo>,
        /// Its node.
        node: Arc<str>,
        /// The extenders that bind such pods: at most one.
        extenders: Vec<ExtenderSpec>,
        /// The plugins.
        binders: Arc<[supercargo_runtime::profile::NamedBinder]>,
    },
    /// Read the pod's node from the API server, with a quorum. Ends in `Input::PodRead`.
    ReadPod {
        /// The pod's name.
        pod: PodKey,
        /// Its UID; another pod of this name counts as gone.
        uid: Uid,
    },
    /// Write an object of this kind. An answer is an `Input::Written`. If it is for a pod, it ends
    /// in `Input::WriteEnded`.
    Write {
        /// The object's kind.
        resource: Text,
        /// The request.
        call: ApiCall,
        /// A request to send after it, whose answer nobody needs.
        then: Option<ApiCall>,
        /// The pod for which it is.
        pod: Option<Uid>,
        /// Whether to try the pod again if a request fails.
        retries: bool,
    },
    /// Patch the pod's status.
    PatchPodStatus(StatusPatch),
    /// Patch the status of a PodGroup.
    PatchGroupStatus(GroupPatch),
    /// Delete pods in parallel, each after its condition is written. Ends in `Input::Evicted`.
    Evict {
        /// The number of the preemption.
        preemption: u64,
        /// The pods.
        victims: Vec<VictimEviction>,
    },
    /// Record an event.
    RecordEvent(PodEvent),
}

/// The line of an [`Effect::Bind`] without extenders.
pub(crate) fn bind_line(pod: &PodInfo, node: &str) -> String {
    format!("Bind {} {} to {node}", pod.key(), pod.uid)
}

/// One line that identifies the effect: equal lines mean equal effects. Replay compares these
/// lines.
impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StartPreBind { pod, node, groups } => {
                let names =
                    groups.iter().map(|group| group.iter().map(|work| &work.name).collect::<Vec<_>>());
                write!(
                    f,
                    "StartPreBind {} {} on {node} by {:?}",
                    pod.key(),
                    pod.uid,
                    names.collect::<Vec<_>>()
                )
            }
            Self::CancelPreBind(uid) => write!(f, "CancelPreBind {uid}"),
            Self::Bind { pod, node, extenders, .. } => {
                f.write_str(&bind_line(pod, node))?;
                extenders.iter().try_for_each(|extender| write!(f, " by {}", extender.name))
            }
            Self::ReadPod { pod, uid } => write!(f, "ReadPod {pod} {uid}"),
            Self::Write { call, then: None, .. } => write!(f, "Write {call:?}"),
            Self::Write { call, then: Some(then), .. } => write!(f, "Write {call:?}, then {then:?}"),
            Self::PatchPodStatus(patch) => write!(f, "{patch:?}"),
            Self::PatchGroupStatus(patch) => write!(f, "{patch:?}"),
            Self::Evict { preemption, victims } => write!(f, "Evict {preemption} {victims:?}"),
            Self::RecordEvent(event) => write!(f, "{event:?}"),
        }
    }
}

//! What the scheduler asks to be done.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use supercargo_framework::plugin::{BindPlugin, Nomination, PreBindPlugin};
use supercargo_framework::pod::{PodCondition, PodKey};
use supercargo_framework::{PodInfo, ResourceVersion, Text, Uid};

use crate::extender::ExtenderSpec;

/// One plugin's part in PreBind.
pub struct PreBindWork {
    /// The plugin's name.
    pub name: Text,
    /// The plugin.
    pub plugin: Arc<dyn PreBindPlugin>,
    /// What it set aside for this.
    pub work: Box<dyn Any + Send>,
}

/// A plugin that binds, with its name.
#[derive(Clone)]
pub struct NamedBinder {
    /// The plugin's name.
    pub name: Text,
    /// The plugin.
    pub plugin: Arc<dyn BindPlugin>,
}

/// A change of a pod's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusPatch {
    /// The pod.
    pub pod: PodKey,
    /// Its UID: the server refuses to patch another pod of that name.
    pub uid: Uid,
    /// The PodScheduled condition, if it changes.
    pub condition: Option<PodCondition>,
    /// What becomes of `nominatedNodeName`.
    pub nomination: Nomination,
}

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// Good or neutral.
    Normal,
    /// Bad.
    Warning,
}

/// A pod that has to make room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VictimEviction {
    /// The pod.
    pub pod: PodKey,
    /// Its UID: another pod of that name is to be spared.
    pub uid: Uid,
    /// The DisruptionTarget condition, to be written before the pod is deleted. Without a moment of transition the one
    /// that is there stays.
    pub condition: PodCondition,
}

/// An event about a pod (events.k8s.io/v1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodEvent {
    /// The pod.
    pub pod: PodKey,
    /// Its UID.
    pub uid: Uid,
    /// Its resource version, which is part of an event series' identity.
    pub resource_version: ResourceVersion,
    /// The profile, which is the event's reporting controller.
    pub scheduler_name: Arc<str>,
    /// Normal or Warning.
    pub kind: EventType,
    /// The reason, such as `Scheduled`.
    pub reason: Text,
    /// The action, such as `Binding`.
    pub action: Text,
    /// The text.
    pub note: String,
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
        }
    }
}

/// Something for the shell to carry out. Calls that end in an [`Input`](crate::Input) say so.
pub enum Effect {
    /// Run PreBind: the groups one after the other, the plugins of a group side by side. Ends in `Input::PreBound`.
    StartPreBind {
        /// The pod.
        pod: Arc<PodInfo>,
        /// Its node.
        node: Arc<str>,
        /// The work.
        groups: Vec<Vec<PreBindWork>>,
    },
    /// Make PreBind of this pod give up.
    CancelPreBind(Uid),
    /// Ask the extenders one after the other to bind, until one that may not be ignored has answered or one has bound,
    /// and then the plugins, until one does not skip. Ends in `Input::Bound`.
    Bind {
        /// The pod.
        pod: Arc<PodInfo>,
        /// Its node.
        node: Arc<str>,
        /// The extenders that bind such pods; one, if any.
        extenders: Vec<ExtenderSpec>,
        /// The plugins.
        binders: Arc<[NamedBinder]>,
    },
    /// Ask the API server for the pod's node, with a quorum. Ends in `Input::PodRead`.
    ReadPod {
        /// The pod's name.
        pod: PodKey,
        /// Its UID; another pod of that name counts as gone.
        uid: Uid,
    },
    /// Patch the pod's status.
    PatchPodStatus(StatusPatch),
    /// Delete pods side by side, each once it has been told why. Ends in `Input::Evicted`.
    Evict {
        /// For which preemption.
        preemption: u64,
        /// The pods.
        victims: Vec<VictimEviction>,
    },
    /// Record an event.
    RecordEvent(PodEvent),
}

/// One line that says what the effect does; equal lines mean equal effects. Replay compares these.
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
                write!(f, "Bind {} {} to {node}", pod.key(), pod.uid)?;
                extenders.iter().try_for_each(|extender| write!(f, " by {}", extender.name))
            }
            Self::ReadPod { pod, uid } => write!(f, "ReadPod {pod} {uid}"),
            Self::PatchPodStatus(patch) => write!(f, "{patch:?}"),
            Self::Evict { preemption, victims } => write!(f, "Evict {preemption} {victims:?}"),
            Self::RecordEvent(event) => write!(f, "{event:?}"),
        }
    }
}

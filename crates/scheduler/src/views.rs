//! What the scheduler holds, for people to look at: pointers only, so that looking is quick.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use supercargo_framework::{NodeInfo, NodeRecord, PodInfo, Resource, Uid};

use crate::bindings::Stage;
use crate::queue::{Place, QueuedPod};
use crate::scheduler::Scheduler;

/// A node and what counts on it.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// The node.
    pub node: Arc<NodeRecord>,
    /// The sum of its pods' requests.
    pub requested: Resource,
    /// The pods that count there.
    pub pods: Vec<PodOnNode>,
    /// The pods that wait in the queue and have been promised it.
    pub nominated: Vec<Arc<PodInfo>>,
}

/// A pod that counts on a node.
#[derive(Clone, Debug)]
pub struct PodOnNode {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// Whether the informer has yet to say that it is there.
    pub assumed: bool,
}

/// Every pod that has no node yet.
#[derive(Clone, Debug, Default)]
pub struct QueueView {
    /// Those in one of the queues, in the order in which they came there.
    pub waiting: Vec<(Place, QueuedPod)>,
    /// Those on their way to a node.
    pub bindings: Vec<BindingView>,
}

/// A pod on its way to a node.
#[derive(Clone, Debug)]
pub struct BindingView {
    /// The pod, as it was when the node was chosen.
    pub pod: Arc<PodInfo>,
    /// The node.
    pub node: Arc<str>,
    /// How far it is: `WaitingOnPermit`, `PreBinding`, `Binding` or `Uncertain`.
    pub stage: &'static str,
}

/// The nodes and pods that the scheduler knows, to hold against an informer's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The names of the nodes.
    pub nodes: BTreeSet<Arc<str>>,
    /// The UIDs of the pods that have not ended, with a node or without.
    pub pods: FxHashSet<Uid>,
}

impl Scheduler {
    /// Every node, by name.
    pub fn node_views(&self) -> Vec<NodeView> {
        let nodes = self.cache.nodes();
        let mut names: Vec<_> = nodes.names().collect();
        names.sort_unstable();
        let view = |info: &NodeInfo| NodeView {
            node: Arc::clone(info.node()),
            requested: info.requested().clone(),
            pods: info
                .pods()
                .iter()
                .map(|pod| PodOnNode { pod: Arc::clone(pod), assumed: self.cache.is_assumed(&pod.uid) })
                .collect(),
            nominated: self.nominated_on(info.name()),
        };
        names.into_iter().filter_map(|name| nodes.get(name)).map(view).collect()
    }

    /// Every pod that waits or is on its way.
    pub fn queue_view(&self) -> QueueView {
        let mut waiting: Vec<_> = self
            .queue
            .entries()
            .filter_map(|entry| Some((self.queue.place(entry.uid())?, entry.clone())))
            .collect();
        waiting.sort_by_key(|(_, entry)| entry.sequence);
        let mut bindings: Vec<_> = self
            .bindings
            .iter()
            .map(|binding| BindingView {
                pod: Arc::clone(binding.pod()),
                node: Arc::clone(&binding.node),
                stage: match binding.stage {
                    Stage::WaitingOnPermit(_) => "WaitingOnPermit",
                    Stage::PreBinding { .. } => "PreBinding",
                    Stage::Binding => "Binding",
                    Stage::Uncertain(_) => "Uncertain",
                },
            })
            .collect();
        bindings.sort_by_key(|binding| binding.pod.key());
        QueueView { waiting, bindings }
    }

    /// All nodes and pods that it knows of.
    pub fn known_objects(&self) -> Known {
        let waiting = self.pending.values().chain(self.unclaimed_pods.values()).map(|pod| pod.uid.clone());
        let nodes = self.cache.nodes().names().cloned().collect();
        let pods = self.cache.uids().cloned().chain(waiting).collect();
        Known { nodes, pods }
    }
}

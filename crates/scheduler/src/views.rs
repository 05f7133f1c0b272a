//! Views of the scheduler's state for the debugger. They hold pointers only, so they are cheap.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use supercargo_framework::{NodeInfo, NodeRecord, PodInfo, Resource, Uid};

use crate::bindings::Stage;
use crate::scheduler::Scheduler;
use supercargo_queue::{Place, QueuedPod};

/// A node and the pods on it.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// The node.
    pub node: Arc<NodeRecord>,
    /// The sum of its pods' requests.
    pub requested: Resource,
    /// The pods on it, assumed ones included.
    pub pods: Vec<PodOnNode>,
    /// The queued pods that are nominated for it.
    pub nominated: Vec<Arc<PodInfo>>,
}

/// A pod on a node.
#[derive(Clone, Debug)]
pub struct PodOnNode {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// Whether the informer has not confirmed it yet.
    pub assumed: bool,
}

/// Every pod without a node.
#[derive(Clone, Debug, Default)]
pub struct QueueView {
    /// The queued pods, in the order they entered their queue.
    pub waiting: Vec<(Place, QueuedPod)>,
    /// The pods in bindings.
    pub bindings: Vec<BindingView>,
}

/// A pod in a binding.
#[derive(Clone, Debug)]
pub struct BindingView {
    /// The pod in the version for which the node was chosen.
    pub pod: Arc<PodInfo>,
    /// The node.
    pub node: Arc<str>,
    /// The stage: `WaitingOnPermit`, `PreBinding`, `Binding` or `Uncertain`.
    pub stage: &'static str,
}

/// The known nodes and pods, to compare with an informer's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownObjects {
    /// The names of the nodes.
    pub nodes: BTreeSet<Arc<str>>,
    /// The UIDs of the pods that have not ended, with or without a node.
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

    /// Every queued pod and its place, in any order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (Place, &QueuedPod)> {
        self.queue.entries().filter_map(|entry| Some((self.queue.place(entry.uid())?, entry)))
    }

    /// Every queued pod and every binding.
    pub fn queue_view(&self) -> QueueView {
        let mut waiting: Vec<_> = self.waiting().map(|(place, entry)| (place, entry.clone())).collect();
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

    /// Those of the nodes whose sums are not those of their pods: none, unless there is a bug.
    pub fn nodes_with_wrong_sums(&self, names: &[Arc<str>]) -> Vec<Arc<str>> {
        let nodes = names.iter().filter_map(|name| self.cache.nodes().get(name));
        nodes.filter(|info| !info.has_exact_sums()).map(|info| Arc::clone(info.name())).collect()
    }

    /// All known nodes and pods.
    pub fn known_objects(&self) -> KnownObjects {
        let waiting = self.pending.values().chain(self.unclaimed_pods.values()).map(|pod| pod.uid.clone());
        let nodes = self.cache.nodes().names().cloned().collect();
        let pods = self.cache.uids().cloned().chain(waiting).collect();
        KnownObjects { nodes, pods }
    }
}

//! What a change of the cluster leads to: the scheduler continues in simulated time, on a modelled
//! cluster.

mod cluster;
mod drain;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use supercargo_framework::pod::PodKey;
use supercargo_framework::{NodeRecord, Now, PodInfo, Uid};

use self::cluster::ModelCluster;
use crate::copies::can_be_copied;
use crate::scheduler::Scheduler;
use crate::why::Why;

/// A change of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Nodes like this one come, with its pods of DaemonSets.
    AddNodes {
        /// The node.
        like: Arc<str>,
        /// How many come.
        count: usize,
    },
    /// Pods like this one are created.
    AddPods {
        /// The pod.
        like: PodKey,
        /// How many are created.
        count: usize,
    },
    /// A pod is deleted, and nothing replaces it.
    Delete(PodKey),
    /// A node takes no new pods.
    Cordon(Arc<str>),
    /// A cordoned node takes pods again.
    Uncordon(Arc<str>),
    /// Nodes are cordoned, and their pods are evicted as by `kubectl drain`: pods of DaemonSets
    /// stay, and PodDisruptionBudgets are respected.
    Drain(Vec<Arc<str>>),
    /// Nodes are lost at once, with all their pods.
    Fail(Vec<Arc<str>>),
}

/// Why a change cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhatIfError {
    /// The change names a node that does not exist.
    #[error("there is no node {0}")]
    NoNode(Arc<str>),
    /// The change names a pod that does not exist.
    #[error("pod {0} does not exist or has ended")]
    NoPod(PodKey),
    /// Copies of the pod would need claims of their own.
    #[error(
        "pod {0} has a volume or resource claims that copies would need of their own, so it cannot be copied"
    )]
    Claims(PodKey),
    /// The answer took too long.
    #[error("timed out")]
    Stopped,
}

/// What a change leads to.
#[derive(Clone, Debug)]
pub struct WhatIf {
    /// The pods whose place differs from what it would be without the change, and those that stay
    /// although they should leave. Ordered by name.
    pub pods: Vec<PodOutcome>,
    /// The number of pods of DaemonSets and static pods on these nodes: a drain leaves them, and
    /// they fail with their node. They are not among the others.
    pub of_nodes: usize,
    /// Whether all came to rest. Otherwise, pods were still waiting for something when the
    /// simulated time was over.
    pub is_still: bool,
}

/// What becomes of a pod. Its replacement counts as the pod itself.
#[derive(Clone, Debug)]
pub struct PodOutcome {
    /// The pod.
    pub pod: PodKey,
    /// Its UID, which replacements keep.
    pub uid: Uid,
    /// Its node without the change.
    pub from: Option<Arc<str>>,
    /// Whether another pod preempts it.
    pub is_preempted: bool,
    /// Where it ends.
    pub end: End,
}

/// Where a pod ends.
#[derive(Clone, Debug)]
pub enum End {
    /// On this node.
    On(Arc<str>),
    /// It was evicted, and comes back to a drained node: it tolerates the cordon.
    Back(Arc<str>),
    /// It is pending. Only the first few pods have a reason.
    Pending(Option<Box<Why>>),
    /// It is gone: no controller replaces it.
    Gone,
    /// It stays on a node that is drained: its budgets allow no eviction.
    HeldUp {
        /// The node.
        node: Arc<str>,
        /// The names of the PodDisruptionBudgets.
        budgets: Vec<Arc<str>>,
    },
    /// Its replacement needs ephemeral volumes, which are not simulated.
    Unknown,
}

impl End {
    /// Whether the pod has no node, or one that it should leave.
    pub fn is_bad(&self) -> bool {
        !matches!(self, Self::On(_))
    }
}

impl Scheduler {
    /// See [`Fork::what_if`](crate::Fork::what_if). Afterwards, the state is simulated.
    pub(crate) fn what_if(
        &mut self,
        now: &mut Now,
        verbs: &[Verb],
        reasons: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<WhatIf, WhatIfError> {
        self.extenders.clear();
        let mut cluster = ModelCluster::new(self, now, stop);
        cluster.settle()?;
        cluster.preempted.clear();
        let before = cluster.pods();
        for verb in verbs {
            cluster.apply(verb)?;
            cluster.settle()?;
        }
        Ok(cluster.outcome(&before, reasons))
    }
}

/// The pods of a moment.
type Pods = FxHashMap<Uid, Arc<PodInfo>>;

impl ModelCluster<'_> {
    fn apply(&mut self, verb: &Verb) -> Result<(), WhatIfError> {
        match verb {
            Verb::AddNodes { like, count } => {
                let node = self.node(like)?;
                self.add_nodes(&node, *count);
            }
            Verb::AddPods { like, count } => {
                let pod = self.pod(like)?;
                if !can_be_copied(&self.scheduler().objects, &pod) {
                    return Err(WhatIfError::Claims(like.clone()));
                }
                self.add_pods(&pod, *count);
            }
            Verb::Delete(key) => {
                let pod = self.pod(key)?;
                self.delete(&pod);
            }
            Verb::Cordon(name) | Verb::Uncordon(name) => {
                let node = self.node(name)?;
                self.cordon(&node, matches!(verb, Verb::Cordon(_)));
            }
            Verb::Drain(names) => {
                let nodes = self.nodes(names)?;
                self.drain(&nodes)?;
            }
            Verb::Fail(names) => {
                let nodes = self.nodes(names)?;
                self.fail(&nodes);
            }
        }
        Ok(())
    }

    fn nodes(&self, names: &[Arc<str>]) -> Result<Vec<Arc<NodeRecord>>, WhatIfError> {
        names.iter().map(|name| self.node(name)).collect()
    }

    fn outcome(mut self, before: &Pods, reasons: usize) -> WhatIf {
        let after = self.pods();
        let new = after.iter().filter(|(uid, _)| !before.contains_key(*uid));
        let mut pods: Vec<PodOutcome> = before
            .iter()
            .chain(new)
            .filter(|(uid, _)| !self.expected.contains(*uid))
            .filter_map(|(uid, pod)| {
                let from = before.get(uid).and_then(|pod| pod.node_name.clone());
                let to = after.get(uid).map(|pod| pod.node_name.clone());
                let end = match (self.fates.get(uid).cloned(), to) {
                    (Some(end), _) => end,
                    (None, None) => End::Gone,
                    (None, Some(Some(to))) if self.evicted.contains(uid) && self.drained.contains(&to) => {
                        End::Back(to)
                    }
                    (None, Some(to)) if before.contains_key(uid) && from == to => return None,
                    (None, Some(Some(to))) => End::On(to),
                    (None, Some(None)) => End::Pending(None),
                };
                let is_preempted = self.preempted.contains(uid);
                Some(PodOutcome { pod: pod.key(), uid: uid.clone(), from, is_preempted, end })
            })
            .collect();
        pods.sort_by(|a, b| a.pod.cmp(&b.pod));
        let pending = pods.iter_mut().filter(|outcome| matches!(outcome.end, End::Pending(_)));
        for outcome in pending.take(reasons) {
            outcome.end = End::Pending(self.why(&after[&outcome.uid]).map(Box::new));
        }
        WhatIf { pods, of_nodes: self.of_nodes, is_still: self.is_still }
    }
}

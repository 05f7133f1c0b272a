//! Running filters: on nodes as they are, and as they will be once promises are kept.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::plugin::{Candidate, FilterPlugin, PreFilterPlugin, RunFilters};
use supercargo_framework::{Code, CycleState, NodeIndex, NodeInfo, PodInfo, Status};

use crate::cycle::{Cycle, SkippedFilters};
use crate::diagnosis::Diagnosis;
use crate::failure::FailureKind;
use crate::profile::Named;

/// The filters of one cycle.
type Filters<'a> = SmallVec<[&'a Named<dyn FilterPlugin>; 16]>;

impl Cycle<'_> {
    /// Filters nodes from `start` on, round, until `wanted` are found. An error ends the search.
    pub(crate) fn filter_nodes(
        &self,
        state: &CycleState,
        diagnosis: &mut Diagnosis,
        nodes: &[NodeIndex],
        wanted: usize,
        start: usize,
    ) -> (Vec<NodeIndex>, Option<FailureKind>) {
        let filters = &self.filters(state)[..];
        let mut feasible = Vec::with_capacity(wanted.min(nodes.len()));
        let start = start.checked_rem(nodes.len()).unwrap_or(0);
        for index in nodes[start..].iter().chain(&nodes[..start]) {
            let status = self.filter_with_nominated(filters, state, self.cx.node(*index));
            match status.code() {
                Code::Success => feasible.push(*index),
                _ if status.is_rejected() => diagnosis.set(*index, status),
                _ => return (feasible, Some(FailureKind::Internal(status.message()))),
            }
            if feasible.len() >= wanted {
                break;
            }
        }
        (feasible, None)
    }

    /// The filters that have something to say.
    fn filters(&self, state: &CycleState) -> Filters<'_> {
        let skipped = state.read::<SkippedFilters>();
        let has_a_say = |name: &'static str| skipped.is_none_or(|skipped| !skipped.0.contains(&name));
        self.profile.filter.iter().filter(|filter| has_a_say(filter.name)).collect()
    }

    /// The nodes that pods of at least this pod's priority have been promised, sorted.
    pub(crate) fn promised_nodes(&self) -> Vec<NodeIndex> {
        let nominator = &self.queue.nominator;
        let mut nodes: Vec<NodeIndex> = nominator
            .promised()
            .filter(|node| self.queue.nominated_on(node).iter().any(|pod| self.defers_to(pod)))
            .filter_map(|node| self.cx.nodes().index_of(node))
            .collect();
        nodes.sort_unstable();
        nodes
    }

    /// Whether a promise to that pod counts for this one.
    fn defers_to(&self, promised: &PodInfo) -> bool {
        promised.priority >= self.pod.priority && promised.uid != self.pod.uid
    }

    /// The verdict of all filters on a node, with the pods that have been promised it and without.
    pub(crate) fn verdict(&self, state: &CycleState, index: NodeIndex) -> Status {
        self.filter_with_nominated(&self.filters(state), state, self.cx.node(index))
    }

    /// Filters a node as it is and, where pods of at least this pod's priority have been promised it, as it will be.
    fn filter_with_nominated(
        &self,
        filters: &[&Named<dyn FilterPlugin>],
        state: &CycleState,
        node: &NodeInfo,
    ) -> Status {
        if !self.queue.nominator.is_empty() {
            let mut promised = self.queue.nominated_on(node.name());
            promised.retain(|pod| self.defers_to(pod));
            if !promised.is_empty() {
                let status = self.filter_trial(filters, state, node, &promised);
                if !status.is_success() {
                    return status;
                }
            }
        }
        self.filter_node(filters, state, node)
    }

    fn filter_trial(
        &self,
        filters: &[&Named<dyn FilterPlugin>],
        state: &CycleState,
        node: &NodeInfo,
        promised: &[Arc<PodInfo>],
    ) -> Status {
        let (mut state, mut node) = (state.clone(), node.clone());
        for pod in promised {
            node.add_pod(Arc::clone(pod));
            let status = self.add_pod(&mut state, self.pod, pod, &node);
            if !status.is_success() {
                return status;
            }
        }
        self.filter_node(filters, &state, &node)
    }

    fn filter_node(
        &self,
        filters: &[&Named<dyn FilterPlugin>],
        state: &CycleState,
        node: &NodeInfo,
    ) -> Status {
        for Named { name, plugin } in filters {
            self.running.set("Filter", name);
            let status = plugin.filter(self.cx, state, self.pod, node);
            if status.is_success() {
                continue;
            }
            if status.is_rejected() {
                return status.by(*name);
            }
            return Status::error(format!("running {name:?} filter plugin: {}", status.message())).by(*name);
        }
        Status::success()
    }

    /// Tells the PreFilter plugins that have something to say of a trial.
    fn extend(
        &self,
        verb: &str,
        state: &mut CycleState,
        call: impl Fn(&dyn PreFilterPlugin, &mut CycleState) -> Status,
    ) -> Status {
        let skipped = state.read::<SkippedFilters>().cloned().unwrap_or_default();
        for Named { name, plugin } in &self.profile.pre_filter {
            if skipped.0.contains(name) {
                continue;
            }
            self.running.set("PreFilterExtensions", name);
            let status = call(&**plugin, state);
            if !status.is_success() {
                let message = status.message();
                return Status::error(format!("running {verb} on PreFilter plugin {name:?}: {message}"));
            }
        }
        Status::success()
    }
}

impl RunFilters for Cycle<'_> {
    fn run_filters(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Status {
        self.filter_with_nominated(&self.filters(state), state, node)
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status {
        self.extend("AddPod", state, |plugin, state| match plugin.extensions() {
            Some(extensions) => extensions.add_pod(state, pod, added, node),
            None => Status::success(),
        })
    }

    fn extend_preemption(
        &self,
        pod: &Arc<PodInfo>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Status> {
        self.extend_candidates(pod, candidates)
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
    ) -> Status {
        self.extend("RemovePod", state, |plugin, state| match plugin.extensions() {
            Some(extensions) => extensions.remove_pod(state, pod, removed, node),
            None => Status::success(),
        })
    }
}

//! The scheduling algorithm: from a pod to the best node, or to the reasons why there is none.

use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use supercargo_framework::plugin::{FilterPlugin, NodeNames, PreFilter, RunFilters};
use supercargo_framework::{Code, Context, CycleState, NodeIndex, NodeInfo, PodInfo, Status};

use crate::diagnosis::{Diagnosis, FitError};
use crate::extender::{Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec};
use crate::profile::{Named, Profile};
use crate::queue::SchedulingQueue;

/// The name under which extenders are blamed for a pod that they turned down.
pub(crate) const EXTENDER: &str = "Extender";

/// Why a cycle found no node.
#[derive(Debug)]
pub(crate) enum CycleError {
    /// There is no node at all. Upstream treats this apart: no plugin is to blame, so nothing wakes the pod but time.
    NoNodes,
    /// No node fits.
    Fit(Box<FitError>),
    /// Something failed.
    Internal(String),
}

/// The extension point and the plugin that run at the moment, to name the culprit of a panic.
#[derive(Default)]
pub(crate) struct Running(Cell<Option<(&'static str, &'static str)>>);

impl Running {
    pub(crate) fn set(&self, point: &'static str, plugin: &'static str) {
        self.0.set(Some((point, plugin)));
    }

    pub(crate) fn take(&self) -> Option<(&'static str, &'static str)> {
        self.0.take()
    }
}

/// How many nodes to find, and where to begin: upstream's sampling, off unless configured or an extender filters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    /// The configured percentage; 0 means adaptive.
    pub(crate) percentage: i32,
    /// The index to begin at.
    pub(crate) start: usize,
}

/// Below this many nodes all are looked at.
const MIN_FEASIBLE_NODES: usize = 100;

impl Sampling {
    /// How many feasible nodes suffice among `nodes`.
    pub(crate) fn nodes_to_find(percentage: i32, nodes: usize) -> usize {
        if nodes < MIN_FEASIBLE_NODES || percentage >= 100 {
            return nodes;
        }
        let adaptive = 50_usize.saturating_sub(nodes / 125).max(5);
        let percentage = usize::try_from(percentage)
            .ok()
            .filter(|p| *p > 0)
            .unwrap_or(adaptive);
        (nodes * percentage / 100).max(MIN_FEASIBLE_NODES)
    }
}

/// The chosen node, and how many were looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) node: NodeIndex,
    /// How far the search got, when it was a sampled one.
    pub(crate) processed: usize,
}

/// One cycle's view: everything it reads.
pub(crate) struct Cycle<'a> {
    pub(crate) cx: &'a Context<'a>,
    pub(crate) profile: &'a Profile,
    pub(crate) pod: &'a Arc<PodInfo>,
    pub(crate) queue: &'a SchedulingQueue,
    pub(crate) extenders: &'a [ExtenderSpec],
    pub(crate) sampling: Option<Sampling>,
    pub(crate) running: &'a Running,
}

/// The filters of one cycle.
type Filters<'a> = SmallVec<[&'a Named<dyn FilterPlugin>; 16]>;

/// The plugins whose PreFilter skipped: their filters are left out, in trials too.
#[derive(Clone, Default)]
struct SkippedFilters(SmallVec<[&'static str; 16]>);

/// What PreFilter left of the nodes.
enum Prepared {
    /// These, or all.
    Nodes(Option<NodeNames>),
    /// None; the reason is in the diagnosis.
    Rejected,
}

impl Cycle<'_> {
    /// Finds the best node.
    pub(crate) fn run(&self, state: &mut CycleState, calls: &mut dyn Calls) -> Result<Found, CycleError> {
        let all_nodes = self.cx.nodes().len();
        if all_nodes == 0 {
            return Err(CycleError::NoNodes);
        }
        let mut diagnosis = Diagnosis::default();
        let (feasible, processed) = self.find_feasible(state, calls, &mut diagnosis)?;
        let node = match feasible[..] {
            [] => return Err(CycleError::Fit(Box::new(FitError { all_nodes, diagnosis }))),
            [only] => only,
            _ => self.best(state, calls, &feasible)?,
        };
        Ok(Found { node, processed })
    }

    fn find_feasible(
        &self,
        state: &mut CycleState,
        calls: &mut dyn Calls,
        diagnosis: &mut Diagnosis,
    ) -> Result<(Vec<NodeIndex>, usize), CycleError> {
        let Prepared::Nodes(names) = self.pre_filter(state, diagnosis)? else {
            return Ok((Vec::new(), 0));
        };
        let state = &*state;
        let filters = &self.filters(state)[..];
        if let Some(node) = self.nominated_node() {
            // A failure here is upstream's to log only: the full search follows, and what was found out stays.
            if let Ok(feasible) = self.filter_nodes(filters, state, diagnosis, &[node], 1, 0)
                && let Ok(feasible) = self.extend_filter(calls, diagnosis, feasible)
                && !feasible.is_empty()
            {
                return Ok((feasible, 0));
            }
        }
        let listed = names.as_ref().map(|names| self.resolve(names));
        if listed.is_some() {
            let plugins: Vec<_> = diagnosis
                .unschedulable_plugins
                .iter()
                .map(|name| &**name)
                .collect();
            let reason = format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "));
            diagnosis.statuses.absent = Some(Status::unresolvable(reason));
        }
        let nodes = listed.as_deref().unwrap_or_else(|| self.cx.nodes().order());
        let wanted = self.nodes_to_find(nodes.len());
        let start = self.sampling.map_or(0, |sampling| sampling.start);
        let feasible = self.filter_nodes(filters, state, diagnosis, nodes, wanted, start)?;
        let processed = feasible.len() + diagnosis.statuses.by_node.len();
        let before = feasible.len();
        let feasible = self.extend_filter(calls, diagnosis, feasible)?;
        if feasible.len() != before {
            diagnosis.unschedulable_plugins.insert(EXTENDER.into());
        }
        Ok((feasible, processed))
    }

    fn nodes_to_find(&self, nodes: usize) -> usize {
        let Some(sampling) = self.sampling else {
            return nodes;
        };
        let filtering = self.extenders.iter().any(|extender| extender.filters);
        let scoring = !self.profile.score.is_empty() || self.extenders.iter().any(|e| e.weight.is_some());
        if filtering || scoring {
            Sampling::nodes_to_find(sampling.percentage, nodes)
        } else {
            1
        }
    }

    fn nominated_node(&self) -> Option<NodeIndex> {
        self.cx
            .nodes()
            .index_of(self.pod.status.nominated_node_name.as_deref()?)
    }

    /// The nodes that PreFilter left, those that exist, by name.
    fn resolve(&self, names: &NodeNames) -> Vec<NodeIndex> {
        let mut names: Vec<_> = names.iter().collect();
        names.sort();
        names
            .into_iter()
            .filter_map(|name| self.cx.nodes().index_of(name))
            .collect()
    }

    /// The filters that have something to say.
    fn filters(&self, state: &CycleState) -> Filters<'_> {
        let skipped = state.read::<SkippedFilters>();
        let wanted = |name: &'static str| skipped.is_none_or(|skipped| !skipped.0.contains(&name));
        self.profile
            .filter
            .iter()
            .filter(|filter| wanted(filter.name))
            .collect()
    }

    /// Runs PreFilter.
    fn pre_filter(&self, state: &mut CycleState, diagnosis: &mut Diagnosis) -> Result<Prepared, CycleError> {
        let mut skipped = SkippedFilters::default();
        let mut nodes: Option<NodeNames> = None;
        let mut rejection: Option<Status> = None;
        for Named { name, plugin } in &self.profile.pre_filter {
            self.running.set("PreFilter", name);
            match plugin.pre_filter(self.cx, state, self.pod) {
                PreFilter::AllNodes => {}
                PreFilter::Skip => skipped.0.push(name),
                PreFilter::Nodes(names) => {
                    diagnosis.unschedulable_plugins.insert((*name).into());
                    let rest: NodeNames = match nodes.take() {
                        None => names,
                        Some(known) => known.intersection(&names).cloned().collect(),
                    };
                    if rest.is_empty() {
                        rejection = Some(nobody_satisfies(diagnosis));
                        break;
                    }
                    nodes = Some(rest);
                }
                PreFilter::Reject(status) if status.is_rejected() => {
                    let stop = status.code() == Code::UnschedulableAndUnresolvable;
                    rejection = Some(status.by(*name));
                    // Upstream forgets the plugins that named nodes once one turns the pod down outright.
                    if stop {
                        diagnosis.unschedulable_plugins.clear();
                        break;
                    }
                }
                PreFilter::Reject(status) => {
                    return Err(CycleError::Internal(format!(
                        "running PreFilter plugin {name:?}: {}",
                        status.message()
                    )));
                }
            }
        }
        if let Some(status) = rejection {
            diagnosis.pre_filter_message = status.message();
            diagnosis.blame(&status);
            diagnosis.statuses.absent = Some(status);
            return Ok(Prepared::Rejected);
        }
        state.write(skipped);
        Ok(Prepared::Nodes(nodes))
    }

    /// Filters nodes from `start` on, round, until `wanted` are found.
    fn filter_nodes(
        &self,
        filters: &[&Named<dyn FilterPlugin>],
        state: &CycleState,
        diagnosis: &mut Diagnosis,
        nodes: &[NodeIndex],
        wanted: usize,
        start: usize,
    ) -> Result<Vec<NodeIndex>, CycleError> {
        let mut feasible = Vec::with_capacity(wanted.min(nodes.len()));
        let start = if nodes.is_empty() { 0 } else { start % nodes.len() };
        for index in nodes[start..].iter().chain(&nodes[..start]) {
            let status = self.filter_with_nominated(filters, state, self.cx.node(*index));
            match status.code() {
                Code::Success => feasible.push(*index),
                _ if status.is_rejected() => diagnosis.set(*index, status),
                _ => return Err(CycleError::Internal(status.message())),
            }
            if feasible.len() >= wanted {
                break;
            }
        }
        Ok(feasible)
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
            promised.retain(|pod| pod.uid != self.pod.uid && pod.priority >= self.pod.priority);
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
        for filter in filters {
            self.running.set("Filter", filter.name);
            let status = filter.plugin.filter(self.cx, state, self.pod, node);
            if status.is_success() {
                continue;
            }
            if status.is_rejected() {
                return status.by(filter.name);
            }
            return Status::error(format!(
                "running {:?} filter plugin: {}",
                filter.name,
                status.message()
            ))
            .by(filter.name);
        }
        Status::success()
    }

    /// Lets the extenders filter what is left, one after the other.
    fn extend_filter(
        &self,
        calls: &mut dyn Calls,
        diagnosis: &mut Diagnosis,
        mut feasible: Vec<NodeIndex>,
    ) -> Result<Vec<NodeIndex>, CycleError> {
        for extender in self
            .extenders
            .iter()
            .filter(|e| e.filters && e.is_interested(self.pod))
        {
            if feasible.is_empty() {
                break;
            }
            let names: Vec<Arc<str>> = feasible
                .iter()
                .map(|i| Arc::clone(self.cx.node(*i).name()))
                .collect();
            let question = ExtenderQuestion::Filter {
                pod: self.pod,
                nodes: &names,
            };
            let (kept, failed, hopeless) = match calls.ask(extender, question) {
                Ok(ExtenderAnswer::Filtered {
                    nodes,
                    failed,
                    failed_and_unresolvable,
                }) => (nodes, failed, failed_and_unresolvable),
                Ok(ExtenderAnswer::Prioritized(_)) => {
                    return Err(CycleError::Internal(format!(
                        "extender {} answered another question",
                        extender.name
                    )));
                }
                Err(_) if extender.ignorable => continue,
                Err(reason) => return Err(CycleError::Internal(reason)),
            };
            for (name, reason) in failed {
                if let Some(index) = self.cx.nodes().index_of(&name) {
                    diagnosis.set(index, Status::unschedulable(reason));
                }
            }
            for (name, reason) in hopeless {
                if let Some(index) = self.cx.nodes().index_of(&name) {
                    diagnosis.set(index, Status::unresolvable(reason));
                }
            }
            feasible.retain(|index| kept.contains(self.cx.node(*index).name()));
        }
        Ok(feasible)
    }

    /// The feasible node with the highest total score; among equals the first in visiting order.
    fn best(
        &self,
        state: &mut CycleState,
        calls: &mut dyn Calls,
        feasible: &[NodeIndex],
    ) -> Result<NodeIndex, CycleError> {
        let mut totals = self.scores(state, feasible)?;
        self.extend_scores(calls, feasible, &mut totals);
        let mut best = 0;
        for (i, total) in totals.iter().enumerate() {
            if total.cmp(&totals[best]) == Ordering::Greater {
                best = i;
            }
        }
        Ok(feasible[best])
    }

    /// The weighted sum of all plugins' normalised scores, per feasible node.
    pub(crate) fn scores(
        &self,
        state: &mut CycleState,
        feasible: &[NodeIndex],
    ) -> Result<Vec<i64>, CycleError> {
        if self.profile.score.is_empty() {
            return Ok(vec![1; feasible.len()]);
        }
        let skipped = self.pre_score(state, feasible)?;
        let mut totals = vec![0; feasible.len()];
        let mut raw = Vec::with_capacity(feasible.len());
        for scorer in self
            .profile
            .score
            .iter()
            .filter(|scorer| !skipped.contains(&scorer.name))
        {
            raw.clear();
            self.running.set("Score", scorer.name);
            for index in feasible {
                let score = scorer
                    .plugin
                    .score(self.cx, state, self.pod, self.cx.node(*index));
                raw.push(score.map_err(|status| {
                    CycleError::Internal(format!(
                        "running Score plugins: plugin {:?} failed with: {}",
                        scorer.name,
                        status.message()
                    ))
                })?);
            }
            crate::scoring::normalize(scorer, state, self.pod, &mut raw).map_err(CycleError::Internal)?;
            for (total, score) in totals.iter_mut().zip(&raw) {
                *total += score * scorer.weight;
            }
        }
        Ok(totals)
    }

    fn pre_score(
        &self,
        state: &mut CycleState,
        feasible: &[NodeIndex],
    ) -> Result<SmallVec<[&'static str; 16]>, CycleError> {
        let mut skipped = SmallVec::new();
        for Named { name, plugin } in &self.profile.pre_score {
            self.running.set("PreScore", name);
            let status = plugin.pre_score(self.cx, state, self.pod, feasible);
            if status.is_skip() {
                skipped.push(*name);
            } else if !status.is_success() {
                return Err(CycleError::Internal(format!(
                    "running PreScore plugin {name:?}: {}",
                    status.message()
                )));
            }
        }
        Ok(skipped)
    }

    /// Adds what extenders think. One that fails is left out, as upstream does.
    fn extend_scores(&self, calls: &mut dyn Calls, feasible: &[NodeIndex], totals: &mut [i64]) {
        for extender in self.extenders.iter().filter(|e| e.is_interested(self.pod)) {
            let Some(weight) = extender.weight else { continue };
            let names: Vec<Arc<str>> = feasible
                .iter()
                .map(|i| Arc::clone(self.cx.node(*i).name()))
                .collect();
            let question = ExtenderQuestion::Prioritize {
                pod: self.pod,
                nodes: &names,
            };
            let Ok(ExtenderAnswer::Prioritized(scores)) = calls.ask(extender, question) else {
                continue;
            };
            let scores: FxHashMap<_, _> = scores.into_iter().collect();
            for (name, total) in names.iter().zip(totals.iter_mut()) {
                // Extenders score from 0 to 10, plugins from 0 to 100.
                *total += scores
                    .get(name)
                    .map_or(0, |score| score.saturating_mul(weight).saturating_mul(10));
            }
        }
    }
}

/// No node is in every set that PreFilter plugins named.
fn nobody_satisfies(diagnosis: &Diagnosis) -> Status {
    let plugins: Vec<_> = diagnosis
        .unschedulable_plugins
        .iter()
        .map(|name| &**name)
        .collect();
    Status::unresolvable(match plugins[..] {
        [only] => format!("node(s) didn't satisfy plugin {only}"),
        _ => format!(
            "node(s) didn't satisfy plugin(s) [{}] simultaneously",
            plugins.join(" ")
        ),
    })
}

impl RunFilters for Cycle<'_> {
    fn run_filters(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Status {
        self.filter_with_nominated(&self.filters(state), state, node)
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status {
        for Named { name, plugin } in &self.profile.pre_filter {
            self.running.set("PreFilterExtensionAddPod", name);
            let status = plugin
                .extensions()
                .map_or(Status::success(), |ext| ext.add_pod(state, pod, added, node));
            if !status.is_success() {
                return Status::error(format!(
                    "running AddPod on PreFilter plugin {name:?}: {}",
                    status.message()
                ));
            }
        }
        Status::success()
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
    ) -> Status {
        for Named { name, plugin } in &self.profile.pre_filter {
            self.running.set("PreFilterExtensionRemovePod", name);
            let status = plugin
                .extensions()
                .map_or(Status::success(), |ext| ext.remove_pod(state, pod, removed, node));
            if !status.is_success() {
                return Status::error(format!(
                    "running RemovePod on PreFilter plugin {name:?}: {}",
                    status.message()
                ));
            }
        }
        Status::success()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_follows_upstreams_numbers() {
        for (percentage, nodes, expected) in [
            (0, 99, 99),
            (0, 100, 100),
            (0, 1000, 420),
            (0, 5000, 500),
            (0, 6000, 300),
            (30, 1000, 300),
            (5, 1000, 100),
            (100, 5000, 5000),
        ] {
            assert_eq!(
                Sampling::nodes_to_find(percentage, nodes),
                expected,
                "{percentage} % of {nodes}"
            );
        }
    }
}

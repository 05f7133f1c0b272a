//! Runs filters: on nodes as they are, and with their nominated pods added.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::plugin::FilterPlugin;
use supercargo_framework::{Code, CycleState, NodeIndex, NodeInfo, PodInfo, Status};

use crate::cycle::Cycle;
use crate::skipped_filters::SkippedFilters;
use supercargo_runtime::diagnosis::Diagnosis;
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::observer::{Evaluated, Observation, PluginSet, Point};
use supercargo_runtime::profile::Named;

/// The filters of one cycle.
pub type Filters<'a> = SmallVec<[&'a Named<dyn FilterPlugin>; 16]>;

impl Cycle<'_> {
    /// Filters nodes in a circle, beginning at `start`, until `wanted` are found. An error ends the
    /// search.
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
        self.note_evaluated(Evaluated { filter: self.places(filters), ..Evaluated::default() });
        self.plugins.timer.restart();
        for (nth, index) in nodes[start..].iter().chain(&nodes[..start]).enumerate() {
            let status = self.filter_nth(nth, filters, state, self.cx.node(*index));
            match status.code() {
                Code::Success => feasible.push(*index),
                _ if status.is_rejected() => diagnosis.set(*index, status),
                _ => {
                    self.plugins.timer.point(Point::Filter, status.code());
                    return (feasible, Some(FailureKind::Internal(status.message())));
                }
            }
            if feasible.len() >= wanted {
                break;
            }
        }
        self.plugins.timer.point(Point::Filter, Code::Success);
        (feasible, None)
    }

    /// The positions of these filters among all filters of the profile.
    fn places(&self, filters: &[&Named<dyn FilterPlugin>]) -> PluginSet {
        let mut left = filters.iter().peekable();
        let all = self.profile.filter.iter().enumerate();
        all.filter(|(_, filter)| left.next_if(|it| std::ptr::eq(**it, *filter)).is_some())
            .fold(PluginSet::default(), |set, (place, _)| set.and(PluginSet::one(place)))
    }

    /// The filters whose plugin was not skipped in PreFilter.
    pub fn filters(&self, state: &CycleState) -> Filters<'_> {
        let skipped = SkippedFilters::of(state);
        self.profile.filter.iter().filter(|filter| !skipped.contains(filter.name)).collect()
    }

    /// The nodes that pods of at least this pod's priority are nominated for, sorted.
    pub fn nominated_nodes(&self) -> Vec<NodeIndex> {
        let nominator = &self.queue.nominator;
        let mut nodes: Vec<NodeIndex> = nominator
            .nodes()
            .filter(|node| self.queue.nominated_on(node).iter().any(|pod| self.defers_to(pod)))
            .filter_map(|node| self.cx.nodes().index_of(node))
            .collect();
        nodes.sort_unstable();
        nodes
    }

    /// Whether that pod's nomination takes precedence over this pod.
    fn defers_to(&self, nominated: &PodInfo) -> bool {
        nominated.priority >= self.pod.priority && nominated.uid != self.pod.uid
    }

    /// The verdict of all filters on a node, with and without its nominated pods.
    pub fn verdict(&self, state: &CycleState, index: NodeIndex) -> Status {
        self.filter_with_nominated(&self.filters(state), state, self.cx.node(index))
    }

    /// Filters a node as it is and, if pods of at least this pod's priority are nominated for it,
    /// with these pods.
    pub fn filter_with_nominated(
        &self,
        filters: &[&Named<dyn FilterPlugin>],
        state: &CycleState,
        node: &NodeInfo,
    ) -> Status {
        self.filter_nth(usize::MAX, filters, state, node)
    }

    /// The same for the `nth` node of a search.
    fn filter_nth(
        &self,
        nth: usize,
        filters: &[&Named<dyn FilterPlugin>],
        state: &CycleState,
        node: &NodeInfo,
    ) -> Status {
        let nominated = self.nominated(node);
        if !nominated.is_empty() {
            let status = self.filter_with(&nominated, nth, filters, state, node);
            if !status.is_success() {
                return status;
            }
        }
        self.filter_node(nth, filters, state, node)
    }

    /// The pods that are nominated for the node and take precedence over this pod.
    fn nominated(&self, node: &NodeInfo) -> Vec<Arc<PodInfo>> {
        let nominator = &self.queue.nominator;
        if nominator.is_empty() || nominator.on_node(node.name()).is_empty() {
            return Vec::new();
        }
        let mut nominated = self.queue.nominated_on(node.name());
        nominated.retain(|pod| self.defers_to(pod));
        nominated
    }

    /// Whether there are such pods.
    pub fn has_nominated(&self, node: &NodeInfo) -> bool {
        !self.nominated(node).is_empty()
    }

    /// Filters a copy of the node to which these pods have been added.
    fn filter_with(
        &self,
        nominated: &[Arc<PodInfo>],
        nth: usize,
        filters: &[&Named<dyn FilterPlugin>],
        state: &CycleState,
        node: &NodeInfo,
    ) -> Status {
        let (mut state, mut node) = (state.clone(), node.clone());
        for pod in nominated {
            node.add_pod(Arc::clone(pod));
            let status = self.add_nominated(&mut state, pod, &node);
            if !status.is_success() {
                return status;
            }
        }
        self.filter_node(nth, filters, &state, &node)
    }

    /// Runs filters on the `nth` node, as it is, until one rejects it.
    pub fn filter_node(
        &self,
        nth: usize,
        filters: &[&Named<dyn FilterPlugin>],
        state: &CycleState,
        node: &NodeInfo,
    ) -> Status {
        for Named { name, plugin } in filters {
            let call = || plugin.filter(self.cx, state, self.pod, node);
            let status = self.plugins.call_for_node(nth, Point::Filter, name, call, Status::code);
            if status.is_success() {
                continue;
            }
            if status.is_rejected() {
                return status.by(*name);
            }
            let failed = Observation::PluginFailed { plugin: name, point: Point::Filter };
            self.plugins.timer.observer.observe(failed);
            return Status::error(format!("running {name:?} filter plugin: {}", status.message())).by(*name);
        }
        Status::success()
    }

    /// Adds a nominated pod to the state of the PreFilter plugins that were not skipped.
    fn add_nominated(&self, state: &mut CycleState, nominated: &PodInfo, node: &NodeInfo) -> Status {
        let skipped = SkippedFilters::of(state);
        for Named { name, plugin } in &self.profile.pre_filter {
            let Some(extensions) = plugin.extensions().filter(|_| !skipped.contains(name)) else {
                continue;
            };
            let call = || extensions.add_pod(state, self.pod, nominated, node);
            let status = self.plugins.call(Point::PreFilterExtensionAddPod, name, call, followed);
            if followed(&status) != Code::Success {
                return named_error("AddPod", name, &status);
            }
        }
        Status::success()
    }
}

/// The code of a plugin's AddPod or RemovePod. As Skip says no more than that the state stays as it
/// is, it counts as Success.
pub fn followed(status: &Status) -> Code {
    if status.is_skip() { Code::Success } else { status.code() }
}

/// The error of a plugin's AddPod or RemovePod.
pub fn named_error(verb: &str, plugin: &str, status: &Status) -> Status {
    Status::error(format!("running {verb} on PreFilter plugin {plugin:?}: {}", status.message()))
}

//! Dry runs: the filters as PostFilter plugins run them, on modified copies of nodes.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::{Caching, CachingFilters, Scope};
use supercargo_framework::plugin::{Candidate, FilterPlugin, PreFilterPlugin, RunFilters};
use supercargo_framework::{Code, CycleState, NodeInfo, PodInfo, PodTotals, Status};

use supercargo_evaluation::cycle::Cycle;
use supercargo_evaluation::filtering::{Filters, followed, named_error};
use supercargo_evaluation::skipped_filters::SkippedFilters;
use supercargo_runtime::observer::Point;
use supercargo_runtime::profile::Named;

/// The filters of one cycle, grouped by what they depend on.
pub(crate) struct DryRun<'a, 'c> {
    cycle: &'a Cycle<'c>,
    filters: Filters<'a>,
    /// The caching of each filter.
    caching: SmallVec<[&'a dyn Caching; 16]>,
    /// The filters that depend on the node's pods, or on a state that follows these pods.
    of_pods: Filters<'a>,
    /// The PreFilter plugins whose state follows the pods of a dry run.
    followers: SmallVec<[&'a Named<dyn PreFilterPlugin>; 4]>,
}

/// A change of a node's pods that a plugin's state follows.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    AddPod,
    RemovePod,
}

impl Change {
    fn as_str(self) -> &'static str {
        match self {
            Self::AddPod => "AddPod",
            Self::RemovePod => "RemovePod",
        }
    }

    fn point(self) -> Point {
        match self {
            Self::AddPod => Point::PreFilterExtensionAddPod,
            Self::RemovePod => Point::PreFilterExtensionRemovePod,
        }
    }
}

impl<'a, 'c> DryRun<'a, 'c> {
    /// Dry runs that start from this state.
    pub(crate) fn new(cycle: &'a Cycle<'c>, state: &CycleState) -> Self {
        let skipped = SkippedFilters::of(state);
        let pre_filters = cycle.profile.pre_filter.iter();
        let followers: SmallVec<[_; 4]> = pre_filters
            .filter(|named| !skipped.contains(named.name) && named.plugin.extensions().is_some())
            .collect();
        let filters = cycle.filters(state);
        let follows = |name| followers.iter().any(|follower: &&Named<_>| follower.name == name);
        let caching: SmallVec<[_; 16]> =
            filters.iter().map(|filter| cycle.profile.filter_caching(filter.name)).collect();
        let depends_on_pods = |(filter, caching): &(&&Named<dyn FilterPlugin>, &&dyn Caching)| {
            matches!(caching.filter_scope(state, cycle.pod), Scope::Node | Scope::Classes(_))
                || follows(filter.name)
        };
        let of_pods =
            filters.iter().zip(&caching).filter(depends_on_pods).map(|(filter, _)| *filter).collect();
        Self { cycle, filters, caching, of_pods, followers }
    }

    /// Passes a change of a node's pods to the state. Returns whether the state has changed.
    pub(crate) fn follow(
        &self,
        change: Change,
        state: &mut CycleState,
        pod: &PodInfo,
        changed: &PodInfo,
        node: &NodeInfo,
    ) -> Result<bool, Status> {
        let mut has_changed = false;
        for Named { name, plugin } in &self.followers {
            let Some(extensions) = plugin.extensions() else { continue };
            let call = || match change {
                Change::AddPod => extensions.add_pod(state, pod, changed, node),
                Change::RemovePod => extensions.remove_pod(state, pod, changed, node),
            };
            let status = self.cycle.plugins.call(change.point(), name, call, followed);
            if followed(&status) != Code::Success {
                return Err(named_error(change.as_str(), name, &status));
            }
            has_changed |= status.is_success();
        }
        Ok(has_changed)
    }
}

impl RunFilters for DryRun<'_, '_> {
    fn run_filters(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        self.cycle.filter_with_nominated(&self.filters, state, node)
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status {
        let followed = self.follow(Change::AddPod, state, pod, added, node);
        followed.map_or_else(|error| error, |_| Status::success())
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
    ) -> Status {
        let followed = self.follow(Change::RemovePod, state, pod, removed, node);
        followed.map_or_else(|error| error, |_| Status::success())
    }

    fn extend_preemption(
        &self,
        pod: &Arc<PodInfo>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Status> {
        self.cycle.extenders.preempt(pod, candidates)
    }

    fn caching(&self) -> Option<&dyn CachingFilters> {
        Some(self)
    }
}

impl CachingFilters for DryRun<'_, '_> {
    fn run_filters_again(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        self.cycle.filter_with_nominated(&self.of_pods, state, node)
    }

    fn filter_totals(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
        totals: &PodTotals,
    ) -> Option<Status> {
        let cycle = self.cycle;
        if self.follow_pods() || cycle.has_nominated(node) {
            return None;
        }
        for (Named { name, plugin }, caching) in self.filters.iter().zip(&self.caching) {
            cycle.plugins.enter("Filter", name);
            let status = if self.of_pods.iter().any(|of_pods| of_pods.name == *name) {
                caching.filter_totals(cycle.cx, state, pod, node, totals)?
            } else {
                plugin.filter(cycle.cx, state, pod, node)
            };
            if status.is_rejected() {
                return Some(status.by(*name));
            }
            if !status.is_success() {
                return None;
            }
        }
        Some(Status::success())
    }

    fn follow_pods(&self) -> bool {
        !self.followers.is_empty()
    }
}

//! Dry runs: the filters as PostFilter plugins run them, on modified copies of nodes.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::{Caching, CachingFilters, Scope};
use supercargo_framework::plugin::{Candidate, FilterPlugin, PreFilterPlugin, RunFilters};
use supercargo_framework::{CycleState, NodeInfo, PodInfo, PodTotals, Status};

use supercargo_evaluation::cycle::Cycle;
use supercargo_evaluation::filtering::{Filters, named_error};
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

/// The change that a plugin's state follows.
#[derive(Clone, Copy)]
enum Extension {
    AddPod,
    RemovePod,
}

impl Extension {
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

    fn follow(&self, extension: Extension, call: &mut dyn FnMut(&dyn PreFilterPlugin) -> Status) -> Status {
        for Named { name, plugin } in &self.followers {
            let status = self.cycle.plugins.call(extension.point(), name, || call(&**plugin), Status::code);
            if !status.is_success() {
                return named_error(extension.as_str(), name, &status);
            }
        }
        Status::success()
    }
}

impl RunFilters for DryRun<'_, '_> {
    fn run_filters(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        self.cycle.filter_with_nominated(&self.filters, state, node)
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status {
        self.follow(Extension::AddPod, &mut |plugin| match plugin.extensions() {
            Some(extensions) => extensions.add_pod(state, pod, added, node),
            None => Status::success(),
        })
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
    ) -> Status {
        self.follow(Extension::RemovePod, &mut |plugin| match plugin.extensions() {
            Some(extensions) => extensions.remove_pod(state, pod, removed, node),
            None => Status::success(),
        })
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

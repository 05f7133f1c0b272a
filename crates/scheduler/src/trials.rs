//! The filters as PostFilter plugins run them: on nodes as they would be.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::{Caching, Scope};
use supercargo_framework::plugin::{Candidate, FilterPlugin, PreFilterPlugin, RunFilters};
use supercargo_framework::{CycleState, NodeInfo, PodInfo, PodTotals, Status};

use crate::cycle::{Cycle, SkippedFilters};
use crate::filtering::{Filters, named_error};
use crate::observer::Point;
use crate::profile::Named;

/// The filters of one cycle, told apart by what matters to them.
pub(crate) struct Trials<'a, 'c> {
    cycle: &'a Cycle<'c>,
    filters: Filters<'a>,
    /// The caching of each of them.
    caching: SmallVec<[&'a dyn Caching; 16]>,
    /// Those to which the pods on the node matter, or which look at a state that follows the pods.
    of_pods: Filters<'a>,
    /// The PreFilter plugins whose state follows the pods of a trial.
    followers: SmallVec<[&'a Named<dyn PreFilterPlugin>; 4]>,
}

/// What a plugin's state is told.
#[derive(Clone, Copy)]
enum Verb {
    AddPod,
    RemovePod,
}

impl Verb {
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

impl<'a, 'c> Trials<'a, 'c> {
    /// For trials that begin with this state.
    pub(crate) fn new(cycle: &'a Cycle<'c>, state: &CycleState) -> Self {
        let skipped = state.read::<SkippedFilters>().cloned().unwrap_or_default();
        let pre_filters = cycle.profile.pre_filter.iter();
        let followers: SmallVec<[_; 4]> = pre_filters
            .filter(|named| !skipped.0.contains(&named.name) && named.plugin.extensions().is_some())
            .collect();
        let filters = cycle.filters(state);
        let follows = |name| followers.iter().any(|follower: &&Named<_>| follower.name == name);
        let depends_on_pods = |filter: &&&Named<dyn FilterPlugin>| {
            let caching = cycle.profile.filter_caching(filter.name);
            matches!(caching.filter_scope(state, cycle.pod), Scope::Node | Scope::Classes(_))
                || follows(filter.name)
        };
        let of_pods = filters.iter().filter(depends_on_pods).copied().collect();
        let caching = filters.iter().map(|filter| cycle.profile.filter_caching(filter.name)).collect();
        Self { cycle, filters, caching, of_pods, followers }
    }

    fn follow(&self, verb: Verb, call: &mut dyn FnMut(&dyn PreFilterPlugin) -> Status) -> Status {
        for Named { name, plugin } in &self.followers {
            self.cycle.running.set("PreFilterExtensions", name);
            let status = self.cycle.laps.plugin(verb.point(), name, || call(&**plugin), Status::code);
            if !status.is_success() {
                return named_error(verb.as_str(), name, &status);
            }
        }
        Status::success()
    }
}

impl RunFilters for Trials<'_, '_> {
    fn run_filters(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        self.cycle.filter_with_nominated(&self.filters, state, node)
    }

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
        if self.follow_pods() || cycle.is_promised(node) {
            return None;
        }
        for (Named { name, plugin }, caching) in self.filters.iter().zip(&self.caching) {
            cycle.running.set("Filter", name);
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

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status {
        self.follow(Verb::AddPod, &mut |plugin| match plugin.extensions() {
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
        self.follow(Verb::RemovePod, &mut |plugin| match plugin.extensions() {
            Some(extensions) => extensions.remove_pod(state, pod, removed, node),
            None => Status::success(),
        })
    }

    fn extend_preemption(
        &self,
        pod: &Arc<PodInfo>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Status> {
        self.cycle.extend_candidates(pod, candidates)
    }
}

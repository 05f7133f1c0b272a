//! Caching: scopes of answers, and updates of what PreFilter and PreScore prepared.

use supercargo_framework::caching::{Applied, Caching, IncrementalPlugin, Scope};
use supercargo_framework::{Context, CycleState, NodeInfo, NodeRecord, PodInfo};

use super::PodTopologySpread;
use super::{filtering, scoring};
use crate::applied::widen;

/// Applies a change to both states. A state exists only for constraints of its kind.
fn follow(
    state: &mut CycleState,
    filtering: impl FnOnce(&mut filtering::Prepared) -> Applied,
    scoring: impl FnOnce(&mut scoring::Shared) -> Applied,
) -> Applied {
    let mut applied = state.read_mut().map_or(Applied::Here, filtering);
    widen(&mut applied, state.read_mut().map_or(Applied::Here, scoring));
    applied
}

fn follow_pod(
    state: &mut CycleState,
    pod: &PodInfo,
    changed: &PodInfo,
    node: &NodeRecord,
    delta: i64,
) -> Applied {
    follow(
        state,
        |prepared| prepared.follow_pod(pod, changed, node, delta),
        |prepared| prepared.follow_pod(pod, changed, node, delta),
    )
}

impl Caching for PodTopologySpread {
    fn filter_scope(&self, state: &CycleState, _: &PodInfo) -> Scope {
        filtering::scope(state)
    }

    fn pre_score_skips(&self, cx: &Context<'_>, pod: &PodInfo) -> bool {
        !self.has_constraints(cx, pod, false)
    }

    fn score_scope(&self, state: &CycleState, _: &PodInfo) -> Scope {
        scoring::scope(state)
    }

    fn state_bytes(&self, state: &CycleState) -> usize {
        filtering::bytes(state) + scoring::bytes(state)
    }

    fn normalizes_by_range(&self) -> bool {
        true
    }

    fn score_class(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> i64 {
        scoring::class(state, node)
    }
}

impl IncrementalPlugin for PodTopologySpread {
    fn pod_added(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        added: &PodInfo,
        node: &NodeRecord,
    ) -> Applied {
        follow_pod(state, pod, added, node, 1)
    }

    fn pod_removed(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeRecord,
    ) -> Applied {
        follow_pod(state, pod, removed, node, -1)
    }

    fn node_added(&self, state: &mut CycleState, pod: &PodInfo, node: &NodeRecord) -> Applied {
        follow(
            state,
            |prepared| prepared.follow_node(pod, node, true),
            |prepared| prepared.after_node_added(node),
        )
    }

    fn node_removed(&self, state: &mut CycleState, pod: &PodInfo, node: &NodeRecord) -> Applied {
        follow(
            state,
            |prepared| prepared.follow_node(pod, node, false),
            |prepared| prepared.after_node_removed(node),
        )
    }

    fn node_changed(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        old: &NodeRecord,
        new: &NodeRecord,
    ) -> Applied {
        if old.labels == new.labels && old.taints == new.taints {
            return Applied::Here;
        }
        follow(
            state,
            |prepared| prepared.follow_change(pod, old, new),
            |prepared| prepared.follow_change(pod, old, new),
        )
    }

    fn feasible_changed(
        &self,
        state: &mut CycleState,
        _: &PodInfo,
        node: &NodeInfo,
        feasible: bool,
    ) -> Applied {
        let prepared = state.read_mut::<scoring::Shared>();
        prepared.map_or(Applied::Here, |prepared| prepared.follow_feasible(node.node(), feasible))
    }
}

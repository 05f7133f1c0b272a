//! Caching: scopes of answers, and updates of what PreFilter and PreScore prepared.

use supercargo_framework::caching::{Applied, Caching, IncrementalPlugin, Scope};
use supercargo_framework::{CycleState, NodeInfo, NodeRecord, PodInfo};

use super::{InterPodAffinity, filtering, scoring};
use crate::applied::widen;

/// Applies a pod to both states. A state is absent only if the plugin is not called, whatever other
/// pods exist.
fn follow_pod(
    state: &mut CycleState,
    pod: &PodInfo,
    changed: &PodInfo,
    node: &NodeRecord,
    delta: i64,
) -> Applied {
    let filtering = state.read_mut::<filtering::Prepared>();
    let mut applied =
        filtering.map_or(Applied::Here, |prepared| prepared.follow_pod(pod, changed, &node.labels, delta));
    let scoring = state.read_mut::<scoring::Prepared>();
    widen(
        &mut applied,
        scoring.map_or(Applied::Here, |prepared| prepared.follow_pod(pod, changed, &node.labels, delta)),
    );
    applied
}

impl Caching for InterPodAffinity {
    fn filter_scope(&self, state: &CycleState, _: &PodInfo) -> Scope {
        filtering::scope(state)
    }

    fn pre_score_depends_on_nodes(&self) -> bool {
        false
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

impl IncrementalPlugin for InterPodAffinity {
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

    /// Only pods count, and an added node has none yet. But it may be the first with a topology
    /// key.
    fn node_added(&self, state: &mut CycleState, _: &PodInfo, node: &NodeRecord) -> Applied {
        let filtering = state.read::<filtering::Prepared>().is_some_and(|it| it.gains(&node.labels));
        let scoring = state.read::<scoring::Prepared>().is_some_and(|it| it.gains(&node.labels));
        if filtering || scoring { Applied::Rebuild } else { Applied::Here }
    }

    fn node_removed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    /// Counted pods are not known individually. If the node changes its domain for any topology key
    /// of a term, the state is rebuilt.
    fn node_changed(
        &self,
        state: &mut CycleState,
        _: &PodInfo,
        old: &NodeRecord,
        new: &NodeRecord,
    ) -> Applied {
        if old.labels == new.labels {
            return Applied::Here;
        }
        let filtering = state.read::<filtering::Prepared>();
        let scoring = state.read::<scoring::Prepared>();
        let concerns = |key: &str| {
            let (before, after) = (old.labels.get(key), new.labels.get(key));
            let was_there = before.is_some();
            before != after
                && (filtering.is_some_and(|prepared| prepared.depends_on(key, was_there))
                    || scoring.is_some_and(|prepared| prepared.depends_on(key, was_there)))
        };
        let mut keys = old.labels.iter().chain(new.labels.iter()).map(|(key, _)| key);
        if keys.any(|key| concerns(key)) { Applied::Rebuild } else { Applied::Here }
    }

    fn feasible_changed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeInfo, _: bool) -> Applied {
        Applied::Here
    }
}

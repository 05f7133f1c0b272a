//! A plugin that uses every feature that evaluation tables offer, more than in-tree plugins do.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::smallvec;
use supercargo_framework::caching::{Applied, Caching, IncrementalPlugin, Scope};
use supercargo_framework::plugin::{
    ExtensionPoints, FilterPlugin, MAX_NODE_SCORE, Normalize, PreFilter, PreFilterExtensions,
    PreFilterPlugin, PreScorePlugin, ScorePlugin, SignPlugin,
};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{Context, CycleState, NodeIndex, NodeInfo, NodeRecord, Plugin, PodInfo, Status};

/// The label that groups pods into apps.
pub(in crate::tests) const APP: &str = "app";

/// The settings of a [`Tally`].
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) name: &'static str,
    /// The label whose values are domains; `None` if the whole cluster is one.
    pub(super) key: Option<&'static str>,
    /// The number of pods of an app from which on a domain is full.
    pub(super) limit: Option<i64>,
    /// How scores are normalized, if there are any.
    pub(super) score: Option<Normalize>,
    /// Whether normalization is by range.
    pub(super) is_by_range: bool,
    /// Whether feasible nodes are counted per domain, too.
    pub(super) counts_feasible: bool,
    /// Whether it only evaluates pods with volumes and tolerations, without caching.
    pub(super) is_alone: bool,
}

/// Counts pods of the app per domain. Rejects nodes of full domains, and scores by the counts. `N`
/// distinguishes the states of several instances.
pub(super) struct Tally<const N: usize>(pub(super) How);

/// The number of pods of the app, by domain.
#[derive(Clone, Debug, Default)]
struct Pods<const N: usize>(BTreeMap<Arc<str>, i64>);

/// The number of feasible nodes, by domain.
#[derive(Clone, Debug, Default)]
struct Feasible<const N: usize>(BTreeMap<Arc<str>, i64>);

fn is_of_app(pod: &PodInfo, other: &PodInfo) -> bool {
    pod.labels.get(APP) == other.labels.get(APP)
}

/// Adds to a count and returns it.
fn count(counts: &mut BTreeMap<Arc<str>, i64>, domain: Arc<str>, by: i64) -> i64 {
    let number = counts.entry(domain).or_default();
    *number += by;
    *number
}

impl<const N: usize> Tally<N> {
    fn evaluates(&self, pod: &PodInfo) -> bool {
        !self.0.is_alone || (!pod.spec.volumes.is_empty() && !pod.spec.tolerations.is_empty())
    }

    fn domain(&self, node: &NodeRecord) -> Option<Arc<str>> {
        match self.0.key {
            Some(key) => node.labels.get(key).cloned(),
            None => Some("".into()),
        }
    }

    /// What a change of a count invalidates.
    fn reach(&self, old: i64, new: i64) -> Applied {
        let turns = self.0.limit.is_some_and(|limit| (old >= limit) != (new >= limit));
        if !turns && self.0.score.is_none() {
            return Applied::Here;
        }
        self.0.key.map_or(Applied::Everywhere, |key| Applied::Domain(smallvec![key.into()]))
    }

    fn scope(&self) -> Scope {
        self.0.key.map_or(Scope::NodeObject, |key| Scope::Domain(smallvec![key.into()]))
    }

    fn follow(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        other: &PodInfo,
        node: &NodeRecord,
        by: i64,
    ) -> Applied {
        let (Some(domain), true) = (self.domain(node), is_of_app(pod, other)) else { return Applied::Here };
        match state.read_mut::<Pods<N>>() {
            Some(Pods(counts)) => {
                let new = count(counts, domain, by);
                self.reach(new - by, new)
            }
            None => Applied::Here,
        }
    }

    fn in_trial(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        other: &PodInfo,
        node: &NodeInfo,
        by: i64,
    ) -> Status {
        self.follow(state, pod, other, node.node(), by);
        Status::success()
    }

    fn pods(&self, state: &CycleState, node: &NodeRecord) -> i64 {
        let domain = self.domain(node);
        let counts = state.read::<Pods<N>>().zip(domain);
        counts.and_then(|(Pods(counts), domain)| counts.get(&domain).copied()).unwrap_or(0)
    }
}

impl<const N: usize> Plugin for Tally<N> {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        let mut points =
            ExtensionPoints::new().pre_filter(&self).sign(&self).incremental(&self).caching(&self);
        if self.0.limit.is_some() {
            points = points.filter(&self);
        }
        if self.0.score.is_some() {
            points = points.score(&self).pre_score(&self);
        }
        points
    }
}

impl<const N: usize> PreFilterPlugin for Tally<N> {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        let mut counts = BTreeMap::new();
        for (_, node) in cx.nodes().iter() {
            let Some(domain) = self.domain(node.node()) else { continue };
            let pods = node.pods().iter().filter(|other| is_of_app(pod, other)).count();
            count(&mut counts, domain, pods as i64);
        }
        state.write(Pods::<N>(counts));
        if self.evaluates(pod) { PreFilter::AllNodes } else { PreFilter::Skip }
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        Some(self)
    }
}

impl<const N: usize> PreFilterExtensions for Tally<N> {
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status {
        self.in_trial(state, pod, added, node, 1)
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
    ) -> Status {
        self.in_trial(state, pod, removed, node, -1)
    }
}

impl<const N: usize> FilterPlugin for Tally<N> {
    fn filter(&self, _: &Context<'_>, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        let pods = self.pods(state, node.node());
        if self.0.limit.is_some_and(|limit| pods >= limit) {
            return Status::unschedulable("there are enough pods of the app");
        }
        Status::success()
    }
}

impl<const N: usize> PreScorePlugin for Tally<N> {
    fn pre_score(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        _: &PodInfo,
        nodes: &[NodeIndex],
    ) -> Status {
        if self.0.counts_feasible {
            let mut counts = BTreeMap::new();
            for index in nodes {
                if let Some(domain) = self.domain(cx.node(*index).node()) {
                    count(&mut counts, domain, 1);
                }
            }
            state.write(Feasible::<N>(counts));
        }
        Status::success()
    }
}

impl<const N: usize> ScorePlugin for Tally<N> {
    fn score(
        &self,
        _: &Context<'_>,
        state: &CycleState,
        _: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status> {
        let pods = self.pods(state, node.node());
        let domain = self.domain(node.node());
        let feasible = state.read::<Feasible<N>>().zip(domain);
        let feasible =
            feasible.and_then(|(Feasible(counts), domain)| counts.get(&domain).copied()).unwrap_or(0);
        Ok((pods * 7 + feasible * 3) % (MAX_NODE_SCORE + 1))
    }

    fn normalization(&self) -> Normalize {
        self.0.score.unwrap_or(Normalize::None)
    }

    fn normalize(&self, _: &CycleState, _: &PodInfo, scores: &mut [i64]) -> Status {
        let (least, greatest) = (scores.iter().min().copied(), scores.iter().max().copied());
        let (Some(least), Some(greatest)) = (least, greatest) else { return Status::success() };
        for score in scores {
            *score =
                if least == greatest { 0 } else { (*score - least) * MAX_NODE_SCORE / (greatest - least) };
        }
        Status::success()
    }
}

impl<const N: usize> SignPlugin for Tally<N> {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        signer.write(&(pod.labels.get(APP), self.evaluates(pod)));
        Ok(())
    }
}

impl<const N: usize> Caching for Tally<N> {
    fn filter_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
        self.scope()
    }

    fn filter_never_fails(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo) -> bool {
        true
    }

    fn pre_score_depends_on_nodes(&self) -> bool {
        self.0.counts_feasible
    }

    fn score_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
        self.scope()
    }

    fn normalizes_by_range(&self) -> bool {
        self.0.is_by_range
    }

    fn stands_alone(&self, pod: &PodInfo) -> bool {
        self.0.is_alone && self.evaluates(pod)
    }
}

impl<const N: usize> IncrementalPlugin for Tally<N> {
    fn pod_added(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        added: &PodInfo,
        node: &NodeRecord,
    ) -> Applied {
        self.follow(state, pod, added, node, 1)
    }

    fn pod_removed(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeRecord,
    ) -> Applied {
        self.follow(state, pod, removed, node, -1)
    }

    fn node_added(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn node_removed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn node_changed(&self, _: &mut CycleState, _: &PodInfo, old: &NodeRecord, new: &NodeRecord) -> Applied {
        // No notification covers the pods that move with it.
        if self.domain(old) == self.domain(new) { Applied::Here } else { Applied::Rebuild }
    }

    fn feasible_changed(
        &self,
        state: &mut CycleState,
        _: &PodInfo,
        node: &NodeInfo,
        feasible: bool,
    ) -> Applied {
        match (state.read_mut::<Feasible<N>>(), self.domain(node.node())) {
            (Some(Feasible(counts)), Some(domain)) => {
                let by = if feasible { 1 } else { -1 };
                let new = count(counts, domain, by);
                self.reach(new - by, new)
            }
            _ => Applied::Here,
        }
    }
}

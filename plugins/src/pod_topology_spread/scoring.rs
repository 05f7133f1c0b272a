//! Soft constraints.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::{Applied, NOT_SCORED, Scope};
use supercargo_framework::hash_seed::{HashSeed, SeededMap};
use supercargo_framework::node::HOSTNAME;
use supercargo_framework::plugin::{MAX_NODE_SCORE, Normalize, PreScorePlugin, ScorePlugin};
use supercargo_framework::{
    Context, CycleState, Labels, NodeIndex, NodeInfo, NodeRecord, PodInfo, SmallMap, Status,
};

use super::constraint::{Constraint, Inclusion, has_every_key, keys};

use super::PodTopologySpread;
use crate::applied::{in_domain, widen};
use crate::domain_counts::{self, ByDomain};

const NOT_PREPARED: &str = "error reading \"PreScorePodTopologySpread\" from cycleState: not found";

/// Where a constraint stands.
#[derive(Clone)]
struct ScoredConstraint {
    /// The number of pods by domain, or by node for the hostname label; absent means 0.
    pods: ByDomain,
    /// The number of feasible nodes by domain; unused for the hostname label.
    feasible: SeededMap<Arc<str>, usize>,
    /// The weight of a pod in a domain, which increases with the number of domains.
    weight: f64,
}

/// The class of a node without the hostname label. The class of other nodes is their number of
/// pods.
const UNLABELLED: i64 = -1;

/// The state that PreScore prepares.
#[derive(Clone)]
struct Prepared {
    constraints: Arc<[Constraint]>,
    /// The topology keys.
    keys: Arc<SmallMap<Arc<str>, ()>>,
    /// The constraints by hostname.
    by_node: SmallVec<[usize; 1]>,
    standings: Vec<ScoredConstraint>,
    /// The number of feasible nodes that are scored.
    scored: usize,
    /// Whether a node must have every topology key to be scored.
    requires_every_key: bool,
    /// Whether a node has or had a topology label with an empty value. It shares a domain with
    /// nodes without the label.
    has_nameless: bool,
}

/// [`Prepared`], shared with dry runs, which do not change it.
#[derive(Clone)]
pub(super) struct Shared(Arc<Prepared>);

/// The node's domain. A node without the label is in the empty domain, which counts, as upstream.
fn domain<'a>(labels: &'a Labels, constraint: &Constraint, nameless: &'a Arc<str>) -> &'a Arc<str> {
    labels.get(&constraint.topology_key).unwrap_or(nameless)
}

/// Whether Score counts pods by node instead of by domain.
fn is_by_node(constraint: &Constraint) -> bool {
    *constraint.topology_key == *HOSTNAME
}

/// The approximate size of the state in bytes.
pub(super) fn bytes(state: &CycleState) -> usize {
    let Some(Shared(prepared)) = state.read() else { return 0 };
    let of_standing =
        |it: &ScoredConstraint| domain_counts::bytes(&it.pods) + domain_counts::bytes(&it.feasible);
    prepared.standings.iter().map(of_standing).sum()
}

impl ScoredConstraint {
    fn new(seed: &HashSeed) -> Self {
        Self { pods: seed.map(), feasible: seed.map(), weight: 0.0 }
    }

    /// A node became feasible or infeasible.
    fn count_feasible(&mut self, domain: &Arc<str>, feasible: bool) {
        match self.feasible.get_mut(domain) {
            Some(nodes) if feasible => *nodes += 1,
            Some(nodes) => {
                *nodes -= 1;
                if *nodes == 0 {
                    self.feasible.remove(domain);
                }
            }
            None if feasible => drop(self.feasible.insert(Arc::clone(domain), 1)),
            None => {}
        }
    }

    /// Updates the weight. Returns whether any score can change.
    fn weigh(&mut self, constraint: &Constraint, scored: usize) -> bool {
        let domains = if is_by_node(constraint) { scored } else { self.feasible.len() };
        let weight = ((domains + 2) as f64).ln();
        std::mem::replace(&mut self.weight, weight).to_bits() != weight.to_bits() && !self.pods.is_empty()
    }
}

impl Prepared {
    /// Whether the node is not scored because of its labels.
    fn ignores(&self, labels: &Labels) -> bool {
        self.requires_every_key && !has_every_key(labels, &self.constraints)
    }

    /// Visits the constraints for which pods on a node count, each with its index and the domain.
    fn visit(&self, pod: &PodInfo, node: &NodeRecord, mut visit: impl FnMut(usize, &Constraint, &Arc<str>)) {
        for i in &self.by_node {
            visit(*i, &self.constraints[*i], &node.name);
        }
        if self.ignores(&node.labels) {
            return;
        }
        let nameless = Arc::default();
        let mut inclusion = Inclusion::new(pod, node);
        for (i, constraint) in self.constraints.iter().enumerate() {
            if !is_by_node(constraint) && inclusion.counts_for(constraint) {
                visit(i, constraint, domain(&node.labels, constraint, &nameless));
            }
        }
    }

    /// Whether the node has a topology label with an empty value.
    fn is_nameless(&self, labels: &Labels) -> bool {
        labels.iter().any(|(key, value)| value.is_empty() && self.keys.contains(key))
    }

    /// Counts the pods of all nodes.
    fn count(&mut self, cx: &Context<'_>, pod: &PodInfo) {
        let mut standings = std::mem::take(&mut self.standings);
        for (_, node) in cx.nodes().iter() {
            self.has_nameless |= self.is_nameless(&node.node().labels);
            let mut last: Option<(usize, i64)> = None;
            self.visit(pod, node.node(), |i, constraint, domain| {
                // Default constraints have the same selectors.
                let known = last.filter(|(other, _)| constraint.counts_as(&self.constraints[*other]));
                let pods =
                    known.map_or_else(|| constraint.count(node.pods(), &pod.namespace), |(_, pods)| pods);
                last = Some((i, pods));
                domain_counts::add(&mut standings[i].pods, domain, pods);
            });
        }
        self.standings = standings;
    }

    /// Counts a node that became feasible or infeasible. Does not update weights.
    fn count_feasible(&mut self, labels: &Labels, feasible: bool) {
        if self.ignores(labels) {
            return;
        }
        self.scored = if feasible { self.scored + 1 } else { self.scored.saturating_sub(1) };
        let nameless = Arc::default();
        for (constraint, standing) in self.constraints.iter().zip(&mut self.standings) {
            if !is_by_node(constraint) {
                standing.count_feasible(domain(labels, constraint, &nameless), feasible);
            }
        }
    }

    /// Updates all weights. Returns whether any score can change.
    fn weigh(&mut self) -> bool {
        let mut differs = false;
        for (constraint, standing) in self.constraints.iter().zip(&mut self.standings) {
            differs |= standing.weigh(constraint, self.scored);
        }
        differs
    }

    /// The raw score; lower is better.
    fn score(&self, node: &NodeRecord) -> i64 {
        let labels = &node.labels;
        if self.ignores(labels) {
            return NOT_SCORED;
        }
        let mut score = 0.0;
        for (constraint, standing) in self.constraints.iter().zip(&self.standings) {
            let Some(domain) = labels.get(&constraint.topology_key) else {
                continue;
            };
            let domain = if is_by_node(constraint) { &node.name } else { domain };
            let count = standing.pods.get(domain).copied().unwrap_or(0);
            score += count as f64 * standing.weight + f64::from(constraint.max_skew - 1);
        }
        score.round() as i64
    }
}

impl Shared {
    /// Adds or removes a pod of a node.
    pub(super) fn follow_pod(
        &mut self,
        pod: &PodInfo,
        changed: &PodInfo,
        node: &NodeRecord,
        delta: i64,
    ) -> Applied {
        let mut applied = Applied::Here;
        if changed.namespace != pod.namespace || changed.terminating {
            return applied;
        }
        let prepared = Arc::make_mut(&mut self.0);
        let mut standings = std::mem::take(&mut prepared.standings);
        prepared.visit(pod, node, |i, constraint, domain| {
            if constraint.counts(changed, &pod.namespace) {
                domain_counts::add(&mut standings[i].pods, domain, delta);
                let key = &constraint.topology_key;
                if is_by_node(constraint) {
                    // Only the changed node is affected.
                } else if domain.is_empty() && prepared.has_nameless {
                    widen(&mut applied, Applied::Everywhere);
                } else {
                    widen(&mut applied, in_domain(key));
                }
            }
        });
        prepared.standings = standings;
        applied
    }

    /// An added node has no pods and is not feasible yet.
    pub(super) fn after_node_added(&mut self, node: &NodeRecord) -> Applied {
        if !self.0.has_nameless && self.0.is_nameless(&node.labels) {
            Arc::make_mut(&mut self.0).has_nameless = true;
        }
        Applied::Here
    }

    /// Whether the removed node was feasible is unknown here.
    pub(super) fn after_node_removed(&self, node: &NodeRecord) -> Applied {
        if self.0.ignores(&node.labels) { Applied::Here } else { Applied::Rebuild }
    }

    /// Applies a changed node object. Neither the counted pods of the node nor its feasibility is
    /// known, so a node that changes its domain requires a rebuild.
    pub(super) fn follow_change(&self, pod: &PodInfo, old: &NodeRecord, new: &NodeRecord) -> Applied {
        let prepared = &*self.0;
        let domains = |node: &NodeRecord| {
            let mut domains = Vec::new();
            prepared.visit(pod, node, |i, _, domain| domains.push((i, Arc::clone(domain))));
            (prepared.ignores(&node.labels), domains)
        };
        let moved = || {
            prepared.constraints.iter().any(|constraint| {
                let key = &constraint.topology_key;
                !is_by_node(constraint) && old.labels.get(key) != new.labels.get(key)
            })
        };
        if moved() || domains(old) != domains(new) { Applied::Rebuild } else { Applied::Here }
    }

    /// Applies a node that became feasible or infeasible.
    pub(super) fn follow_feasible(&mut self, node: &NodeRecord, feasible: bool) -> Applied {
        if self.0.ignores(&node.labels) {
            return Applied::Here;
        }
        let prepared = Arc::make_mut(&mut self.0);
        prepared.count_feasible(&node.labels, feasible);
        if prepared.weigh() { Applied::Everywhere } else { Applied::Here }
    }
}

/// Reverses the scores: the lowest raw score gets the highest score, and nodes that are not scored
/// get 0.
fn normalize(scores: &mut [i64]) {
    let scored = || scores.iter().copied().filter(|score| *score != NOT_SCORED);
    let (least, most) = (scored().min().unwrap_or(0), scored().max().unwrap_or(0));
    for score in scores {
        *score = match most {
            _ if *score == NOT_SCORED => 0,
            0 => MAX_NODE_SCORE,
            _ => MAX_NODE_SCORE * (most + least - *score) / most,
        };
    }
}

impl PodTopologySpread {
    /// Whether nodes without one of the topology keys are not scored.
    pub(super) fn requires_every_key(&self, pod: &PodInfo) -> bool {
        !pod.spec.topology_spread.is_empty() || !self.system_defaulted
    }
}

impl PreScorePlugin for PodTopologySpread {
    fn pre_score(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &[NodeIndex],
    ) -> Status {
        let constraints = self.constraints(cx, pod, false);
        if constraints.is_empty() {
            return Status::skip();
        }
        let mut prepared = Prepared {
            standings: constraints.iter().map(|_| ScoredConstraint::new(cx.hash_seed())).collect(),
            keys: Arc::new(keys(&constraints)),
            by_node: (0..constraints.len()).filter(|i| is_by_node(&constraints[*i])).collect(),
            constraints: constraints.into(),
            scored: 0,
            requires_every_key: self.requires_every_key(pod),
            has_nameless: false,
        };
        for index in nodes {
            prepared.count_feasible(&cx.node(*index).node().labels, true);
        }
        prepared.weigh();
        prepared.count(cx, pod);
        state.write(Shared(Arc::new(prepared)));
        Status::success()
    }
}

/// Constraints by hostname count pods per node, whatever the value of the label is.
pub(super) fn scope(state: &CycleState) -> Scope {
    let Some(Shared(prepared)) = state.read() else { return Scope::Node };
    let mut keys: SmallVec<[Arc<str>; 2]> = prepared.keys.keys().cloned().collect();
    match prepared.by_node.len() {
        0 => Scope::Domain(keys),
        1 => {
            keys.retain(|key| **key != *HOSTNAME);
            Scope::Classes(keys)
        }
        _ => Scope::Node,
    }
}

/// The number of matching pods on the node, for the one constraint by hostname.
pub(super) fn class(state: &CycleState, node: &NodeInfo) -> i64 {
    let Some(Shared(prepared)) = state.read() else { return UNLABELLED };
    let by_node = prepared.by_node.first();
    match by_node.filter(|_| node.node().labels.get(HOSTNAME).is_some()) {
        Some(i) => prepared.standings[*i].pods.get(node.name()).copied().unwrap_or(0),
        None => UNLABELLED,
    }
}

impl ScorePlugin for PodTopologySpread {
    fn score(
        &self,
        _: &Context<'_>,
        state: &CycleState,
        _: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status> {
        let Shared(prepared) = state.read().ok_or_else(|| Status::error(NOT_PREPARED))?;
        Ok(prepared.score(node.node()))
    }

    fn normalization(&self) -> Normalize {
        Normalize::Custom
    }

    fn normalize(&self, _: &CycleState, _: &PodInfo, scores: &mut [i64]) -> Status {
        normalize(scores);
        Status::success()
    }
}

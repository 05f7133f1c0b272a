//! Constraints that should hold.

use std::sync::Arc;

use supercargo_framework::plugin::{MAX_NODE_SCORE, Normalize, PreScorePlugin, ScorePlugin};
use supercargo_framework::{Context, CycleState, Labels, NodeIndex, NodeInfo, PodInfo, Status};

use super::constraint::{Constraint, Inclusion, has_every_key};
use super::{HOSTNAME, PodTopologySpread};
use crate::domain_counts::ByDomain;

const NOT_PREPARED: &str = "error reading \"PreScorePodTopologySpread\" from cycleState: not found";

/// What PreScore prepares.
struct Prepared {
    constraints: Vec<Constraint>,
    /// By constraint, the number of pods in every domain that a feasible node is in; nothing for the hostname, which is
    /// counted node by node.
    counts: Vec<ByDomain>,
    /// By constraint, what a pod in a domain weighs: the more domains there are, the more.
    weights: Vec<f64>,
    /// Whether a node must have every topology key to be scored.
    requires_every_key: bool,
    /// Which of the feasible nodes, in their order, are not scored.
    ignored: Vec<bool>,
}

/// [`Prepared`], shared with trials: it does not change.
#[derive(Clone)]
struct Shared(Arc<Prepared>);

/// The node's domain. A node without the label is in the nameless one, which upstream counts as a domain too.
fn domain<'a>(labels: &'a Labels, constraint: &Constraint) -> &'a str {
    labels.get(&constraint.topology_key).map_or("", |value| value)
}

fn is_by_node(constraint: &Constraint) -> bool {
    *constraint.topology_key == *HOSTNAME
}

impl Prepared {
    /// Everything but the counts, which start at 0 in every domain of a feasible node.
    fn new(
        constraints: Vec<Constraint>,
        requires_every_key: bool,
        cx: &Context<'_>,
        nodes: &[NodeIndex],
    ) -> Self {
        let mut counts: Vec<ByDomain> = constraints.iter().map(|_| ByDomain::default()).collect();
        let mut ignored = Vec::with_capacity(nodes.len());
        for index in nodes {
            let labels = &cx.node(*index).node().labels;
            let ignore = requires_every_key && !has_every_key(labels, &constraints);
            ignored.push(ignore);
            if ignore {
                continue;
            }
            for (constraint, counts) in constraints.iter().zip(&mut counts) {
                let domain = domain(labels, constraint);
                if !is_by_node(constraint) && !counts.contains_key(domain) {
                    counts.insert(domain.into(), 0);
                }
            }
        }
        let scored = ignored.iter().filter(|ignored| !**ignored).count();
        let weight = |(constraint, counts): (&Constraint, &ByDomain)| {
            let domains = if is_by_node(constraint) { scored } else { counts.len() };
            ((domains + 2) as f64).ln()
        };
        let weights = constraints.iter().zip(&counts).map(weight).collect();
        Self { constraints, counts, weights, requires_every_key, ignored }
    }

    /// Whether the node's labels are such that it is not scored.
    fn ignores(&self, labels: &Labels) -> bool {
        self.requires_every_key && !has_every_key(labels, &self.constraints)
    }

    /// Counts the pods of all nodes in the domains of the feasible ones.
    fn count(&mut self, cx: &Context<'_>, pod: &PodInfo) {
        if self.constraints.iter().all(is_by_node) {
            return;
        }
        for (_, node) in cx.nodes().iter() {
            let labels = &node.node().labels;
            if self.ignores(labels) {
                continue;
            }
            let mut inclusion = Inclusion::new(pod, node.node());
            for (constraint, counts) in self.constraints.iter().zip(&mut self.counts) {
                if let Some(count) = counts.get_mut(domain(labels, constraint))
                    && inclusion.counts_for(constraint)
                {
                    *count += constraint.count(node.pods(), &pod.namespace);
                }
            }
        }
    }

    /// The raw score: the fewer, the better.
    fn score(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let labels = &node.node().labels;
        if self.ignores(labels) {
            return 0;
        }
        let mut score = 0.0;
        for ((constraint, counts), weight) in self.constraints.iter().zip(&self.counts).zip(&self.weights) {
            let Some(domain) = labels.get(&constraint.topology_key) else {
                continue;
            };
            let count = if is_by_node(constraint) {
                constraint.count(node.pods(), &pod.namespace)
            } else {
                counts.get(domain).copied().unwrap_or(0)
            };
            score += count as f64 * weight + f64::from(constraint.max_skew - 1);
        }
        score.round() as i64
    }

    /// Turns the scores around: the node with the least gets the most, and those that are ignored get nothing.
    fn normalize(&self, scores: &mut [i64]) {
        let is_ignored = |i: usize| self.ignored.get(i).copied().unwrap_or(false);
        let scored = || scores.iter().enumerate().filter(|(i, _)| !is_ignored(*i)).map(|(_, score)| *score);
        let (least, most) = (scored().min().unwrap_or(0), scored().max().unwrap_or(0));
        for (i, score) in scores.iter_mut().enumerate() {
            *score = match most {
                _ if is_ignored(i) => 0,
                0 => MAX_NODE_SCORE,
                _ => MAX_NODE_SCORE * (most + least - *score) / most,
            };
        }
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
        if constraints.is_empty() || cx.node_count() == 0 {
            return Status::skip();
        }
        let requires_every_key = !pod.spec.topology_spread.is_empty() || !self.system_defaulted;
        let mut prepared = Prepared::new(constraints, requires_every_key, cx, nodes);
        prepared.count(cx, pod);
        state.write(Shared(Arc::new(prepared)));
        Status::success()
    }
}

impl ScorePlugin for PodTopologySpread {
    fn score(
        &self,
        _: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status> {
        let Shared(prepared) = state.read().ok_or_else(|| Status::error(NOT_PREPARED))?;
        Ok(prepared.score(pod, node))
    }

    fn normalization(&self) -> Normalize {
        Normalize::Custom
    }

    fn normalize(&self, state: &CycleState, _: &PodInfo, scores: &mut [i64]) -> Status {
        let Some(Shared(prepared)) = state.read() else {
            return Status::error(NOT_PREPARED);
        };
        prepared.normalize(scores);
        Status::success()
    }
}

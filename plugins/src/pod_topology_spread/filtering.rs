//! Constraints that must hold.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::plugin::{FilterPlugin, PreFilter, PreFilterExtensions, PreFilterPlugin};
use supercargo_framework::{Context, CycleState, NodeInfo, PodInfo, Status};

use super::PodTopologySpread;
use super::constraint::{Constraint, Inclusion, has_every_key};
use crate::domain_counts::{self, ByDomain, DomainCounts};

const NOT_PREPARED: &str = "reading \"PreFilterPodTopologySpread\" from cycleState: not found";

/// What PreFilter prepares: the constraints, and where each stands.
#[derive(Clone)]
struct Prepared {
    constraints: Arc<[Constraint]>,
    standings: SmallVec<[Standing; 2]>,
}

/// Where a constraint stands.
#[derive(Clone)]
struct Standing {
    counts: DomainCounts,
    /// The least number that a domain's is compared with.
    floor: i64,
}

impl Standing {
    fn new(constraint: &Constraint, counts: DomainCounts) -> Self {
        let floor = floor(constraint, &counts);
        Self { counts, floor }
    }
}

/// The least number of pods in a domain; none when there are fewer domains than there should be. With no domain at all
/// there is nothing to compare with, and every number is low enough.
fn floor(constraint: &Constraint, counts: &DomainCounts) -> i64 {
    if (counts.domains() as i64) < i64::from(constraint.min_domains) {
        return 0;
    }
    counts.least().unwrap_or(i64::from(i32::MAX))
}

/// Counts the pods that each constraint spreads, by domain.
fn count(cx: &Context<'_>, pod: &PodInfo, constraints: &[Constraint]) -> SmallVec<[Standing; 2]> {
    let mut counts: SmallVec<[ByDomain; 2]> = constraints.iter().map(|_| ByDomain::default()).collect();
    for (_, node) in cx.nodes().iter() {
        let labels = &node.node().labels;
        if !has_every_key(labels, constraints) {
            continue;
        }
        let mut inclusion = Inclusion::new(pod, node.node());
        for (constraint, counts) in constraints.iter().zip(&mut counts) {
            if let Some(domain) = labels.get(&constraint.topology_key)
                && inclusion.counts_for(constraint)
            {
                domain_counts::add(counts, domain, constraint.count(node.pods(), &pod.namespace));
            }
        }
    }
    let standings = constraints.iter().zip(counts);
    standings.map(|(constraint, counts)| Standing::new(constraint, counts.into())).collect()
}

impl Prepared {
    /// Works a pod that came to a node, or went, into the counts. Same as upstream's, with two quirks: here a terminating
    /// pod counts, and so does any pod where a selector has no requirements.
    fn change(&mut self, pod: &PodInfo, changed: &PodInfo, node: &NodeInfo, delta: i64) {
        let labels = &node.node().labels;
        if changed.namespace != pod.namespace || !has_every_key(labels, &self.constraints) {
            return;
        }
        let mut inclusion = Inclusion::new(pod, node.node());
        for (constraint, standing) in self.constraints.iter().zip(&mut self.standings) {
            if let Some(domain) = labels.get(&constraint.topology_key)
                && constraint.selects(&changed.labels)
                && inclusion.counts_for(constraint)
            {
                standing.counts.add(domain, delta);
                standing.floor = floor(constraint, &standing.counts);
            }
        }
    }
}

impl PreFilterPlugin for PodTopologySpread {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        let constraints = self.constraints(cx, pod, true);
        if constraints.is_empty() {
            return PreFilter::Skip;
        }
        let standings = count(cx, pod, &constraints);
        state.write(Prepared { constraints: constraints.into(), standings });
        PreFilter::AllNodes
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        Some(self)
    }
}

impl PreFilterExtensions for PodTopologySpread {
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status {
        change(state, pod, added, node, 1)
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
    ) -> Status {
        change(state, pod, removed, node, -1)
    }
}

fn change(state: &mut CycleState, pod: &PodInfo, changed: &PodInfo, node: &NodeInfo, delta: i64) -> Status {
    let Some(prepared) = state.read_mut::<Prepared>() else {
        return Status::error(NOT_PREPARED);
    };
    prepared.change(pod, changed, node, delta);
    Status::success()
}

impl FilterPlugin for PodTopologySpread {
    fn filter(&self, _: &Context<'_>, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        let Some(prepared) = state.read::<Prepared>() else {
            return Status::error(NOT_PREPARED);
        };
        for (constraint, standing) in prepared.constraints.iter().zip(&prepared.standings) {
            let Some(domain) = node.node().labels.get(&constraint.topology_key) else {
                return Status::unresolvable(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                );
            };
            let here = standing.counts.get(domain) + i64::from(constraint.selects_self);
            if here - standing.floor > i64::from(constraint.max_skew) {
                return Status::unschedulable("node(s) didn't match pod topology spread constraints");
            }
        }
        Status::success()
    }
}

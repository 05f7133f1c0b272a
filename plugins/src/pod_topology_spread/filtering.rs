//! Hard constraints.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::{Applied, Scope};
use supercargo_framework::plugin::{FilterPlugin, PreFilter, PreFilterExtensions, PreFilterPlugin};
use supercargo_framework::{Context, CycleState, NodeInfo, NodeRecord, PodInfo, Status};

use super::PodTopologySpread;
use super::constraint::{Constraint, Inclusion, has_every_key, keys};
use super::spread::{Counting, Spread};
use crate::applied::{in_domain, widen};

const NOT_PREPARED: &str = "reading \"PreFilterPodTopologySpread\" from cycleState: not found";

/// The state that PreFilter prepares: the constraints with their counts.
#[derive(Clone)]
pub(super) struct Prepared {
    constraints: Arc<[Constraint]>,
    standings: SmallVec<[FilteredConstraint; 2]>,
}

/// The counts of a constraint.
#[derive(Clone)]
struct FilteredConstraint {
    spread: Spread,
    /// The minimum that domains are compared with.
    floor: i64,
}

/// The approximate size of the state in bytes.
pub(super) fn bytes(state: &CycleState) -> usize {
    let Some(prepared) = state.read::<Prepared>() else { return 0 };
    prepared.standings.iter().map(|standing| standing.spread.bytes()).sum()
}

impl FilteredConstraint {
    fn new(constraint: &Constraint, spread: Spread) -> Self {
        let floor = floor(constraint, &spread);
        Self { spread, floor }
    }

    /// The maximum number of pods in a domain that admits this pod.
    fn limit(&self, constraint: &Constraint) -> i64 {
        self.floor + i64::from(constraint.max_skew) - i64::from(constraint.selects_self)
    }

    /// Changes counts, in at most one domain. Returns which verdicts can differ.
    fn follow(&mut self, constraint: &Constraint, domain: &str, change: impl FnOnce(&mut Spread)) -> Applied {
        let (pods_before, limit_before) = (self.spread.get(domain), self.limit(constraint));
        change(&mut self.spread);
        self.floor = floor(constraint, &self.spread);
        let (pods, limit) = (self.spread.get(domain), self.limit(constraint));
        if limit != limit_before {
            let (low, high) = (limit.min(limit_before), limit.max(limit_before));
            let is_between = |pods: i64| low < pods && pods <= high;
            let own = usize::from(self.spread.contains(domain) && is_between(pods));
            // A domain without nodes that count has no pods, but still has a verdict.
            if self.spread.between(low, high) > own || is_between(0) {
                return Applied::Everywhere;
            }
        }
        if (pods_before <= limit_before) == (pods <= limit) {
            Applied::Here
        } else {
            in_domain(&constraint.topology_key)
        }
    }
}

/// The minimum number of pods in a domain; 0 with fewer domains than `minDomains`. Without any
/// domain, every count is low enough.
fn floor(constraint: &Constraint, spread: &Spread) -> i64 {
    if (spread.domains() as i64) < i64::from(constraint.min_domains) {
        return 0;
    }
    spread.least().unwrap_or(i64::from(i32::MAX))
}

/// Visits the constraints for which the node counts, each with its index and the node's domain.
fn visit<'a>(
    constraints: &'a [Constraint],
    pod: &PodInfo,
    node: &'a NodeRecord,
    mut visit: impl FnMut(usize, &'a Constraint, &'a Arc<str>),
) {
    if !has_every_key(&node.labels, constraints) {
        return;
    }
    let mut inclusion = Inclusion::new(pod, node);
    for (i, constraint) in constraints.iter().enumerate() {
        if let Some(domain) = node.labels.get(&constraint.topology_key)
            && inclusion.counts_for(constraint)
        {
            visit(i, constraint, domain);
        }
    }
}

/// Counts the pods that each constraint selects, by domain.
fn count(cx: &Context<'_>, pod: &PodInfo, constraints: &[Constraint]) -> SmallVec<[FilteredConstraint; 2]> {
    let mut spreads: SmallVec<[Counting; 2]> =
        constraints.iter().map(|_| Counting::new(cx.hash_seed())).collect();
    for (_, node) in cx.nodes().iter() {
        visit(constraints, pod, node.node(), |i, constraint, domain| {
            spreads[i].add_node(domain, constraint.count(node.pods(), &pod.namespace));
        });
    }
    let standings = constraints.iter().zip(spreads);
    standings.map(|(constraint, spread)| FilteredConstraint::new(constraint, spread.into())).collect()
}

impl Prepared {
    /// Adds or removes a pod of a node in a dry run. Same as upstream, including two quirks:
    /// terminating pods count, and an empty selector matches any pod. Returns whether the pod
    /// counts.
    fn change(&mut self, pod: &PodInfo, changed: &PodInfo, node: &NodeRecord, delta: i64) -> bool {
        let mut is_counted = false;
        if changed.namespace != pod.namespace {
            return is_counted;
        }
        let Self { constraints, standings } = self;
        visit(constraints, pod, node, |i, constraint, domain| {
            if constraint.selects(&changed.labels) {
                standings[i].spread.add(domain, delta);
                standings[i].floor = floor(constraint, &standings[i].spread);
                is_counted = true;
            }
        });
        is_counted
    }

    /// Adds or removes a pod of a node permanently; the result equals a recount.
    pub(super) fn follow_pod(
        &mut self,
        pod: &PodInfo,
        changed: &PodInfo,
        node: &NodeRecord,
        delta: i64,
    ) -> Applied {
        let mut applied = Applied::Here;
        let Self { constraints, standings } = self;
        if changed.namespace != pod.namespace || changed.terminating {
            return applied;
        }
        visit(constraints, pod, node, |i, constraint, domain| {
            if constraint.counts(changed, &pod.namespace) {
                let reach = standings[i].follow(constraint, domain, |spread| spread.follow(domain, delta));
                widen(&mut applied, reach);
            }
        });
        applied
    }

    /// Adds or removes a node without pods.
    pub(super) fn follow_node(&mut self, pod: &PodInfo, node: &NodeRecord, comes: bool) -> Applied {
        let mut applied = Applied::Here;
        let Self { constraints, standings } = self;
        visit(constraints, pod, node, |i, constraint, domain| {
            let reach = standings[i].follow(constraint, domain, |spread| {
                if comes {
                    spread.add_node(domain);
                } else {
                    spread.remove_node(domain);
                }
            });
            widen(&mut applied, reach);
        });
        applied
    }

    /// Applies a changed node object. Counted pods of a node are not known, so a node that counts
    /// for other domains than before requires a rebuild.
    pub(super) fn follow_change(&self, pod: &PodInfo, old: &NodeRecord, new: &NodeRecord) -> Applied {
        let domains = |node| {
            let mut domains: SmallVec<[(usize, Arc<str>); 2]> = SmallVec::new();
            visit(&self.constraints, pod, node, |i, _, domain| domains.push((i, Arc::clone(domain))));
            domains
        };
        if domains(old) == domains(new) { Applied::Here } else { Applied::Rebuild }
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
    if prepared.change(pod, changed, node.node(), delta) { Status::success() } else { Status::skip() }
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
            if standing.spread.get(domain) > standing.limit(constraint) {
                return Status::unschedulable("node(s) didn't match pod topology spread constraints");
            }
        }
        Status::success()
    }
}

pub(super) fn scope(state: &CycleState) -> Scope {
    let prepared = state.read::<Prepared>();
    prepared.map_or(Scope::Node, |prepared| Scope::Domain(keys(&prepared.constraints).into_keys().into()))
}

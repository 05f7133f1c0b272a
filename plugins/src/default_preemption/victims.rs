//! The victims on one node.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use supercargo_framework::plugin::RunFilters;
use supercargo_framework::{CycleState, NodeInfo, PodInfo, Status};

use super::budgets::{Budgets, Split};

/// A node in a dry run: a copy on which pods are added and removed. The state is cloned only if it
/// depends on pods.
pub(super) struct NodeDryRun<'a> {
    filters: &'a dyn RunFilters,
    pod: &'a PodInfo,
    state: Cow<'a, CycleState>,
    node: NodeInfo,
}

/// The victims on a node.
#[derive(Debug)]
pub(super) struct Victims {
    /// The most important first.
    pub(super) pods: Vec<Arc<PodInfo>>,
    /// The number of victims that a budget protects.
    pub(super) pdb_violations: usize,
}

/// The pods that this pod may preempt.
pub(super) fn potential(pod: &PodInfo, node: &NodeInfo) -> Vec<Arc<PodInfo>> {
    node.pods().iter().filter(|other| may_go(pod, other)).cloned().collect()
}

fn may_go(pod: &PodInfo, other: &PodInfo) -> bool {
    other.priority < pod.priority
}

impl<'a> NodeDryRun<'a> {
    /// The node without any of the potential victims.
    pub(super) fn begin(
        filters: &'a dyn RunFilters,
        pod: &'a PodInfo,
        state: &'a CycleState,
        node: &NodeInfo,
    ) -> Result<Self, Status> {
        let state = Cow::Borrowed(state);
        if !filters.follow_pods() {
            let node = node.with_pods_that(|other| !may_go(pod, other));
            return Ok(Self { filters, pod, state, node });
        }
        let mut dry_run = Self { filters, pod, state, node: node.clone() };
        for victim in potential(pod, node) {
            dry_run.remove(&victim)?;
        }
        Ok(dry_run)
    }

    /// Reprieves those of the `potential` victims that can stay: protected and important pods
    /// first. An error unless the pod fits without all of them, which may be known already.
    pub(super) fn select(
        mut self,
        is_known_to_fit: bool,
        mut potential: Vec<Arc<PodInfo>>,
        budgets: &Budgets<'_>,
    ) -> Result<Victims, Status> {
        if !is_known_to_fit {
            as_is(self.filters.run_filters(&self.state, self.pod, &self.node))?;
        }
        sort_by_importance(&mut potential);
        let Split { violating, others } = budgets.split(potential);
        let both = !violating.is_empty() && !others.is_empty();
        let mut pods = self.not_reprieved(violating)?;
        let pdb_violations = pods.len();
        pods.append(&mut self.not_reprieved(others)?);
        if both {
            sort_by_importance(&mut pods);
        }
        Ok(Victims { pods, pdb_violations })
    }

    /// Adds pods back one by one, and returns those with which the pod does not fit.
    fn not_reprieved(&mut self, pods: Vec<Arc<PodInfo>>) -> Result<Vec<Arc<PodInfo>>, Status> {
        let mut victims = Vec::new();
        for victim in pods {
            self.add(&victim)?;
            if !self.still_fits() {
                self.remove(&victim)?;
                victims.push(victim);
            }
        }
        Ok(victims)
    }

    fn still_fits(&self) -> bool {
        self.filters.run_filters_again(&self.state, self.pod, &self.node).is_success()
    }

    fn remove(&mut self, victim: &Arc<PodInfo>) -> Result<(), Status> {
        self.node.remove_pod(&victim.uid);
        if !self.filters.follow_pods() {
            return Ok(());
        }
        as_result(self.filters.remove_pod(self.state.to_mut(), self.pod, victim, &self.node))
    }

    fn add(&mut self, victim: &Arc<PodInfo>) -> Result<(), Status> {
        self.node.add_pod(Arc::clone(victim));
        if !self.filters.follow_pods() {
            return Ok(());
        }
        as_result(self.filters.add_pod(self.state.to_mut(), self.pod, victim, &self.node))
    }
}

fn as_is(status: Status) -> Result<(), Status> {
    if status.is_success() { Ok(()) } else { Err(status) }
}

/// A plugin that cannot follow the dry run is an error, whatever its code.
fn as_result(status: Status) -> Result<(), Status> {
    if status.is_success() { Ok(()) } else { Err(Status::error(status.message())) }
}

/// Sorts pods by priority; of equal priority, those that have run longer come first.
///
/// Pods that have not started come last. Upstream reads the clock for each of them in each
/// comparison, so the first operand is always earlier: its insertion sort reverses such pods.
pub(super) fn sort_by_importance(pods: &mut Vec<Arc<PodInfo>>) {
    let keyed = |(i, pod): (usize, Arc<PodInfo>)| {
        let start = pod.status.start_time;
        let turn = if start.is_none() { usize::MAX - i } else { i };
        ((Reverse(pod.priority), start.is_none(), start, turn), pod)
    };
    let mut sorted: Vec<_> = std::mem::take(pods).into_iter().enumerate().map(keyed).collect();
    sorted.sort_by_key(|(key, _)| *key);
    pods.extend(sorted.into_iter().map(|(_, pod)| pod));
}

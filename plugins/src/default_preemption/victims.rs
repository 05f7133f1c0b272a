//! The victims on one node.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use supercargo_framework::plugin::RunFilters;
use supercargo_framework::{CycleState, NodeInfo, PodInfo, Status, Timestamp};

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

/// A pod that may be preempted.
#[derive(Debug)]
pub(super) struct PotentialVictim {
    pub(super) pod: Arc<PodInfo>,
    importance: Importance,
}

/// Orders victims: the most important is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Importance {
    priority: Reverse<i32>,
    start: Start,
}

/// When a pod started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Start {
    At(Timestamp),
    /// Not yet, and its place among the node's pods. As upstream, which reads the clock once for
    /// each such pod: those that it reads first have started first.
    NotYet(usize),
}

/// The pods that this pod may preempt.
pub(super) fn potential(pod: &PodInfo, node: &NodeInfo) -> Vec<PotentialVictim> {
    let potential = |(place, other): (usize, &Arc<PodInfo>)| {
        let start = other.status.start_time.map_or(Start::NotYet(place), Start::At);
        let importance = Importance { priority: Reverse(other.priority), start };
        may_go(pod, other).then(|| PotentialVictim { pod: Arc::clone(other), importance })
    };
    node.pods().iter().enumerate().filter_map(potential).collect()
}

/// Sorts the most important first; of equal ones, those that came to the node first.
fn sort_by_importance(victims: &mut [PotentialVictim]) {
    victims.sort_by_key(|victim| victim.importance);
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
        for victim in node.pods().iter().filter(|other| may_go(pod, other)) {
            dry_run.remove(victim)?;
        }
        Ok(dry_run)
    }

    /// Reprieves those of the `potential` victims that can stay: protected and important pods
    /// first. An error unless the pod fits without all of them, which may be known already.
    pub(super) fn select(
        mut self,
        is_known_to_fit: bool,
        mut potential: Vec<PotentialVictim>,
        budgets: &Budgets<'_>,
    ) -> Result<Victims, Status> {
        if !is_known_to_fit {
            as_is(self.filters.run_filters(&self.state, self.pod, &self.node))?;
        }
        sort_by_importance(&mut potential);
        let Split { violating, others } = budgets.split(potential);
        let mut victims = self.not_reprieved(violating)?;
        let pdb_violations = victims.len();
        victims.append(&mut self.not_reprieved(others)?);
        sort_by_importance(&mut victims);
        let pods = victims.into_iter().map(|victim| victim.pod).collect();
        Ok(Victims { pods, pdb_violations })
    }

    /// Adds pods back one by one, and returns those with which the pod does not fit.
    fn not_reprieved(&mut self, potential: Vec<PotentialVictim>) -> Result<Vec<PotentialVictim>, Status> {
        let mut victims = Vec::new();
        for victim in potential {
            self.add(&victim.pod)?;
            if !self.still_fits() {
                self.remove(&victim.pod)?;
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

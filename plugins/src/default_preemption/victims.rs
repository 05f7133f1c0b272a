//! Which pods would have to go from one node.

use std::cmp::Reverse;
use std::sync::Arc;

use supercargo_framework::plugin::RunFilters;
use supercargo_framework::{CycleState, NodeInfo, PodInfo, Status};

use super::budgets::{Budgets, Split};

/// A node in a trial: a copy on which pods come and go.
pub(super) struct Trial<'a> {
    pub(super) filters: &'a dyn RunFilters,
    pub(super) pod: &'a PodInfo,
    pub(super) state: CycleState,
    pub(super) node: NodeInfo,
}

/// The pods that have to go from a node.
#[derive(Debug)]
pub(super) struct Victims {
    /// The most important first.
    pub(super) pods: Vec<Arc<PodInfo>>,
    /// How many of them a budget protects.
    pub(super) pdb_violations: usize,
}

/// The pods that may be removed for this one.
pub(super) fn potential(pod: &PodInfo, node: &NodeInfo) -> Vec<Arc<PodInfo>> {
    node.pods().iter().filter(|victim| victim.priority < pod.priority).cloned().collect()
}

impl Trial<'_> {
    /// Removes all of the `potential` victims and puts back those that can stay, the protected and the important first.
    pub(super) fn select(
        mut self,
        mut potential: Vec<Arc<PodInfo>>,
        budgets: &Budgets<'_>,
    ) -> Result<Victims, Status> {
        for victim in &potential {
            self.remove(victim)?;
        }
        let status = self.fits();
        if !status.is_success() {
            return Err(status);
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

    /// Puts pods back, one after the other, and returns those with which the pod would not fit.
    fn not_reprieved(&mut self, pods: Vec<Arc<PodInfo>>) -> Result<Vec<Arc<PodInfo>>, Status> {
        let mut victims = Vec::new();
        for victim in pods {
            self.add(&victim)?;
            if !self.fits().is_success() {
                self.remove(&victim)?;
                victims.push(victim);
            }
        }
        Ok(victims)
    }

    fn fits(&self) -> Status {
        self.filters.run_filters(&self.state, self.pod, &self.node)
    }

    fn remove(&mut self, victim: &Arc<PodInfo>) -> Result<(), Status> {
        self.node.remove_pod(&victim.uid);
        as_result(self.filters.remove_pod(&mut self.state, self.pod, victim, &self.node))
    }

    fn add(&mut self, victim: &Arc<PodInfo>) -> Result<(), Status> {
        self.node.add_pod(Arc::clone(victim));
        as_result(self.filters.add_pod(&mut self.state, self.pod, victim, &self.node))
    }
}

/// A plugin that cannot follow the trial is an error, whatever it calls it.
fn as_result(status: Status) -> Result<(), Status> {
    if status.is_success() { Ok(()) } else { Err(Status::error(status.message())) }
}

/// Sorts pods by priority, and among equals those that have run longer first.
///
/// Pods that have not started come last. Upstream asks the clock for each of them at each comparison, so that of two such
/// pods the one that is asked about is always the earlier: with its insertion sort, their order is turned around.
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

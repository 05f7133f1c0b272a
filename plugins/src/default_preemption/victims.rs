//! The victims of a pod on one node.

use std::borrow::Cow;
use std::sync::Arc;

use supercargo_framework::plugin::RunFilters;
use supercargo_framework::{Context, CycleState, NodeIndex, NodeInfo, PodInfo, Status};

use super::budgets::{Budgets, Split};
use super::victim::{PodOnNode, Victim, pods_of, sort_by_importance};

/// A node in a dry run: a copy on which pods are added and removed. The state is cloned only if it
/// depends on pods. As upstream, it follows the pods of a group on other nodes, too, but these nodes stay
/// as they are.
pub(super) struct NodeDryRun<'a> {
    cx: &'a Context<'a>,
    filters: &'a dyn RunFilters,
    pod: &'a PodInfo,
    state: Cow<'a, CycleState>,
    index: NodeIndex,
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

impl<'a> NodeDryRun<'a> {
    /// The node without its pods that may go, and a state that knows no potential victim.
    pub(super) fn begin(
        cx: &'a Context<'a>,
        filters: &'a dyn RunFilters,
        pod: &'a PodInfo,
        state: &'a CycleState,
        index: NodeIndex,
        potential: impl Fn() -> Vec<Victim>,
        goes: impl Fn(&PodInfo) -> bool,
    ) -> Result<Self, Status> {
        let (state, node) = (Cow::Borrowed(state), cx.node(index));
        if !filters.follow_pods() {
            let node = node.with_pods_that(|pod| !goes(pod));
            return Ok(Self { cx, filters, pod, state, index, node });
        }
        let mut dry_run = Self { cx, filters, pod, state, index, node: node.clone() };
        potential().iter().try_for_each(|victim| dry_run.remove(victim))?;
        Ok(dry_run)
    }

    /// Reprieves those of the `potential` victims that can stay: protected and important pods
    /// first. An error unless the pod fits without all of them, which may be known already.
    pub(super) fn select(
        mut self,
        is_known_to_fit: bool,
        potential: impl Fn() -> Vec<Victim>,
        budgets: &Budgets<'_>,
    ) -> Result<Victims, Status> {
        if !is_known_to_fit {
            as_is(self.filters.run_filters(&self.state, self.pod, &self.node))?;
        }
        let mut potential = potential();
        sort_by_importance(&mut potential);
        let Split { violating, others } = budgets.split(potential);
        let (mut victims, mut pdb_violations) = (Vec::new(), 0);
        for (victim, violations) in violating {
            if !self.is_reprieved(&victim)? {
                victims.push(victim);
                pdb_violations += violations;
            }
        }
        for victim in others {
            if !self.is_reprieved(&victim)? {
                victims.push(victim);
            }
        }
        sort_by_importance(&mut victims);
        Ok(Victims { pods: pods_of(&victims), pdb_violations })
    }

    /// Adds a victim back, unless the pod does not fit with it.
    fn is_reprieved(&mut self, victim: &Victim) -> Result<bool, Status> {
        self.add(victim)?;
        let still_fits = self.filters.run_filters_again(&self.state, self.pod, &self.node).is_success();
        if !still_fits {
            self.remove(victim)?;
        }
        Ok(still_fits)
    }

    fn remove(&mut self, victim: &Victim) -> Result<(), Status> {
        for PodOnNode { pod, node } in victim.pods() {
            if *node == self.index {
                self.node.remove_pod(&pod.uid);
            }
            if self.filters.follow_pods() {
                let info = if *node == self.index { &self.node } else { self.cx.node(*node) };
                as_result(self.filters.remove_pod(self.state.to_mut(), self.pod, pod, info))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, victim: &Victim) -> Result<(), Status> {
        for PodOnNode { pod, node } in victim.pods() {
            if *node == self.index {
                self.node.add_pod(Arc::clone(pod));
            }
            if self.filters.follow_pods() {
                let info = if *node == self.index { &self.node } else { self.cx.node(*node) };
                as_result(self.filters.add_pod(self.state.to_mut(), self.pod, pod, info))?;
            }
        }
        Ok(())
    }
}

fn as_is(status: Status) -> Result<(), Status> {
    if status.is_success() { Ok(()) } else { Err(status) }
}

/// A plugin that cannot follow the dry run is an error, whatever its code.
fn as_result(status: Status) -> Result<(), Status> {
    if status.is_success() { Ok(()) } else { Err(Status::error(status.message())) }
}

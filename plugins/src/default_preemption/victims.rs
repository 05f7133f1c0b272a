//! The victims of a pod on one node.

use std::borrow::Cow;
use std::iter;
use std::sync::Arc;

use supercargo_framework::caching::CachingFilters;
use supercargo_framework::context::Victims;
use supercargo_framework::plugin::RunFilters;
use supercargo_framework::{Context, CycleState, NodeIndex, NodeInfo, PodInfo, Status};

use super::budgets::Budgets;
use super::victim::{Groups, PodOnNode, Victim, pods_of, sort_by_importance};

/// The inputs of dry runs.
pub(super) struct VictimSearch<'a> {
    pub(super) cx: &'a Context<'a>,
    pub(super) state: &'a CycleState,
    pub(super) pod: &'a PodInfo,
    pub(super) filters: &'a dyn RunFilters,
    pub(super) budgets: &'a Budgets<'a>,
    pub(super) groups: &'a Groups<'a>,
}

/// A node in a dry run: a copy on which pods are added and removed. The state is cloned only if it
/// depends on pods. As upstream, it follows the pods of a group on other nodes, too, but these
/// nodes stay as they are.
struct NodeVictims<'a> {
    run: &'a VictimSearch<'a>,
    state: Cow<'a, CycleState>,
    index: NodeIndex,
    node: NodeInfo,
}

impl VictimSearch<'_> {
    /// The victims on a node, or why there are none.
    pub(super) fn victims_on(&self, index: NodeIndex) -> Result<Victims, Status> {
        let Self { cx, pod, state, filters, groups, .. } = self;
        let node = cx.node(index);
        // The sums of a node know the priorities of pods only.
        let mut by_totals = None;
        if groups.are_on(node) {
            if !node.pods().iter().any(|other| self.may_go(other)) {
                return Err(none_found());
            }
        } else if node.pods_below(pod.priority) == 0 {
            return Err(none_found());
        } else {
            let totals = node.totals_from(pod.priority);
            by_totals = filters.caching().and_then(|it| it.filter_totals(state, pod, node, &totals));
        }
        if let Some(status) = by_totals.as_ref().filter(|status| !status.is_success()) {
            return Err(status.clone());
        }
        let victims = self.select(index, by_totals.is_some())?;
        if victims.pods.is_empty() {
            let text = format!("expected at least one victim pod on node {:?}", &**node.name());
            return Err(Status::error(text));
        }
        Ok(victims)
    }

    /// Takes all potential victims off the node, and reprieves those that can stay: protected and
    /// important pods first. An error unless the pod fits without all of them, which may be known
    /// already.
    fn select(&self, index: NodeIndex, is_known_to_fit: bool) -> Result<Victims, Status> {
        let Self { cx, pod, state, filters, groups, budgets } = self;
        let node = cx.node(index);
        let potential = || groups.victims_below(pod.priority, iter::once((index, node)));
        let followed = self.follow_pods().then(potential);
        let without = match followed {
            Some(_) => node.clone(),
            None => node.with_pods_that(|pod| !self.may_go(pod)),
        };
        let mut dry_run = NodeVictims { run: self, state: Cow::Borrowed(*state), index, node: without };
        followed.iter().flatten().try_for_each(|victim| dry_run.remove(victim))?;
        if !is_known_to_fit {
            as_is(filters.run_filters(&dry_run.state, pod, &dry_run.node))?;
        }
        let mut potential = followed.unwrap_or_else(potential);
        sort_by_importance(&mut potential);
        let (mut victims, mut pdb_violations) = (Vec::new(), 0);
        for (victim, violations) in budgets.violated_first(potential) {
            if !dry_run.is_reprieved(&victim)? {
                victims.push(victim);
                pdb_violations += violations;
            }
        }
        sort_by_importance(&mut victims);
        Ok(Victims { pods: pods_of(&victims), pdb_violations, of_groups: 0 })
    }

    /// Whether states of plugins follow the pods that are removed and added.
    fn follow_pods(&self) -> bool {
        self.filters.caching().is_none_or(CachingFilters::follow_pods)
    }

    fn may_go(&self, other: &PodInfo) -> bool {
        self.groups.priority_of(other) < self.pod.priority
    }
}

fn none_found() -> Status {
    Status::unresolvable("No preemption victims found for incoming pod")
}

impl NodeVictims<'_> {
    /// Adds a victim back, unless the pod does not fit with it.
    fn is_reprieved(&mut self, victim: &Victim) -> Result<bool, Status> {
        self.add(victim)?;
        let VictimSearch { filters, pod, .. } = self.run;
        let (state, node) = (&*self.state, &self.node);
        let status = match filters.caching() {
            Some(caching) => caching.run_filters_again(state, pod, node),
            None => filters.run_filters(state, pod, node),
        };
        let still_fits = status.is_success();
        if !still_fits {
            self.remove(victim)?;
        }
        Ok(still_fits)
    }

    fn remove(&mut self, victim: &Victim) -> Result<(), Status> {
        self.change(
            victim,
            |node, pod| drop(node.remove_pod(&pod.uid)),
            |filters, state, of, pod, node| filters.remove_pod(state, of, pod, node),
        )
    }

    fn add(&mut self, victim: &Victim) -> Result<(), Status> {
        self.change(
            victim,
            |node, pod| node.add_pod(Arc::clone(pod)),
            |filters, state, of, pod, node| filters.add_pod(state, of, pod, node),
        )
    }

    /// Changes the node for each pod of a victim that is on it, and then the state for each pod.
    fn change(
        &mut self,
        victim: &Victim,
        on_node: fn(&mut NodeInfo, &Arc<PodInfo>),
        in_state: fn(&dyn RunFilters, &mut CycleState, &PodInfo, &PodInfo, &NodeInfo) -> Status,
    ) -> Result<(), Status> {
        let VictimSearch { cx, filters, pod: of, .. } = self.run;
        for PodOnNode { pod, node } in victim.pods() {
            let is_here = *node == self.index;
            if is_here {
                on_node(&mut self.node, pod);
            }
            if self.run.follow_pods() {
                let info = if is_here { &self.node } else { cx.node(*node) };
                as_result(in_state(*filters, self.state.to_mut(), of, pod, info))?;
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

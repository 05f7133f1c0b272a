//! Plugins that act on a whole group.

use std::sync::Arc;

use crate::context::{Command, Context};
use crate::node_index::NodeIndex;
use crate::objects::{GroupKey, GroupSpec};
use crate::plugin::{NodeStatuses, Nomination};
use crate::pod::PodInfo;
use crate::status::Status;
use crate::uid::Uid;

/// The nominations of pods of a group, with a status of success. Pods that are not listed keep
/// theirs.
pub type Nominations = Vec<(Uid, Nomination)>;

/// Pods of a group, with their nodes.
pub type Assignments = Vec<(Arc<PodInfo>, Arc<str>)>;

/// Nodes that a group may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// What distinguishes it from the group's other placements; empty for all nodes.
    pub name: Arc<str>,
    /// The nodes, in visiting order.
    pub nodes: Arc<[NodeIndex]>,
}

/// A group in its cycle.
#[derive(Clone, Copy, Debug)]
pub struct GroupInfo<'a> {
    /// The key.
    pub key: &'a GroupKey,
    /// What it asks for.
    pub spec: &'a GroupSpec,
    /// Its pods that are on nodes; of a composite group, those of all groups below it.
    pub scheduled: &'a Assignments,
}

/// Lists the placements of a group (upstream's PlacementGenerate). A profile has at most one such
/// plugin.
///
/// ```
/// use supercargo_framework::plugin::{GroupInfo, Placement, PlacementGeneratePlugin};
/// use supercargo_framework::{Context, Status};
///
/// /// Each node is a placement.
/// struct OneNode;
///
/// impl PlacementGeneratePlugin for OneNode {
///     fn generate_placements(
///         &self,
///         cx: &Context<'_>,
///         _: GroupInfo<'_>,
///         parent: &Placement,
///     ) -> Result<Vec<Placement>, Status> {
///         let of_node =
///             |index| Placement { name: cx.node(index).name().clone(), nodes: [index].into() };
///         Ok(parent.nodes.iter().map(|index| of_node(*index)).collect())
///     }
/// }
/// ```
pub trait PlacementGeneratePlugin: Send + Sync + 'static {
    /// The placements within another one, in the order in which they are tried. The group is tried
    /// on each alone; without any, it is unschedulable.
    fn generate_placements(
        &self,
        cx: &Context<'_>,
        group: GroupInfo<'_>,
        parent: &Placement,
    ) -> Result<Vec<Placement>, Status>;
}

/// Scores the placements on which a group fits, if there are several (upstream's PlacementScore).
///
/// ```
/// use supercargo_framework::plugin::{Assignments, GroupInfo, Placement, PlacementScorePlugin};
/// use supercargo_framework::{Context, Status};
///
/// /// Prefers placements with few nodes.
/// struct Small;
///
/// impl PlacementScorePlugin for Small {
///     fn score_placement(
///         &self,
///         _: &Context<'_>,
///         _: GroupInfo<'_>,
///         placement: &Placement,
///         _: &Assignments,
///     ) -> Result<i64, Status> {
///         Ok(100 - placement.nodes.len().min(100) as i64)
///     }
/// }
/// ```
pub trait PlacementScorePlugin: Send + Sync + 'static {
    /// The score of a placement on which these pods of the group would get nodes.
    fn score_placement(
        &self,
        cx: &Context<'_>,
        group: GroupInfo<'_>,
        placement: &Placement,
        proposed: &Assignments,
    ) -> Result<i64, Status>;

    /// Brings the scores of all placements between 0 and [`MAX_NODE_SCORE`](super::MAX_NODE_SCORE).
    fn normalize_placement_scores(&self, _scores: &mut [i64]) -> Result<(), Status> {
        Ok(())
    }
}

/// Runs when a group cannot be scheduled (upstream's PodGroupPostFilter).
///
/// ```
/// use supercargo_framework::Status;
/// use supercargo_framework::plugin::{GroupCycle, Nominations, PodGroupPostFilterPlugin};
///
/// /// Says how many pods wait.
/// struct Counts;
///
/// impl PodGroupPostFilterPlugin for Counts {
///     fn pod_group_post_filter(&self, cycle: &mut dyn GroupCycle) -> (Nominations, Status) {
///         let reason = format!("{} pods of {} wait", cycle.pods().len(), cycle.group());
///         (Nominations::new(), Status::unschedulable(reason))
///     }
/// }
/// ```
pub trait PodGroupPostFilterPlugin: Send + Sync + 'static {
    /// Tries to make the group schedulable. Success means that it will be, and comes with
    /// nominations.
    fn pod_group_post_filter(&self, cycle: &mut dyn GroupCycle) -> (Nominations, Status);
}

/// The cycle of a group, and a cluster that the plugin may change. All changes are undone when the
/// plugin returns (upstream's mutable snapshot).
///
/// ```
/// use std::sync::Arc;
///
/// use supercargo_framework::PodInfo;
/// use supercargo_framework::plugin::GroupCycle;
///
/// /// Whether the group fits once this pod is gone.
/// fn fits_without(cycle: &mut dyn GroupCycle, victim: &Arc<PodInfo>) -> bool {
///     cycle.remove_pod(victim).is_ok() && cycle.schedule().is_ok()
/// }
/// ```
pub trait GroupCycle {
    /// What the plugin may read. Its commands go through [`command`](Self::command).
    fn context(&self) -> Context<'_>;

    /// The key of the group; of groups that belong together, that of their root.
    fn group(&self) -> &GroupKey;

    /// The pods to schedule.
    fn pods(&self) -> Vec<Arc<PodInfo>>;

    /// The pods that no node took when the group was tried, with the nodes' answers.
    fn rejected(&self) -> Vec<(Arc<PodInfo>, &NodeStatuses)>;

    /// Takes a pod off its node.
    fn remove_pod(&mut self, pod: &Arc<PodInfo>) -> Result<(), Status>;

    /// Puts a removed pod back on its node.
    fn add_pod(&mut self, pod: &Arc<PodInfo>) -> Result<(), Status>;

    /// Runs the scheduling algorithm for the group. Returns its pods with their nodes, or why it
    /// fails. Pods of a group below it that fails have no node.
    fn schedule(&mut self) -> Result<Assignments, Status>;

    /// Whether all pods that the last [`schedule`](Self::schedule) has placed still fit on their
    /// nodes. If not, remove the pods that were added since the last call.
    fn still_fits(&mut self) -> bool;

    /// Requests something from the scheduler, once the plugin has returned, unless it fails.
    fn command(&mut self, command: Command);
}

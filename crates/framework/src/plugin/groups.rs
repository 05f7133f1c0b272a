//! Plugins that act on a whole group.

use std::sync::Arc;

use crate::context::{Command, Context};
use crate::plugin::Nomination;
use crate::pod::PodInfo;
use crate::status::Status;
use crate::uid::Uid;

/// The nominations of pods of a group, with a status of success. Pods that are not listed keep theirs.
pub type Nominations = Vec<(Uid, Nomination)>;

/// Pods of a group and the nodes that they would get.
pub type Placements = Vec<(Arc<PodInfo>, Arc<str>)>;

/// Runs when a group cannot be scheduled (upstream's PodGroupPostFilter).
pub trait PodGroupPostFilterPlugin: Send + Sync + 'static {
    /// Tries to make the group schedulable. Success means that it will be, and comes with nominations.
    fn pod_group_post_filter(&self, cycle: &mut dyn GroupCycle) -> (Nominations, Status);
}

/// The cycle of a group, and a cluster that the plugin may change. All changes are undone when the plugin
/// returns (upstream's mutable snapshot).
pub trait GroupCycle {
    /// What the plugin may read. Its commands go through [`command`](Self::command).
    fn context(&self) -> Context<'_>;

    /// The key of the group.
    fn group(&self) -> &Arc<str>;

    /// The pods to schedule.
    fn pods(&self) -> Vec<Arc<PodInfo>>;

    /// Takes a pod off its node.
    fn remove_pod(&mut self, pod: &Arc<PodInfo>) -> Result<(), Status>;

    /// Puts a removed pod back on its node.
    fn add_pod(&mut self, pod: &Arc<PodInfo>) -> Result<(), Status>;

    /// Runs the scheduling algorithm for the group. Returns its pods with their nodes, or why it fails.
    fn schedule(&mut self) -> Result<Placements, Status>;

    /// Whether all pods that the last [`schedule`](Self::schedule) has placed still fit on their nodes.
    fn still_fits(&mut self) -> bool;

    /// Requests something from the scheduler, once the plugin has returned.
    fn command(&mut self, command: Command);
}

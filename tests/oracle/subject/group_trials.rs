//! Wraps a PodGroupPostFilter plugin, so that only trials of a group's pods are recorded.

use std::sync::{Arc, Mutex};

use supercargo_framework::context::Command;
use supercargo_framework::objects::GroupKey;
use supercargo_framework::plugin::{
    Assignments, ExtensionPoints, GroupCycle, NodeStatuses, Nominations, PodGroupPostFilterPlugin,
};
use supercargo_framework::{Context, Plugin, PodInfo, Status};

use super::calls::lock;
use super::probe::Seen;

/// A wrapped plugin.
pub(super) struct TrialRecorder {
    pub(super) name: &'static str,
    pub(super) inner: Arc<dyn PodGroupPostFilterPlugin>,
    pub(super) seen: Arc<Mutex<Seen>>,
}

impl Plugin for TrialRecorder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().pod_group_post_filter(&self)
    }
}

impl PodGroupPostFilterPlugin for TrialRecorder {
    fn pod_group_post_filter(&self, cycle: &mut dyn GroupCycle) -> (Nominations, Status) {
        self.inner.pod_group_post_filter(&mut Noting { cycle, seen: &self.seen })
    }
}

/// Wraps the cycle.
struct Noting<'a> {
    cycle: &'a mut dyn GroupCycle,
    seen: &'a Mutex<Seen>,
}

impl GroupCycle for Noting<'_> {
    fn context(&self) -> Context<'_> {
        self.cycle.context()
    }

    fn group(&self) -> &GroupKey {
        self.cycle.group()
    }

    fn pods(&self) -> Vec<Arc<PodInfo>> {
        self.cycle.pods()
    }

    fn rejected(&self) -> Vec<(Arc<PodInfo>, &NodeStatuses)> {
        self.cycle.rejected()
    }

    fn remove_pod(&mut self, pod: &Arc<PodInfo>) -> Result<(), Status> {
        self.cycle.remove_pod(pod)
    }

    fn add_pod(&mut self, pod: &Arc<PodInfo>) -> Result<(), Status> {
        self.cycle.add_pod(pod)
    }

    /// After its trials, PreFilter runs once more for each pod with a node.
    fn schedule(&mut self) -> Result<Assignments, Status> {
        let placed = self.cycle.schedule();
        let mut seen = lock(self.seen);
        let trials = seen.trials.len().saturating_sub(placed.as_ref().map_or(0, Vec::len));
        seen.trials.truncate(trials);
        drop(seen);
        placed
    }

    fn still_fits(&mut self) -> bool {
        self.cycle.still_fits()
    }

    fn command(&mut self, command: Command) {
        self.cycle.command(command);
    }
}

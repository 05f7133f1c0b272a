//! The incremental part of plugins whose prepared state follows from the pod alone.

use supercargo_framework::plugin::{Applied, IncrementalPlugin};
use supercargo_framework::{CycleState, NodeInfo, NodeRecord, PodInfo};

/// For a plugin whose PreFilter and PreScore read nothing but the pod and the plugin's arguments: whatever happens to
/// other pods, to nodes or to the feasible set, both would make the same state again, so every change is already applied.
pub(crate) struct Unaffected;

impl IncrementalPlugin for Unaffected {
    fn pod_added(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn pod_removed(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn node_added(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn node_removed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn node_changed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn feasible_changed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeInfo, _: bool) -> Applied {
        Applied::Here
    }
}

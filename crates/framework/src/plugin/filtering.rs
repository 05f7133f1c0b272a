//! Extension points that select feasible nodes, preemption included.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::caching::CachingFilters;
use crate::context::Context;
use crate::cycle_state::CycleState;
use crate::node_info::NodeInfo;
use crate::node_statuses::NodeStatuses;
use crate::pod::PodInfo;
use crate::status::Status;

/// Names of nodes.
pub type NodeNames = BTreeSet<Arc<str>>;

/// The result of PreFilter.
#[derive(Debug)]
pub enum PreFilter {
    /// All nodes are candidates.
    AllNodes,
    /// Only these nodes are candidates.
    Nodes(NodeNames),
    /// Filter has nothing to check for this pod and is not called.
    Skip,
    /// No node is feasible. After `Unschedulable` the remaining plugins still run;
    /// `UnschedulableAndUnresolvable` ends PreFilter.
    Reject(Status),
}

/// The plugins whose PreFilter did not run because an earlier plugin had rejected the pod. The
/// scheduler writes it to the cycle's state; it is absent if PreFilter of all plugins ran.
#[derive(Clone, Debug)]
pub struct NotPreFiltered(pub Box<[&'static str]>);

/// Runs once per pod, before Filter.
///
/// ```
/// use supercargo_framework::plugin::{PreFilter, PreFilterPlugin};
/// use supercargo_framework::{Context, CycleState, PodInfo};
///
/// #[derive(Clone)]
/// struct Team(String);
///
/// struct TeamNodes;
///
/// impl PreFilterPlugin for TeamNodes {
///     fn pre_filter(&self, _: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
///         let Some(team) = pod.labels.get("team") else { return PreFilter::Skip };
///         state.write(Team(team.to_string()));
///         PreFilter::AllNodes
///     }
/// }
/// ```
pub trait PreFilterPlugin: Send + Sync + 'static {
    /// Prepares state that Filter reads.
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter;

    /// Updates of that state for preemption dry runs; `None` if it does not depend on pods.
    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        None
    }
}

/// Keeps PreFilter state current while a preemption dry run adds and removes pods.
///
/// Skip means that the state stays as it is, and saves the scheduler calls of Filter. Whether a pod
/// changes the state of another may depend only on what
/// [`SignPlugin`](crate::plugin::SignPlugin) writes for the other.
///
/// ```
/// use supercargo_framework::plugin::PreFilterExtensions;
/// use supercargo_framework::{CycleState, NodeInfo, PodInfo, Status};
///
/// #[derive(Clone)]
/// struct Count(i64);
///
/// struct CountsPods;
///
/// fn count(state: &mut CycleState, by: i64) -> Status {
///     match state.read_mut::<Count>() {
///         Some(Count(pods)) => *pods += by,
///         None => return Status::error("PreFilter has not run"),
///     }
///     Status::success()
/// }
///
/// impl PreFilterExtensions for CountsPods {
///     fn add_pod(&self, state: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeInfo) -> Status {
///         count(state, 1)
///     }
///     fn remove_pod(&self, state: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeInfo) -> Status {
///         count(state, -1)
///     }
/// }
/// ```
pub trait PreFilterExtensions {
    /// `added` is now on `node`.
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status;
    /// `removed` is no longer on `node`.
    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo)
    -> Status;
}

/// Checks one node.
///
/// ```
/// use supercargo_framework::plugin::FilterPlugin;
/// use supercargo_framework::{Context, CycleState, NodeInfo, PodInfo, Status};
///
/// struct SameTeam;
///
/// impl FilterPlugin for SameTeam {
///     fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
///         if pod.labels.get("team") == node.node().labels.get("team") {
///             Status::success()
///         } else {
///             Status::unresolvable("node(s) belong to another team")
///         }
///     }
/// }
/// ```
pub trait FilterPlugin: Send + Sync + 'static {
    /// Whether the pod can run on the node. Called for every node: must not allocate when it
    /// succeeds.
    fn filter(&self, cx: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status;
}

/// A node on which preemption can make room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: Arc<str>,
    /// The pods to evict, the most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// How many of them a PodDisruptionBudget protects.
    pub pdb_violations: usize,
}

/// Runs filters, and calls extenders, for a PostFilter plugin. Plugins never call each other.
///
/// ```
/// use supercargo_framework::plugin::RunFilters;
/// use supercargo_framework::{CycleState, NodeInfo, PodInfo};
///
/// /// Whether the pod fits on a node without one of the node's pods.
/// fn fits_without(
///     filters: &dyn RunFilters,
///     state: &mut CycleState,
///     pod: &PodInfo,
///     victim: &PodInfo,
///     node: &mut NodeInfo,
/// ) -> bool {
///     node.remove_pod(&victim.uid);
///     filters.remove_pod(state, pod, victim, node).is_success()
///         && filters.run_filters(state, pod, node).is_success()
/// }
/// ```
pub trait RunFilters {
    /// Runs all filters of the profile on a hypothetical node, nominated pods included.
    fn run_filters(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status;
    /// Tells every PreFilter plugin that a pod was added to a node in the dry run.
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status;
    /// Tells every PreFilter plugin that a pod was removed from a node in the dry run.
    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo)
    -> Status;
    /// Lets extenders that support preemption remove candidates and victims.
    fn extend_preemption(
        &self,
        pod: &Arc<PodInfo>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Status>;
    /// What makes many dry runs cheaper, if anything does.
    fn caching(&self) -> Option<&dyn CachingFilters> {
        None
    }
}

/// A change of the pod's nominated node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nomination {
    /// Keep the nominated node.
    #[default]
    Keep,
    /// Set it; `None` clears it.
    Override(Option<Arc<str>>),
}

/// Runs when no node is feasible, usually to preempt.
///
/// ```
/// use std::sync::Arc;
/// use supercargo_framework::plugin::{NodeStatuses, Nomination, PostFilterPlugin, RunFilters};
/// use supercargo_framework::{Context, CycleState, PodInfo, Status};
///
/// struct NeverPreempts;
///
/// impl PostFilterPlugin for NeverPreempts {
///     fn post_filter(
///         &self,
///         _: &Context<'_>,
///         _: &CycleState,
///         _: &Arc<PodInfo>,
///         _: &NodeStatuses,
///         _: &dyn RunFilters,
///     ) -> (Nomination, Status) {
///         (Nomination::Keep, Status::unschedulable("preemption is disabled"))
///     }
/// }
/// ```
pub trait PostFilterPlugin: Send + Sync + 'static {
    /// Success means that the plugin did something that will make room.
    fn post_filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &Arc<PodInfo>,
        statuses: &NodeStatuses,
        filters: &dyn RunFilters,
    ) -> (Nomination, Status);
}

//! One trait per extension point, with upstream's meaning.
//!
//! A plugin implements [`Plugin`] and the traits of its points, and registers them in
//! [`Plugin::extension_points`]. All calls within a cycle are synchronous and come from one thread.
//! PreBind and Bind return futures, which run beside later cycles.
//!
//! This module has upstream's extension points only. To let the scheduler keep a plugin's answers
//! between cycles, see [`caching`](crate::caching).

mod binding;
mod filtering;
mod groups;
mod queueing;
mod scoring;

use std::sync::Arc;

use crate::caching::{Caching, IncrementalPlugin};
use crate::context::Context;
pub use crate::node_statuses::NodeStatuses;
use crate::objects::Objects;
use crate::pod::PodInfo;
use crate::signature::{Signer, Unsignable};
use crate::text::Text;

pub use binding::{
    BindPlugin, Permit, PermitPlugin, PostBindPlugin, PreBindPlugin, PreFlight, ReservePlugin,
};
pub use filtering::{
    Candidate, FilterPlugin, NodeNames, Nomination, NotPreFiltered, PostFilterPlugin, PreFilter,
    PreFilterExtensions, PreFilterPlugin, RunFilters,
};
pub use groups::{
    Assignments, GroupCycle, GroupInfo, Nominations, Placement, PlacementGeneratePlugin,
    PlacementScorePlugin, PodGroupPostFilterPlugin,
};
pub use queueing::{EnqueueExtensions, PreEnqueuePlugin, QueueSortPlugin, Queued};
pub use scoring::{MAX_NODE_SCORE, Normalize, PreScorePlugin, ScorePlugin};

/// A plugin: a name, and the extension points that it implements.
///
/// ```
/// use std::sync::Arc;
/// use supercargo_framework::plugin::{ExtensionPoints, FilterPlugin, Plugin};
/// use supercargo_framework::{Context, CycleState, NodeInfo, PodInfo, Status};
///
/// struct Quiet;
///
/// impl Plugin for Quiet {
///     fn name(&self) -> &'static str {
///         "Quiet"
///     }
///     fn extension_points(self: Arc<Self>) -> ExtensionPoints {
///         ExtensionPoints::new().filter(&self)
///     }
/// }
///
/// impl FilterPlugin for Quiet {
///     fn filter(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: &NodeInfo) -> Status {
///         Status::success()
///     }
/// }
///
/// assert!(Arc::new(Quiet).extension_points().filter.is_some());
/// ```
pub trait Plugin: Send + Sync + 'static {
    /// The name in configuration, statuses and metrics.
    fn name(&self) -> &'static str;

    /// The extension points that the plugin implements.
    fn extension_points(self: Arc<Self>) -> ExtensionPoints;

    /// The kinds that the plugin reads, apart from pods, nodes, and the kinds of its registered
    /// events. Only kinds that an enabled plugin names are watched.
    fn reads(&self) -> Vec<Text> {
        Vec::new()
    }

    /// How what the plugin keeps between cycles differs from the objects that it is derived from;
    /// empty unless there is a bug. For tests: it may take long, and must not change the plugin.
    fn inconsistencies(&self, _objects: &Objects) -> Vec<String> {
        Vec::new()
    }
}

/// Declares the fields of [`ExtensionPoints`] and a builder method for each.
macro_rules! extension_points {
    ($($(#[$doc:meta])* $field:ident: $plugin:ident,)*) => {
        /// The extension points that one plugin implements.
        #[derive(Clone, Default)]
        pub struct ExtensionPoints {
            $($(#[$doc])* pub $field: Option<Arc<dyn $plugin>>,)*
        }

        impl ExtensionPoints {
            /// No extension point.
            pub fn new() -> Self {
                Self::default()
            }

            $($(#[$doc])*
            pub fn $field<P: $plugin>(mut self, plugin: &Arc<P>) -> Self {
                self.$field = Some(Arc::clone(plugin) as Arc<dyn $plugin>);
                self
            })*
        }
    };
}

extension_points! {
    /// Gates pods before they enter activeQ.
    pre_enqueue: PreEnqueuePlugin,
    /// Orders activeQ.
    queue_sort: QueueSortPlugin,
    /// Registers the events that can make a rejected pod schedulable.
    enqueue_extensions: EnqueueExtensions,
    /// Runs once per pod, before Filter.
    pre_filter: PreFilterPlugin,
    /// Checks one node.
    filter: FilterPlugin,
    /// Runs when no node is feasible.
    post_filter: PostFilterPlugin,
    /// Lists the sets of nodes that a group may use.
    placement_generate: PlacementGeneratePlugin,
    /// Scores one of these sets.
    placement_score: PlacementScorePlugin,
    /// Runs when a group cannot be scheduled.
    pod_group_post_filter: PodGroupPostFilterPlugin,
    /// Runs once per pod with the feasible nodes, before Score.
    pre_score: PreScorePlugin,
    /// Scores one node.
    score: ScorePlugin,
    /// Reserves resources for the pod on the chosen node.
    reserve: ReservePlugin,
    /// Allows, delays or rejects the binding.
    permit: PermitPlugin,
    /// Prepares the binding.
    pre_bind: PreBindPlugin,
    /// Binds the pod.
    bind: BindPlugin,
    /// Runs after the pod is bound.
    post_bind: PostBindPlugin,
    /// Writes what the plugin's answers depend on.
    sign: SignPlugin,
    /// Applies changes to the plugin's state, so that it outlives a cycle.
    incremental: IncrementalPlugin,
    /// Makes caching of the plugin's answers cheaper.
    caching: Caching,
}

/// Writes what the plugin's answers depend on, so that pods with equal signatures share one
/// evaluation (upstream's SignPlugin).
///
/// ```
/// use supercargo_framework::plugin::SignPlugin;
/// use supercargo_framework::signature::{Signer, Unsignable};
/// use supercargo_framework::{Context, PodInfo};
///
/// struct SameTeam;
///
/// impl SignPlugin for SameTeam {
///     fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
///         signer.write(&pod.labels.get("team"));
///         Ok(())
///     }
/// }
/// ```
pub trait SignPlugin: Send + Sync + 'static {
    /// Writes everything that the plugin's PreFilter, Filter, PreScore and Score read of the pod,
    /// except its name, UID and priority. What they derive from other objects may be written
    /// instead of what it is derived from. An error means that the pod's evaluation cannot be
    /// shared.
    ///
    /// Write only the labels that matter: pods of a StatefulSet differ in one.
    fn sign(&self, cx: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable>;
}

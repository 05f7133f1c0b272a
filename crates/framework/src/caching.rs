//! Caching of a plugin's answers between scheduling cycles.
//!
//! A plugin does not need anything from this module to be correct. Without it the scheduler calls
//! the plugin for every pod and every node. With it the scheduler keeps *evaluation tables*:
//! PreFilter and PreScore state, Filter verdicts and raw scores of every node, shared by all pods
//! with equal signatures. The next such pod costs only what has changed since.
//!
//! A profile uses tables when all of its plugins at PreFilter, Filter, PreScore and Score opt in:
//!
//! 1. Each implements [`SignPlugin`](crate::plugin::SignPlugin), which writes everything its
//!    answers depend on.
//! 2. Each plugin with state, that is with PreFilter or PreScore, also registers an
//!    [`IncrementalPlugin`]. Its hooks apply one change to the state and return an [`Applied`], the
//!    set of answers that the change can alter. The default of every hook is [`Applied::Rebuild`].
//! 3. [`Caching`] is optional and makes tables cheaper. Its methods state what an answer depends on
//!    ([`Scope`]), or answer for all nodes in one call. Every default is safe for every plugin.
//!
//! All three are registered in [`ExtensionPoints`](crate::plugin::ExtensionPoints), with `sign`,
//! `incremental` and `caching`. What a plugin reads of other objects through [`Context`] is
//! tracked: a change of any of them rebuilds the state. Nothing needs to be declared for that. A
//! plugin that follows the changes of a kind itself takes its objects by [`Context::follow`], and
//! says which answers they alter ([`IncrementalPlugin::objects_changed`]).
//!
//! Some cycles bypass tables; docs/caching.md lists them. A plugin that has PreFilter state for a
//! later point such as Reserve is one reason, unless the pod
//! [stands alone](Caching::stands_alone) for it or
//! [has a state of its own](Caching::prepares_each).
//!
//! # Requirements on signatures
//!
//! Pods with equal signatures must get equal answers, also when the state was built for one of them
//! long ago and has followed changes with another. What `sign` reads from the cluster to select
//! what it writes must therefore only grow, or be written to the signature, too.
//!
//! # State
//!
//! * A change that turns a `Skip` of PreFilter or PreScore into another result, or back, or that
//!   widens a scope, must be a rebuild.
//! * PreFilter can write state and still return `Skip`. Hooks then see that state, and can detect
//!   that the plugin is needed from now on.
//! * Preemption dry runs clone the state. Keep large parts in an `Arc`, with the changes of one dry
//!   run beside it, and use `Arc::make_mut` in hooks: it copies nothing unless a clone still
//!   exists.
//!
//! # Checking a plugin
//!
//! With the cargo feature `testing`, [`testing::caching`](crate::testing::caching) replays random
//! histories and compares cached answers with fresh ones.
//!
//! # Example
//!
//! A filter that reads only the node object keeps its verdicts while pods come and go:
//!
//! ```
//! use supercargo_framework::caching::{Caching, Scope};
//! use supercargo_framework::{CycleState, PodInfo};
//!
//! struct NodeCost;
//!
//! impl Caching for NodeCost {
//!     fn filter_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
//!         Scope::NodeObject
//!     }
//! }
//! ```

mod hints;
mod marks;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::context::Context;
use crate::cycle_state::CycleState;
use crate::node::NodeRecord;
use crate::node_info::{NodeInfo, PodTotals};
use crate::nodes::Nodes;
use crate::pod::PodInfo;
use crate::status::Status;

pub use hints::{ClaimFn, GroupFn, HintCaching, HintScope, LabelsFn, OfferFn};
pub use marks::{HintMarks, Label, Mark, Wish};

/// What an answer about a node depends on, apart from the pod and the plugin's state. A table calls
/// the plugin again for a node when that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The node object only.
    NodeObject,
    /// The node object and the pods on the node.
    Node,
    /// The node's values of these labels only. Nodes with equal values, absent ones included, get
    /// equal answers.
    Domain(SmallVec<[Arc<str>; 2]>),
    /// The node's values of these labels and its [class](Caching::score_class). Only for scores;
    /// for a filter it is treated as [`Node`](Self::Node).
    Classes(SmallVec<[Arc<str>; 2]>),
}

/// Properties of a plugin's answers that make caching cheaper. Every method has a default that
/// holds for every plugin. Methods are prefixed with the extension point that they describe.
///
/// ```
/// use supercargo_framework::caching::{Caching, Scope};
/// use supercargo_framework::{CycleState, PodInfo};
///
/// struct OnlySsd;
///
/// /// Its Filter reads one label of the node.
/// impl Caching for OnlySsd {
///     fn filter_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
///         Scope::Domain(["ssd".into()].into_iter().collect())
///     }
/// }
/// ```
pub trait Caching: Send + Sync + 'static {
    /// What Filter's verdict depends on, given the state that PreFilter prepared.
    fn filter_scope(&self, _state: &CycleState, _pod: &PodInfo) -> Scope {
        Scope::Node
    }

    /// Whether Filter returns either success or a rejection for every node, never an error. If so,
    /// a plugin that [stands alone](Self::stands_alone) is called only for nodes that can be
    /// chosen.
    fn filter_never_fails(&self, _cx: &Context<'_>, _state: &CycleState, _pod: &PodInfo) -> bool {
        false
    }

    /// Filters all nodes in one call: sets the slots of rejected nodes to `false` and leaves the
    /// others unchanged. Slots without a node may get any value. Returns `false`, with `passes`
    /// unchanged, if it cannot answer.
    ///
    /// Answer from [`Nodes::columns`], and look only at the nodes that the columns do not decide.
    fn filter_columns(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        _nodes: &Nodes,
        _passes: &mut [bool],
    ) -> bool {
        false
    }

    /// Filter's verdict on the node if the pods on it had these total requests; `None` if the
    /// verdict depends on more than that. Preemption uses it to skip nodes that are too small even
    /// when empty.
    fn filter_totals(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        _node: &NodeInfo,
        _totals: &PodTotals,
    ) -> Option<Status> {
        None
    }

    /// Whether PreScore would return `Skip` for any feasible nodes. Must be cheap. If `true`,
    /// PreScore is not called. Where a change of nodes or pods can change the result,
    /// [`IncrementalPlugin`] must report a rebuild.
    fn pre_score_skips(&self, _cx: &Context<'_>, _pod: &PodInfo) -> bool {
        false
    }

    /// Whether PreScore depends on which nodes are feasible. If not, it is called without nodes and
    /// its state is shared like PreFilter's.
    fn pre_score_depends_on_nodes(&self) -> bool {
        true
    }

    /// What the raw score depends on, given the state that PreScore prepared.
    fn score_scope(&self, _state: &CycleState, _pod: &PodInfo) -> Scope {
        Scope::Node
    }

    /// The node's class, if [`score_scope`](Self::score_scope) returns [`Scope::Classes`]. Nodes
    /// with equal values of those labels and equal classes have equal raw scores; only one of them
    /// is scored.
    ///
    /// A class may depend on the node object, the pods on the node, and state that
    /// [`Applied::Domain`] reports for a label outside the scope. Fewer classes make scoring
    /// cheaper.
    fn score_class(&self, _state: &CycleState, _pod: &PodInfo, _node: &NodeInfo) -> i64 {
        0
    }

    /// Scores all nodes in one call, infeasible ones included: sets each slot to the raw score.
    /// Slots without a node may get any value. Returns `false`, with `scores` unchanged, if it
    /// cannot answer.
    fn score_columns(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        _nodes: &Nodes,
        _scores: &mut [i64],
    ) -> bool {
        false
    }

    /// Whether a normalised score depends only on the node's raw score and on the minimum and the
    /// maximum of all raw scores other than [`NOT_SCORED`]. Nodes with equal raw scores are then
    /// normalised once. Only for [`Normalize::Custom`](crate::plugin::Normalize::Custom).
    fn normalizes_by_range(&self) -> bool {
        false
    }

    /// The approximate size in bytes of the state that PreFilter and PreScore prepared. It counts
    /// towards the memory limit of tables; states of constant size need not be counted.
    fn state_bytes(&self, _state: &CycleState) -> usize {
        0
    }

    /// Whether the pod has something that hardly any other pod has, such as its own claims, so that
    /// its answers are not worth keeping. The plugin is then called in every cycle, as it is for
    /// pods that it cannot sign.
    fn stands_alone(&self, _pod: &PodInfo) -> bool {
        false
    }

    /// Whether the pod has a state of its own for Reserve and later points, while pods with equal
    /// signatures get equal answers from Filter and Score. PreFilter then runs in every cycle, too,
    /// for the pod itself; its reads are not tracked then. The kept answers are those of another
    /// pod.
    fn prepares_each(&self, _pod: &PodInfo) -> bool {
        false
    }
}

/// The defaults of [`Caching`], for a plugin that registers none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uncached;

impl Caching for Uncached {}

/// The raw score of a node that a plugin does not rate while it rates others. A plugin that
/// [normalises by range](Caching::normalizes_by_range) leaves such nodes out of the minimum and the
/// maximum. Lower than any score, and far enough from `i64::MIN` that sums do not overflow.
pub const NOT_SCORED: i64 = -(1 << 48);

/// What the scheduler knows about the filters of a dry run. A PostFilter plugin that tries many
/// nodes can use it; one that runs [`RunFilters`](crate::plugin::RunFilters) alone gets the same
/// results.
///
/// ```
/// use supercargo_framework::plugin::RunFilters;
/// use supercargo_framework::{CycleState, NodeInfo, PodInfo, PodTotals};
///
/// /// Whether the node is too small for the pod beside pods with these total requests.
/// fn is_too_small(
///     filters: &dyn RunFilters,
///     state: &CycleState,
///     pod: &PodInfo,
///     node: &NodeInfo,
///     kept: &PodTotals,
/// ) -> bool {
///     let status = filters.caching().and_then(|caching| caching.filter_totals(state, pod, node, kept));
///     status.is_some_and(|status| !status.is_success())
/// }
/// ```
pub trait CachingFilters {
    /// The result of `run_filters` for a node on which all filters passed with different pods:
    /// skips filters that do not depend on the pods of the node.
    fn run_filters_again(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status;
    /// The result of `run_filters` if the pods on the node had these total requests; `None` if the
    /// totals do not decide it. Only for dry runs that [follow no pods](Self::follow_pods).
    fn filter_totals(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
        totals: &PodTotals,
    ) -> Option<Status>;
    /// Whether any plugin's state depends on the pods of a dry run. If not, `add_pod` and
    /// `remove_pod` need not be called, and dry runs can share one state.
    fn follow_pods(&self) -> bool;
}

/// The result of applying a change to a plugin's state: which answers the change can alter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The state is current. Only answers about the changed node can differ.
    Here,
    /// The state is current. Answers can differ for nodes that share the value of one of these
    /// labels with the changed node.
    Domain(SmallVec<[Arc<str>; 2]>),
    /// The state is current. Answers can differ for every node.
    Everywhere,
    /// The state is current. Answers can differ for these nodes, by name. For changes of objects.
    Nodes(SmallVec<[Arc<str>; 2]>),
    /// The change was not applied. PreFilter and PreScore run again.
    Rebuild,
}

/// Applies changes to a plugin's PreFilter and PreScore state, so that it outlives a cycle.
///
/// Every hook defaults to [`Applied::Rebuild`], which is always correct. Changes arrive one by one
/// and in order, each with the node object of that time. A pod update, and a pod that starts to
/// terminate, arrives as a removal and an addition. A node with pods arrives without them first;
/// before a node is removed, its pods are. `pod` is any pod with the signature of the state.
///
/// ```
/// use supercargo_framework::caching::{Applied, IncrementalPlugin};
/// use supercargo_framework::{CycleState, NodeRecord, PodInfo};
///
/// /// PreFilter reads nodes, but no pods.
/// struct CountsNodes;
///
/// impl IncrementalPlugin for CountsNodes {
///     fn pod_added(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeRecord) -> Applied {
///         Applied::Here
///     }
///     fn pod_removed(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeRecord) -> Applied {
///         Applied::Here
///     }
/// }
/// ```
pub trait IncrementalPlugin: Send + Sync + 'static {
    /// A pod was added to a node.
    fn pod_added(&self, _: &mut CycleState, _pod: &PodInfo, _added: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Rebuild
    }
    /// A pod was removed from a node.
    fn pod_removed(&self, _: &mut CycleState, _pod: &PodInfo, _removed: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Rebuild
    }
    /// A node was added.
    fn node_added(&self, _: &mut CycleState, _pod: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Rebuild
    }
    /// A node was removed.
    fn node_removed(&self, _: &mut CycleState, _pod: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Rebuild
    }
    /// A node object was updated.
    fn node_changed(
        &self,
        _: &mut CycleState,
        _pod: &PodInfo,
        _old: &NodeRecord,
        _new: &NodeRecord,
    ) -> Applied {
        Applied::Rebuild
    }
    /// A node became feasible or infeasible. Called only if PreScore [depends on the feasible
    /// nodes](Caching::pre_score_depends_on_nodes), after all other changes and with the current
    /// node. An added node is infeasible until this hook reports otherwise; a removed node gets no
    /// call.
    fn feasible_changed(&self, _: &mut CycleState, _pod: &PodInfo, _: &NodeInfo, _feasible: bool) -> Applied {
        Applied::Rebuild
    }
    /// Objects changed of kinds that PreFilter [follows](Context::follow). Called once for any
    /// number of changes, after all other changes. [`Applied::Here`] is no node, and
    /// [`Applied::Domain`] a rebuild.
    fn objects_changed(&self, _: &Context<'_>, _: &mut CycleState, _pod: &PodInfo) -> Applied {
        Applied::Rebuild
    }
}

/// An [`IncrementalPlugin`] for plugins whose state depends only on the pod and the plugin's
/// arguments. No change of the cluster alters such a state, so every hook returns
/// [`Applied::Here`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Stateless;

impl IncrementalPlugin for Stateless {
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

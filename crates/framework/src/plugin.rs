//! One trait per extension point.
//!
//! A plugin says in [`Plugin::extension_points`] where it takes part. All calls within a cycle are synchronous and come
//! from one thread; PreBind and Bind return futures that the shell runs.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::binding::{BindOutcome, BindingContext, BoxFuture};
use crate::context::{Context, QueueContext};
use crate::cycle_state::CycleState;
use crate::event::EventRegistration;
use crate::node::NodeRecord;
use crate::node_index::NodeIndex;
use crate::node_info::{NodeInfo, PodTotals};
pub use crate::node_statuses::NodeStatuses;
use crate::nodes::Nodes;
use crate::pod::PodInfo;
use crate::signature::{Signer, Unsignable};
use crate::status::Status;
use crate::text::Text;

/// The highest score a plugin gives.
pub const MAX_NODE_SCORE: i64 = 100;

/// The raw score of a node that a plugin has no opinion about, where others have a score. Such nodes are left out of the
/// least and the greatest raw score that [`Normalize::ByRange`] goes by. Lower than any score, and far enough from the
/// edge that what is reckoned with it does not overflow.
pub const NOT_SCORED: i64 = -(1 << 48);

/// A plugin: a name, and the points where it takes part.
pub trait Plugin: Send + Sync + 'static {
    /// The name in configuration, statuses and metrics.
    fn name(&self) -> &'static str;

    /// Where the plugin takes part.
    fn extension_points(self: Arc<Self>) -> ExtensionPoints;

    /// The kinds that the plugin reads beside pods, nodes, and those whose events it registers. Only what some plugin
    /// names is watched.
    fn reads(&self) -> Vec<Text> {
        Vec::new()
    }
}

/// Declares the fields of [`ExtensionPoints`] and a builder method for each.
macro_rules! extension_points {
    ($($(#[$doc:meta])* $field:ident: $plugin:ident,)*) => {
        /// The points where one plugin takes part.
        #[derive(Clone, Default)]
        pub struct ExtensionPoints {
            $($(#[$doc])* pub $field: Option<Arc<dyn $plugin>>,)*
        }

        impl ExtensionPoints {
            /// No point at all.
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
    /// Holds pods back before they enter the active queue.
    pre_enqueue: PreEnqueuePlugin,
    /// Orders the active queue.
    queue_sort: QueueSortPlugin,
    /// Names the events that can help a pod this plugin turned down.
    enqueue_extensions: EnqueueExtensions,
    /// Looks at the pod before any node.
    pre_filter: PreFilterPlugin,
    /// Judges one node.
    filter: FilterPlugin,
    /// Looks for a way out when no node is left.
    post_filter: PostFilterPlugin,
    /// Looks at the feasible nodes before scoring.
    pre_score: PreScorePlugin,
    /// Scores one node.
    score: ScorePlugin,
    /// Sets things aside for the pod on the chosen node.
    reserve: ReservePlugin,
    /// Lets the pod go, holds it or turns it down.
    permit: PermitPlugin,
    /// Prepares the binding.
    pre_bind: PreBindPlugin,
    /// Binds.
    bind: BindPlugin,
    /// Hears that the pod is bound.
    post_bind: PostBindPlugin,
    /// Names what its answers depend on.
    sign: SignPlugin,
    /// Keeps its cycle state current while things change.
    incremental: IncrementalPlugin,
}

/// Holds pods back before they enter the active queue.
pub trait PreEnqueuePlugin: Send + Sync + 'static {
    /// Success lets the pod in; anything else gates it, silently.
    fn pre_enqueue(&self, cx: &QueueContext<'_>, pod: &PodInfo) -> Status;
}

/// What a queue-sort plugin sees of a queued pod.
#[derive(Clone, Copy, Debug)]
pub struct Queued<'a> {
    /// The pod.
    pub pod: &'a PodInfo,
    /// When it last entered a queue.
    pub timestamp: crate::time::Timestamp,
}

/// Orders the active queue.
pub trait QueueSortPlugin: Send + Sync + 'static {
    /// Whether `a` is scheduled before `b`. Must be a strict weak order.
    fn less(&self, a: Queued<'_>, b: Queued<'_>) -> bool;
}

/// Names the events that can help a pod this plugin turned down. A plugin without this hears of everything.
pub trait EnqueueExtensions: Send + Sync + 'static {
    /// The events, each with its judge. Called once.
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration>;
}

/// Names of nodes.
pub type NodeNames = FxHashSet<Arc<str>>;

/// The answer of PreFilter.
#[derive(Debug)]
pub enum PreFilter {
    /// Any node may do.
    AllNodes,
    /// Only these nodes may do.
    Nodes(NodeNames),
    /// The plugin has nothing to filter for this pod; its Filter is not called.
    Skip,
    /// No node will do. Unschedulable lets the remaining plugins look too, UnschedulableAndUnresolvable stops.
    Reject(Status),
}

/// Looks at the pod before any node.
pub trait PreFilterPlugin: Send + Sync + 'static {
    /// Prepares the plugin's filter for this pod.
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter;

    /// How the state made here follows pods that come and go, for trials; `None` when it does not depend on them.
    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        None
    }
}

/// Keeps PreFilter state true while a trial adds and removes pods.
pub trait PreFilterExtensions {
    /// `added` is now on `node`.
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status;
    /// `removed` is no longer on `node`.
    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo)
    -> Status;
}

/// What an answer about a node depends on, beside the pod and the plugin's state. Evaluation tables ask again for a node
/// when that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The node object alone.
    NodeObject,
    /// The node object and the pods on the node.
    Node,
    /// The node's values of these labels alone: nodes that have the same ones, or lack the same ones, get the same answer.
    Domain(SmallVec<[Arc<str>; 2]>),
    /// The node's values of these labels and its [`class`](ScorePlugin::class). For scores; a filter that says so is taken to
    /// say [`Node`](Self::Node).
    Classes(SmallVec<[Arc<str>; 2]>),
}

/// Judges one node.
pub trait FilterPlugin: Send + Sync + 'static {
    /// Whether the pod can run on the node. Called for every node: must not allocate when it succeeds.
    fn filter(&self, cx: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status;

    /// What the verdict depends on, given the state that PreFilter made.
    fn scope(&self, _state: &CycleState, _pod: &PodInfo) -> Scope {
        Scope::Node
    }

    /// The verdict on the node if the pods on it were others, which are known only by what they request together; `None`
    /// where the verdict depends on more of them than that. For preemption, which need not try a node that is too small
    /// whoever goes.
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

    /// Whether the filter would fail on no node, given the state that PreFilter made: succeed or turn the pod down, whichever
    /// node it was asked about. Then it need not be asked about nodes that do not matter.
    fn never_fails(&self, _cx: &Context<'_>, _state: &CycleState, _pod: &PodInfo) -> bool {
        false
    }

    /// Judges all nodes at once: sets those that [`filter`](Self::filter) would turn down to `false` and leaves the others
    /// as they are; slots without a node may become anything. Answers `false` itself where it cannot, with nothing set.
    /// The point is to answer from [`Nodes::columns`] and look only at the few nodes about which they do not tell all.
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
}

/// A node that preemption could make room on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: Arc<str>,
    /// The pods that would have to go, the most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// How many of them a PodDisruptionBudget protects.
    pub pdb_violations: usize,
}

/// Runs filters, and asks extenders, for a PostFilter plugin: plugins never call each other.
pub trait RunFilters {
    /// Runs every filter of the profile on a node as it would be, nominated pods included.
    fn run_filters(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status;
    /// The same for a node on which the filters succeeded with other pods: leaves out those that the pods on the node do not
    /// matter to.
    fn run_filters_again(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        self.run_filters(state, pod, node)
    }
    /// What [`run_filters`](Self::run_filters) would say of the node if its pods were others, known only by what they
    /// request together; `None` when that does not tell. Only for trials that no state follows.
    fn filter_totals(&self, _: &CycleState, _pod: &PodInfo, _: &NodeInfo, _: &PodTotals) -> Option<Status> {
        None
    }
    /// Whether any plugin's state follows the pods of a trial. If not, `add_pod` and `remove_pod` need not be called, and a
    /// trial needs no state of its own.
    fn follow_pods(&self) -> bool {
        true
    }
    /// Tells every PreFilter plugin that a pod is now on a node of the trial.
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status;
    /// Tells every PreFilter plugin that a pod is no longer on a node of the trial.
    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo)
    -> Status;
    /// Lets the extenders that have a say in preemption strike out candidates and victims.
    fn extend_preemption(
        &self,
        pod: &Arc<PodInfo>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Status>;
}

/// What to do with the pod's nominated node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nomination {
    /// Leave it as it is.
    #[default]
    Keep,
    /// Set it; `None` clears it.
    Override(Option<Arc<str>>),
}

/// Looks for a way out when no node is left, usually by preemption.
pub trait PostFilterPlugin: Send + Sync + 'static {
    /// Success means that something was done that will make room.
    fn post_filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &Arc<PodInfo>,
        statuses: &NodeStatuses,
        filters: &dyn RunFilters,
    ) -> (Nomination, Status);
}

/// Looks at the feasible nodes before scoring.
pub trait PreScorePlugin: Send + Sync + 'static {
    /// Skip leaves the plugin's Score out. Whether it is skipped must not depend on the nodes.
    fn pre_score(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &[NodeIndex],
    ) -> Status;

    /// Whether PreScore would skip, where that is known without the nodes and at little cost: then it need not be called.
    fn skips(&self, _cx: &Context<'_>, _pod: &PodInfo) -> bool {
        false
    }

    /// Whether what PreScore does depends on which nodes are feasible. If not, it may be called with none.
    fn depends_on_nodes(&self) -> bool {
        true
    }
}

/// How raw scores become scores from 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalize {
    /// They are that already.
    None,
    /// In proportion to the largest raw score.
    ByMax {
        /// Whether the largest raw score is the worst.
        reverse: bool,
    },
    /// By [`ScorePlugin::normalize`], which looks at the raw score of a node and at the least and the greatest of all, but
    /// neither at how many there are nor at whose they are; [`NOT_SCORED`] is none of them.
    ByRange,
    /// By [`ScorePlugin::normalize`].
    Custom,
}

/// Scores one node.
pub trait ScorePlugin: Send + Sync + 'static {
    /// The raw score of a feasible node.
    fn score(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status>;

    /// What the raw score depends on, given the state that PreScore made.
    fn scope(&self, _state: &CycleState, _pod: &PodInfo) -> Scope {
        Scope::Node
    }

    /// Where [`scope`](Self::scope) is [`Scope::Classes`], what tells nodes with the same values of those labels apart: those of
    /// one class have the same raw score. A node's class may become another with the node object, with the pods on the
    /// node, and where [`Applied::Domain`] names a label that the scope does not; with nothing else, which the raw score may.
    /// The fewer classes there are, the less there is to score.
    fn class(&self, _state: &CycleState, _pod: &PodInfo, _node: &NodeInfo) -> i64 {
        0
    }

    /// The raw scores of all nodes at once, feasible or not: sets each to what [`score`](Self::score) would be; slots
    /// without a node may become anything. Answers `false` where it cannot, with nothing set.
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

    /// How raw scores are normalised.
    fn normalization(&self) -> Normalize {
        Normalize::None
    }

    /// Normalises, where [`Normalize::Custom`] or [`Normalize::ByRange`] says so.
    fn normalize(&self, _state: &CycleState, _pod: &PodInfo, _scores: &mut [i64]) -> Status {
        Status::success()
    }
}

/// Sets things aside for the pod on the chosen node.
pub trait ReservePlugin: Send + Sync + 'static {
    /// Sets aside.
    fn reserve(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, node: &Arc<str>) -> Status;
    /// Gives back; must do nothing when nothing was set aside.
    fn unreserve(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, node: &Arc<str>);
}

/// The answer of Permit.
#[derive(Debug)]
pub enum Permit {
    /// Go ahead.
    Allow,
    /// Hold the pod until it is allowed, rejected, or this much time has passed.
    Wait(Duration),
    /// Turn it down, or fail.
    Reject(Status),
}

/// Lets the pod go, holds it or turns it down.
pub trait PermitPlugin: Send + Sync + 'static {
    /// The answer for this pod on this node.
    fn permit(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, node: &Arc<str>) -> Permit;
}

/// Whether PreBind has anything to do.
pub enum PreFlight {
    /// Nothing.
    Skip {
        /// Whether the plugins before and after may run side by side all the same.
        allow_parallel: bool,
    },
    /// This.
    Work {
        /// Whether it may run beside its neighbours that say so too.
        allow_parallel: bool,
        /// What PreBind needs, taken from the cycle's state.
        work: Box<dyn Any + Send>,
    },
    /// The binding fails.
    Fail(Status),
}

/// Prepares the binding: the pod's volumes, devices and the like.
pub trait PreBindPlugin: Send + Sync + 'static {
    /// Whether there is work, and what it takes. Runs in the cycle.
    fn pre_flight(&self, cx: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &Arc<str>) -> PreFlight;
    /// Does the work. Runs beside later cycles.
    fn pre_bind(&self, cx: BindingContext, work: Box<dyn Any + Send>) -> BoxFuture<Status>;
}

/// Binds the pod.
pub trait BindPlugin: Send + Sync + 'static {
    /// Binds, or leaves it to the next plugin. Runs beside later cycles.
    fn bind(&self, cx: BindingContext, pod: Arc<PodInfo>, node: Arc<str>) -> BoxFuture<BindOutcome>;
}

/// Hears that the pod is bound.
pub trait PostBindPlugin: Send + Sync + 'static {
    /// The pod is bound to the node.
    fn post_bind(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, node: &Arc<str>);
}

/// Names what the plugin's answers depend on, so that equal pods can share one evaluation (upstream's SignPlugin).
pub trait SignPlugin: Send + Sync + 'static {
    /// Writes everything that PreFilter, Filter, PreScore and Score of this plugin may read of the pod, except its name,
    /// UID and priority; an error means that the pod's evaluation cannot be shared. What is derived from the pod by way
    /// of other objects may be written instead of what it is derived from.
    fn sign(&self, cx: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable>;

    /// Whether the pod has something that hardly any other pod has, so that keeping the answers about it is a waste. Then, and
    /// where it cannot be signed, the plugin is asked anew in each cycle.
    fn stands_alone(&self, _pod: &PodInfo) -> bool {
        false
    }
}

/// How a change was worked into a plugin's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The state is what PreFilter and PreScore would make now. Answers about other nodes than the one of the change are
    /// as they were.
    Here,
    /// The state is as it should be. Answers may be others about nodes that share the value of one of these labels with
    /// the node of the change.
    Domain(SmallVec<[Arc<str>; 2]>),
    /// The state is as it should be. Answers about any node may be others.
    Everywhere,
    /// The change was not worked in: PreFilter and PreScore must run again.
    Rebuild,
}

/// Keeps a plugin's PreFilter and PreScore state true across cycles. Whatever is not implemented is a rebuild, so a
/// plugin that knows nothing of this is right, only slower. Changes come one by one, in their order, each with the node
/// object as it was then; a pod update, and a pod that starts to terminate, is a removal and an addition. A node that
/// comes with pods comes without them first, and one that goes loses its pods first. `pod` is any pod of the signature.
pub trait IncrementalPlugin: Send + Sync + 'static {
    /// A pod is now on a node.
    fn pod_added(&self, _: &mut CycleState, _pod: &PodInfo, _added: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Rebuild
    }
    /// A pod is no longer on a node.
    fn pod_removed(&self, _: &mut CycleState, _pod: &PodInfo, _removed: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Rebuild
    }
    /// A node is new.
    fn node_added(&self, _: &mut CycleState, _pod: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Rebuild
    }
    /// A node is gone.
    fn node_removed(&self, _: &mut CycleState, _pod: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Rebuild
    }
    /// A node object has changed.
    fn node_changed(
        &self,
        _: &mut CycleState,
        _pod: &PodInfo,
        _old: &NodeRecord,
        _new: &NodeRecord,
    ) -> Applied {
        Applied::Rebuild
    }
    /// A node became feasible or stopped being so; of use where PreScore depends on the feasible nodes. Called after all
    /// other changes, with the node as it is by then. A node that comes is not feasible before this says so, and one that
    /// goes stops being so without a word.
    fn feasible_changed(&self, _: &mut CycleState, _pod: &PodInfo, _: &NodeInfo, _feasible: bool) -> Applied {
        Applied::Rebuild
    }
}

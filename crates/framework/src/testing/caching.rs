//! Checks that a plugin's cached answers equal fresh ones, whatever happens in the cluster.
//!
//! The check keeps PreFilter and PreScore state and all answers as the scheduler's evaluation
//! tables do: one state per [signature](crate::plugin::SignPlugin), built for one pod, updated
//! through [`IncrementalPlugin`](crate::caching::IncrementalPlugin) with another, and answers
//! recomputed only where [`Applied`](crate::caching::Applied) and [`Scope`](crate::caching::Scope)
//! require it. After each step it compares them with the answers of a new state. It also checks
//! every other promise of [`Caching`](crate::caching::Caching): columns equal single answers,
//! classes and domains score alike, `filter_never_fails`, `pre_score_skips` and
//! `normalizes_by_range` hold.
//!
//! [`Histories`] makes up histories from random pods and nodes. [`replay`] checks a history of your
//! own, for example one from a property-testing library.
//!
//! ```
//! use std::sync::Arc;
//! use supercargo_framework::caching::{Caching, Scope};
//! use supercargo_framework::plugin::{ExtensionPoints, FilterPlugin, Plugin, SignPlugin};
//! use supercargo_framework::signature::{Signer, Unsignable};
//! use supercargo_framework::testing::caching::Histories;
//! use supercargo_framework::testing::{node, pod};
//! use supercargo_framework::{Context, CycleState, NodeInfo, PodInfo, Status};
//!
//! struct SameTeam;
//!
//! impl Plugin for SameTeam {
//!     fn name(&self) -> &'static str {
//!         "SameTeam"
//!     }
//!     fn extension_points(self: Arc<Self>) -> ExtensionPoints {
//!         ExtensionPoints::new().filter(&self).sign(&self).caching(&self)
//!     }
//! }
//!
//! impl FilterPlugin for SameTeam {
//!     fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
//!         let same = pod.labels.get("team") == node.node().labels.get("team");
//!         if same { Status::success() } else { Status::unresolvable("another team") }
//!     }
//! }
//!
//! impl SignPlugin for SameTeam {
//!     fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
//!         signer.write(&pod.labels.get("team"));
//!         Ok(())
//!     }
//! }
//!
//! impl Caching for SameTeam {
//!     fn filter_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
//!         Scope::NodeObject
//!     }
//! }
//!
//! let histories = Histories::new(
//!     |random| pod("p").label("team", random.pick(&["red", "blue"])).build(),
//!     |random, name| node(name).label("team", random.pick(&["red", "blue"])).build(),
//! );
//! let kept = histories.check(Arc::new(SameTeam), 50);
//! assert!(kept > 0, "some answers were served from the cache");
//! ```

mod columns;
mod histories;
mod history;
mod table;

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::node_info::NodeInfo;
use crate::objects::Object;
use crate::plugin::ExtensionPoints;
use crate::pod::PodInfo;

pub use columns::{Columns, check_columns};
pub use histories::Histories;
use history::History;

/// The number of nodes that a history can have at a time, `n0` to `n4`.
pub const NODES: usize = 5;

/// A step of a history. Indices of nodes and pods are taken modulo their number; a step without a
/// target does nothing.
#[derive(Clone, Debug)]
pub enum Step {
    /// A pod is added to a node.
    AddPod(usize, PodInfo),
    /// A pod of a node is removed.
    RemovePod(usize, usize),
    /// A pod of a node is replaced by another.
    UpdatePod(usize, usize, PodInfo),
    /// A pod of a node starts to terminate.
    TerminatePod(usize, usize),
    /// A node is added with its pods. If a node of this name exists, its node object is updated,
    /// and its pods stay.
    SetNode(NodeInfo),
    /// A node and its pods are removed.
    RemoveNode(usize),
    /// Another plugin's verdict makes a feasible node infeasible, or the other way round.
    ToggleFeasible(usize),
    /// An object of another kind is added or updated.
    SetObject(Object),
    /// All objects of other kinds are removed.
    ClearObjects,
    /// One of the incoming pods is scheduled: its cached answers are compared with fresh ones.
    Schedule(usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddPod(node, pod) => write!(f, "add a pod {:?} to node {node}", pod.labels),
            Self::RemovePod(node, pod) => write!(f, "remove pod {pod} of node {node}"),
            Self::UpdatePod(node, pod, new) => {
                write!(f, "update pod {pod} of node {node} to {:?}", new.labels)
            }
            Self::TerminatePod(node, pod) => write!(f, "terminate pod {pod} of node {node}"),
            Self::SetNode(node) => write!(f, "set node {} {:?}", node.name(), node.node().labels),
            Self::RemoveNode(node) => write!(f, "remove node {node}"),
            Self::ToggleFeasible(node) => write!(f, "toggle feasibility of node {node}"),
            Self::SetObject(object) => write!(f, "set {} {}", object.resource, object.key),
            Self::ClearObjects => write!(f, "remove all objects"),
            Self::Schedule(pod) => write!(f, "schedule pod {pod}"),
        }
    }
}

/// A cached answer that differs from a fresh one, or a promise of the plugin that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Mismatch(String);

impl Mismatch {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Fails unless two values are equal.
fn same<T: PartialEq + fmt::Debug>(what: &str, cached: &T, fresh: &T) -> Result<(), Mismatch> {
    if cached == fresh {
        return Ok(());
    }
    Err(Mismatch(format!("{what}:\n  cached {cached:?}\n   fresh {fresh:?}")))
}

/// Fails unless this holds.
fn holds(what: &str, condition: bool) -> Result<(), Mismatch> {
    if condition { Ok(()) } else { Err(Mismatch::new(what)) }
}

/// Replays a history for one plugin, from an empty cluster, and compares cached answers with fresh
/// ones at every [`Step::Schedule`]. Returns how often cached answers were used.
///
/// Pods are only cached together if the plugin gives them equal signatures.
pub fn replay(
    points: &ExtensionPoints,
    incoming: &[PodInfo],
    steps: impl IntoIterator<Item = Step>,
) -> Result<usize, Mismatch> {
    let mut history = History::new(points);
    for step in steps {
        match step {
            Step::Schedule(pod) => history.schedule(&incoming[pod % incoming.len()])?,
            step => history.take(step),
        }
    }
    Ok(history.reused())
}

/// Pods of one template: the first, and others with its spec and namespace. Signatures of such pods
/// are often equal.
fn of_one_template(first: PodInfo, others: impl IntoIterator<Item = crate::labels::Labels>) -> Vec<PodInfo> {
    let mut pods = vec![first];
    for (i, labels) in others.into_iter().enumerate() {
        let name: Arc<str> = format!("other-{i}").into();
        let uid = (&*name).into();
        pods.push(PodInfo { name, uid, labels, ..pods[0].clone() });
    }
    pods
}

//! Extension points that score feasible nodes.

use crate::context::Context;
use crate::cycle_state::CycleState;
use crate::node_index::NodeIndex;
use crate::node_info::NodeInfo;
use crate::pod::PodInfo;
use crate::status::Status;

/// The highest score a plugin returns.
pub const MAX_NODE_SCORE: i64 = 100;

/// Runs once per pod with the feasible nodes, before Score.
///
/// ```
/// use supercargo_framework::plugin::PreScorePlugin;
/// use supercargo_framework::{Context, CycleState, NodeIndex, PodInfo, Status};
///
/// struct OnlyBatch;
///
/// impl PreScorePlugin for OnlyBatch {
///     fn pre_score(&self, _: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &[NodeIndex]) -> Status {
///         let is_batch = pod.labels.get("batch").is_some();
///         if is_batch { Status::success() } else { Status::skip() }
///     }
/// }
/// ```
pub trait PreScorePlugin: Send + Sync + 'static {
    /// Prepares state that Score reads. `Skip` skips the plugin's Score; it must not depend on the
    /// nodes.
    fn pre_score(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &[NodeIndex],
    ) -> Status;
}

/// How raw scores become scores from 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalize {
    /// Raw scores are in that range already.
    None,
    /// In proportion to the largest raw score.
    ByMax {
        /// Whether the largest raw score is the worst.
        reverse: bool,
    },
    /// By [`ScorePlugin::normalize`].
    Custom,
}

/// Scores one node.
///
/// ```
/// use supercargo_framework::plugin::{Normalize, ScorePlugin};
/// use supercargo_framework::{Context, CycleState, NodeInfo, PodInfo, Status};
///
/// struct FewestPods;
///
/// impl ScorePlugin for FewestPods {
///     fn score(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, node: &NodeInfo) -> Result<i64, Status> {
///         Ok(node.pods().len() as i64)
///     }
///     fn normalization(&self) -> Normalize {
///         Normalize::ByMax { reverse: true }
///     }
/// }
/// ```
pub trait ScorePlugin: Send + Sync + 'static {
    /// The raw score of a feasible node.
    fn score(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status>;

    /// How raw scores are normalised.
    fn normalization(&self) -> Normalize {
        Normalize::None
    }

    /// Normalises raw scores. Called for [`Normalize::Custom`].
    fn normalize(&self, _state: &CycleState, _pod: &PodInfo, _scores: &mut [i64]) -> Status {
        Status::success()
    }
}

//! Prefers the placements on which most pods of a group get nodes.

use std::sync::Arc;

use supercargo_framework::plugin::{
    Assignments, ExtensionPoints, GroupInfo, MAX_NODE_SCORE, Placement, PlacementScorePlugin,
};
use supercargo_framework::{Context, Plugin, Status};

/// The plugin's name.
pub const NAME: &str = "PodGroupPodsCount";

#[derive(Default)]
pub(crate) struct PodGroupPodsCount;

impl Plugin for PodGroupPodsCount {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().placement_score(&self)
    }
}

impl PlacementScorePlugin for PodGroupPodsCount {
    /// The number of pods, those on nodes included.
    fn score_placement(
        &self,
        _: &Context<'_>,
        group: GroupInfo<'_>,
        _: &Placement,
        proposed: &Assignments,
    ) -> Result<i64, Status> {
        Ok((group.scheduled.len() + proposed.len()) as i64)
    }

    /// In proportion to the greatest number, not to the group's minimum.
    fn normalize_placement_scores(&self, scores: &mut [i64]) -> Result<(), Status> {
        match scores.iter().max() {
            Some(&most) if most > 0 => {
                for score in scores {
                    *score = *score * MAX_NODE_SCORE / most;
                }
                Ok(())
            }
            _ => Err(Status::error("no pods from pod group are assigned to any of the candidate placements")),
        }
    }
}

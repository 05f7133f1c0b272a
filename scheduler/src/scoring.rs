//! From feasible nodes to the best one.

use smallvec::SmallVec;
use supercargo_framework::plugin::{MAX_NODE_SCORE, Normalize};
use supercargo_framework::{CycleState, NodeIndex, PodInfo};

use crate::cycle::Cycle;
use crate::failure::FailureKind;
use crate::profile::{Named, Scorer};

impl Cycle<'_> {
    /// The feasible node with the highest total score; among equals the first in visiting order, unless an extender has
    /// scored them.
    pub(crate) fn best(
        &self,
        state: &mut CycleState,
        feasible: &[NodeIndex],
    ) -> Result<NodeIndex, FailureKind> {
        let mut totals = self.scores(state, feasible)?;
        let breakers = self.extend_scores(feasible, &mut totals);
        let rank = |i: usize| (totals[i], breakers.get(i));
        let mut best = 0;
        for i in 1..totals.len() {
            if rank(i) > rank(best) {
                best = i;
            }
        }
        Ok(feasible[best])
    }

    /// The weighted sum of all plugins' normalised scores, per feasible node.
    pub(crate) fn scores(
        &self,
        state: &mut CycleState,
        feasible: &[NodeIndex],
    ) -> Result<Vec<i64>, FailureKind> {
        if self.profile.score.is_empty() && !self.extenders.are_configured {
            return Ok(vec![1; feasible.len()]);
        }
        let skipped = self.pre_score(state, feasible)?;
        let mut totals = vec![0; feasible.len()];
        let mut raw = Vec::with_capacity(feasible.len());
        for scorer in self.profile.score.iter().filter(|scorer| !skipped.contains(&scorer.name)) {
            self.running.set("Score", scorer.name);
            raw.clear();
            for index in feasible {
                raw.push(self.raw_score(scorer, state, *index)?);
            }
            normalize(scorer, state, self.pod, &mut raw).map_err(FailureKind::Internal)?;
            for (total, score) in totals.iter_mut().zip(&raw) {
                *total += score * scorer.weight;
            }
        }
        Ok(totals)
    }

    fn raw_score(&self, scorer: &Scorer, state: &CycleState, node: NodeIndex) -> Result<i64, FailureKind> {
        let score = scorer.plugin.score(self.cx, state, self.pod, self.cx.node(node));
        score.map_err(|status| {
            let (name, message) = (scorer.name, status.message());
            FailureKind::Internal(format!("running Score plugins: plugin {name:?} failed with: {message}"))
        })
    }

    /// Runs PreScore; returns the plugins whose Score is left out.
    fn pre_score(
        &self,
        state: &mut CycleState,
        feasible: &[NodeIndex],
    ) -> Result<SmallVec<[&'static str; 16]>, FailureKind> {
        let mut skipped = SmallVec::new();
        for Named { name, plugin } in &self.profile.pre_score {
            self.running.set("PreScore", name);
            let status = plugin.pre_score(self.cx, state, self.pod, feasible);
            if status.is_skip() {
                skipped.push(*name);
            } else if !status.is_success() {
                let message = format!("running PreScore plugin {name:?}: {}", status.message());
                return Err(FailureKind::Internal(message));
            }
        }
        Ok(skipped)
    }
}

/// Normalises a plugin's raw scores and checks the result.
fn normalize(scorer: &Scorer, state: &CycleState, pod: &PodInfo, scores: &mut [i64]) -> Result<(), String> {
    match scorer.plugin.normalization() {
        Normalize::None => {}
        Normalize::ByMax { reverse } => by_max(scores, reverse),
        Normalize::ByRange | Normalize::Custom => {
            let status = scorer.plugin.normalize(state, pod, scores);
            if !status.is_success() {
                return Err(format!(
                    "running Normalize on Score plugins: plugin {:?} failed with: {}",
                    scorer.name,
                    status.message()
                ));
            }
        }
    }
    match scores.iter().find(|score| !(0..=MAX_NODE_SCORE).contains(*score)) {
        None => Ok(()),
        Some(score) => Err(format!(
            "applying score defaultWeights on Score plugins: plugin {:?} returns an invalid score {score}, it should \
             in the range of [0, {MAX_NODE_SCORE}] after normalizing",
            scorer.name
        )),
    }
}

/// In proportion to the largest score (upstream's DefaultNormalizeScore).
pub(crate) fn by_max(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let proportional = if max == 0 { *score } else { MAX_NODE_SCORE * *score / max };
        *score = if reverse { MAX_NODE_SCORE - proportional } else { proportional };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_proportional_to_the_largest() {
        let cases = [
            (vec![1, 2, 3, 4], false, vec![25, 50, 75, 100]),
            (vec![1, 2, 3, 4], true, vec![75, 50, 25, 0]),
            (vec![0, 0], false, vec![0, 0]),
            (vec![0, 0], true, vec![100, 100]),
            (vec![1000, 10, 1], false, vec![100, 1, 0]),
        ];
        for (mut scores, reverse, expected) in cases {
            by_max(&mut scores, reverse);
            assert_eq!(scores, expected);
        }
    }
}

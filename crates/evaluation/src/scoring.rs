//! Scores feasible nodes and chooses the best one.

use smallvec::SmallVec;
use supercargo_framework::plugin::{MAX_NODE_SCORE, Normalize};
use supercargo_framework::{Code, CycleState, NodeIndex, PodInfo, Status, Text};

use crate::cycle::Cycle;
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::observer::{Evaluated, PluginSet, Point};
use supercargo_runtime::profile::{Named, Scorer};

/// A plugin's scores of the nodes that fit.
#[derive(Clone, Debug)]
pub struct PluginScores {
    /// The plugin.
    pub plugin: Text,
    /// Its weight.
    pub weight: i64,
    /// The raw score of each node, and the normalised one: 0 to 100. Times the weight, it counts.
    pub scores: Vec<(i64, i64)>,
}

impl Cycle<'_> {
    /// The feasible node with the highest total score. Ties go to the first in visiting order,
    /// unless an extender has scored the nodes.
    pub fn best(&self, state: &mut CycleState, feasible: &[NodeIndex]) -> Result<NodeIndex, FailureKind> {
        let mut totals = self.scores(state, feasible)?;
        let breakers = self.extenders.score(feasible, &mut totals);
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
    pub fn scores(&self, state: &mut CycleState, feasible: &[NodeIndex]) -> Result<Vec<i64>, FailureKind> {
        if self.profile.score.is_empty() && !self.extenders.are_configured {
            return Ok(vec![1; feasible.len()]);
        }
        let skipped = self.pre_score(state, feasible)?;
        let totals = self.weighted_sums(state, feasible, &skipped);
        self.plugins.timer.point(Point::Score, if totals.is_ok() { Code::Success } else { Code::Error });
        totals
    }

    fn weighted_sums(
        &self,
        state: &CycleState,
        feasible: &[NodeIndex],
        skipped: &[&'static str],
    ) -> Result<Vec<i64>, FailureKind> {
        let mut totals = vec![0; feasible.len()];
        let mut scores = Vec::with_capacity(feasible.len());
        let mut evaluated = PluginSet::default();
        for (place, scorer) in self.profile.score.iter().enumerate() {
            if skipped.contains(&scorer.name) {
                continue;
            }
            evaluated = evaluated.and(PluginSet::one(place));
            self.raw_scores(scorer, state, feasible, &mut scores)?;
            self.normalize(scorer, state, &mut scores)?;
            for (total, score) in totals.iter_mut().zip(&scores) {
                *total += score * scorer.weight;
            }
        }
        self.note_evaluated(Evaluated { score: evaluated, ..Evaluated::default() });
        Ok(totals)
    }

    /// Each plugin's scores of the feasible nodes, as raw and normalised ones.
    pub fn score_table(
        &self,
        state: &mut CycleState,
        feasible: &[NodeIndex],
    ) -> Result<Vec<PluginScores>, FailureKind> {
        let skipped = self.pre_score(state, feasible)?;
        let scorers = self.profile.score.iter().filter(|scorer| !skipped.contains(&scorer.name));
        let table = scorers.map(|scorer| {
            let mut normalized = Vec::with_capacity(feasible.len());
            self.raw_scores(scorer, state, feasible, &mut normalized)?;
            let raw = normalized.clone();
            self.normalize(scorer, state, &mut normalized)?;
            let scores = raw.into_iter().zip(normalized).collect();
            Ok(PluginScores { plugin: scorer.name.into(), weight: scorer.weight, scores })
        });
        table.collect()
    }

    /// Replaces `scores` by the plugin's raw ones.
    fn raw_scores(
        &self,
        scorer: &Scorer,
        state: &CycleState,
        feasible: &[NodeIndex],
        scores: &mut Vec<i64>,
    ) -> Result<(), FailureKind> {
        scores.clear();
        for (nth, index) in feasible.iter().enumerate() {
            scores.push(self.raw_score(nth, scorer, state, *index)?);
        }
        Ok(())
    }

    fn normalize(&self, scorer: &Scorer, state: &CycleState, scores: &mut [i64]) -> Result<(), FailureKind> {
        let call = || normalize(scorer, state, self.pod, scores);
        let normalized = self.plugins.call(Point::ScoreExtensionNormalize, scorer.name, call, code);
        normalized.map_err(FailureKind::Internal)
    }

    fn raw_score(
        &self,
        nth: usize,
        scorer: &Scorer,
        state: &CycleState,
        node: NodeIndex,
    ) -> Result<i64, FailureKind> {
        let call = || scorer.plugin.score(self.cx, state, self.pod, self.cx.node(node));
        let score = self.plugins.call_for_node(nth, Point::Score, scorer.name, call, code);
        score.map_err(|status| {
            let (name, message) = (scorer.name, status.message());
            FailureKind::Internal(format!("running Score plugins: plugin {name:?} failed with: {message}"))
        })
    }

    /// Runs PreScore; returns the plugins whose Score is skipped.
    fn pre_score(
        &self,
        state: &mut CycleState,
        feasible: &[NodeIndex],
    ) -> Result<SmallVec<[&'static str; 16]>, FailureKind> {
        let mut skipped = SmallVec::new();
        let mut evaluated = PluginSet::default();
        self.plugins.timer.restart();
        for (place, Named { name, plugin }) in self.profile.pre_score.iter().enumerate() {
            let call = || plugin.pre_score(self.cx, state, self.pod, feasible);
            let status = self.plugins.call(Point::PreScore, name, call, Status::code);
            if status.is_skip() {
                skipped.push(*name);
                continue;
            }
            evaluated = evaluated.and(PluginSet::one(place));
            if !status.is_success() {
                self.plugins.timer.point(Point::PreScore, status.code());
                let message = format!("running PreScore plugin {name:?}: {}", status.message());
                return Err(FailureKind::Internal(message));
            }
        }
        self.note_evaluated(Evaluated { pre_score: evaluated, ..Evaluated::default() });
        self.plugins.timer.point(Point::PreScore, Code::Success);
        Ok(skipped)
    }
}

fn code<T, E>(answer: &Result<T, E>) -> Code {
    if answer.is_ok() { Code::Success } else { Code::Error }
}

/// Normalises a plugin's raw scores and checks the result.
fn normalize(scorer: &Scorer, state: &CycleState, pod: &PodInfo, scores: &mut [i64]) -> Result<(), String> {
    match scorer.plugin.normalization() {
        Normalize::None => {}
        Normalize::ByMax { reverse } => by_max(scores, reverse),
        Normalize::Custom => {
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
    check_range(Point::Score, scorer.name, scores)
}

/// Checks that all scores of a plugin are in range.
pub fn check_range(point: Point, plugin: &str, scores: &[i64]) -> Result<(), String> {
    match scores.iter().find(|score| !(0..=MAX_NODE_SCORE).contains(*score)) {
        None => Ok(()),
        Some(score) => Err(format!(
            "applying score defaultWeights on {} plugins: plugin {plugin:?} returns an invalid score {score}, it should \
             in the range of [0, {MAX_NODE_SCORE}] after normalizing",
            point.as_str()
        )),
    }
}

/// Scales scores to the largest one (upstream's DefaultNormalizeScore).
pub fn by_max(scores: &mut [i64], reverse: bool) {
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

//! From raw scores to scores from 0 to 100.

use supercargo_framework::plugin::{MAX_NODE_SCORE, Normalize};
use supercargo_framework::{CycleState, PodInfo};

use crate::profile::Scorer;

/// Normalises a plugin's raw scores and checks the result.
pub(crate) fn normalize(
    scorer: &Scorer,
    state: &CycleState,
    pod: &PodInfo,
    scores: &mut [i64],
) -> Result<(), String> {
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
fn by_max(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let proportional = if max == 0 {
            *score
        } else {
            MAX_NODE_SCORE * *score / max
        };
        *score = if reverse {
            MAX_NODE_SCORE - proportional
        } else {
            proportional
        };
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

//! Scores in proportion to the greatest.

use supercargo_framework::plugin::MAX_NODE_SCORE;

/// The node is not feasible, so its score does not count.
const ABSENT: i64 = i64::MIN;

/// What [`Normalize::ByMax`](supercargo_framework::plugin::Normalize) needs, kept while single raw scores change.
#[derive(Debug)]
pub(super) struct Proportional {
    pub(super) judge: usize,
    reverse: bool,
    greatest: i64,
    /// How many feasible nodes have it.
    with_greatest: usize,
    /// By node, the raw score of a feasible one; nothing as long as all are 0, which is the rule.
    raw: Vec<i64>,
}

impl Proportional {
    pub(super) fn new(judge: usize, reverse: bool, rows: &[i64], feasible: &[bool]) -> Self {
        let of_feasible = |(raw, feasible): (&i64, &bool)| if *feasible { *raw } else { ABSENT };
        let greatest = rows.iter().zip(feasible).map(of_feasible).max().filter(|max| *max != ABSENT);
        let greatest = greatest.unwrap_or(0);
        let is_flat =
            greatest == 0 && rows.iter().zip(feasible).all(|(raw, feasible)| !feasible || *raw == 0);
        let raw: Vec<i64> =
            if is_flat { Vec::new() } else { rows.iter().zip(feasible).map(of_feasible).collect() };
        let with_greatest = raw.iter().filter(|raw| **raw == greatest).count();
        Self { judge, reverse, greatest, with_greatest, raw }
    }

    /// The score of a raw score (upstream's DefaultNormalizeScore).
    pub(super) fn score(&self, raw: i64) -> i64 {
        let share = if self.greatest == 0 { raw } else { MAX_NODE_SCORE.wrapping_mul(raw) / self.greatest };
        if self.reverse { MAX_NODE_SCORE - share } else { share }
    }

    /// Takes the raw score of a node, `None` when it is not feasible; `false` when the greatest is another now.
    pub(super) fn set(&mut self, slot: usize, raw: Option<i64>) -> bool {
        if self.raw.is_empty() {
            return raw.is_none_or(|raw| raw == 0);
        }
        let raw = raw.unwrap_or(ABSENT);
        if self.raw.len() <= slot {
            self.raw.resize(slot + 1, ABSENT);
        }
        let old = std::mem::replace(&mut self.raw[slot], raw);
        self.with_greatest += usize::from(raw == self.greatest);
        self.with_greatest -= usize::from(old == self.greatest);
        raw <= self.greatest && self.with_greatest > 0
    }

    /// How many bytes it takes, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.raw.capacity() * size_of::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scoring::by_max;

    proptest! {
        /// As long as it says that the greatest is the same, scores are what normalising anew gives.
        #[test]
        fn scores_are_as_normalised_anew(
            mut rows in proptest::collection::vec(0..4_i64, 1..8),
            mut feasible in proptest::collection::vec(any::<bool>(), 8),
            reverse in any::<bool>(),
            changes in proptest::collection::vec((0..8_usize, 0..5_i64, any::<bool>()), 0..8),
        ) {
            feasible.truncate(rows.len());
            let mut kept = Proportional::new(0, reverse, &rows, &feasible);
            for (slot, raw, now_feasible) in changes {
                let slot = slot % rows.len();
                (rows[slot], feasible[slot]) = (raw, now_feasible);
                if !kept.set(slot, now_feasible.then_some(raw)) {
                    kept = Proportional::new(0, reverse, &rows, &feasible);
                }
                let counted = rows.iter().zip(&feasible).filter(|(_, feasible)| **feasible);
                let raw: Vec<i64> = counted.map(|(raw, _)| *raw).collect();
                let mut scores = raw.clone();
                by_max(&mut scores, reverse);
                prop_assert_eq!(raw.iter().map(|raw| kept.score(*raw)).collect::<Vec<_>>(), scores);
            }
        }
    }
}

//! The greatest of many numbers, updated one number at a time.

/// The number of a leaf that is out.
pub(super) const OUT: i64 = i64::MIN;

/// The number of leaves, or of winners, compared at once. A run of this length takes a few vector
/// instructions.
const FAN: usize = 64;

/// A tournament of numbered leaves. The winner is the leaf with the greatest number, the first
/// among equals.
#[derive(Clone, Debug, Default)]
pub(super) struct Tournament {
    /// The leaves, then the winning numbers of each run of the level below, up to a level of one
    /// run.
    levels: Vec<Vec<i64>>,
}

fn greatest(run: &[i64]) -> i64 {
    run.iter().copied().fold(OUT, i64::max)
}

impl Tournament {
    pub(super) fn new(leaves: Vec<i64>) -> Self {
        let mut levels = vec![leaves];
        while let Some(last) = levels.last().filter(|last| last.len() > FAN) {
            let next = last.chunks(FAN).map(greatest).collect();
            levels.push(next);
        }
        Self { levels }
    }

    /// The leaves, by number.
    pub(super) fn leaves(&self) -> &[i64] {
        self.levels.first().map_or(&[], Vec::as_slice)
    }

    pub(super) fn set(&mut self, leaf: usize, number: i64) {
        let mut at = leaf;
        let mut number = number;
        for level in 0..self.levels.len() {
            if std::mem::replace(&mut self.levels[level][at], number) == number {
                return;
            }
            at /= FAN;
            let below = &self.levels[level];
            number = greatest(&below[at * FAN..below.len().min((at + 1) * FAN)]);
        }
    }

    /// The greatest number; [`OUT`] if every leaf is out, or there is none.
    pub(super) fn best(&self) -> i64 {
        self.levels.last().map_or(OUT, |top| greatest(top))
    }

    /// The winner's leaf and number; `None` if every leaf is out.
    pub(super) fn winner(&self) -> Option<(usize, i64)> {
        let best = self.best();
        if best == OUT {
            return None;
        }
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let run = &level[at * FAN..level.len().min((at + 1) * FAN)];
            at = at * FAN + run.iter().position(|number| *number == best)?;
        }
        Some((at, best))
    }

    /// The size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.levels.iter().map(|level| level.capacity() * size_of::<i64>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Leaves of tournaments with one to three levels.
    fn leaves() -> impl Strategy<Value = Vec<i64>> {
        let sizes = prop_oneof![10 => 0..10 * FAN, 1 => 0..3 * FAN * FAN];
        let leaf = || prop_oneof![Just(OUT), 0..5_i64];
        sizes.prop_flat_map(move |size| proptest::collection::vec(leaf(), size))
    }

    proptest! {
        #[test]
        fn the_winner_is_the_first_of_the_greatest(
            leaves in leaves(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), prop_oneof![Just(OUT), 0..6_i64]), 0..50),
        ) {
            let mut naive = leaves.clone();
            let mut tournament = Tournament::new(leaves);
            let first_greatest = |numbers: &[i64]| {
                let best = numbers.iter().copied().max().filter(|best| *best != OUT)?;
                Some((numbers.iter().position(|number| *number == best)?, best))
            };
            prop_assert_eq!(tournament.winner(), first_greatest(&naive));
            for (leaf, number) in changes.into_iter().filter(|_| !naive.is_empty()).collect::<Vec<_>>() {
                let leaf = leaf.index(naive.len());
                naive[leaf] = number;
                tournament.set(leaf, number);
                prop_assert_eq!(tournament.winner(), first_greatest(&naive));
            }
        }
    }
}

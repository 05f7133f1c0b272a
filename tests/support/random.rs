//! Repeatable random numbers.

use supercargo_framework::testing::SplitMix64;

/// A stream of numbers that its seed determines, and choices by them.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; 0 when that is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound.max(1))
    }

    /// A number in `from..=to`.
    pub(crate) fn between(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// `true` with this probability in percent.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent as usize
    }

    /// One of these, which must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Each of these with this probability in percent, in their order.
    pub(crate) fn some<T: Clone>(&mut self, percent: u32, choices: &[T]) -> Vec<T> {
        choices.iter().filter(|_| self.chance(percent)).cloned().collect()
    }

    /// Some of these, and at least one.
    pub(crate) fn at_least_one<T: Clone>(&mut self, percent: u32, choices: &[T]) -> Vec<T> {
        let mut some = self.some(percent, choices);
        if some.is_empty() {
            some.push(self.pick(choices).clone());
        }
        some
    }

    /// One of these by weight; `None` when all weights are 0.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(u32, T)]) -> Option<T> {
        let total: u32 = choices.iter().map(|(weight, _)| weight).sum();
        let mut left = u32::try_from(self.below(total as usize)).unwrap_or(0);
        choices.iter().find_map(|(weight, choice)| {
            if left < *weight {
                return Some(*choice);
            }
            left -= weight;
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_determines_stream_and_every_choice_occurs() {
        let stream = |seed| {
            let mut random = Random::new(seed);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(stream(7), stream(7));
        assert_ne!(stream(7), stream(8));
        let mut random = Random::new(1);
        let mut seen = [0; 4];
        for _ in 0..1000 {
            seen[*random.pick(&[0, 1, 2])] += 1;
            seen[random.weighted(&[(0, 2), (1, 3)]).unwrap()] += 1;
            assert!((3..=5).contains(&random.between(3, 5)));
        }
        assert!(seen[..3].iter().all(|count| *count > 200));
        assert_eq!(seen[3], 1000);
        assert_eq!(random.weighted::<u8>(&[(0, 1)]), None);
    }
}

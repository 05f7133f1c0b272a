//! Pseudo-random numbers that are the same on every machine (SplitMix64).

/// A pseudo-random number generator.
pub(crate) struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The modulo bias is negligible for small bounds.
        self.next().checked_rem(bound).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.below(1000), random.below(1000), random.below(1000), random.below(0)]
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        assert_eq!(numbers(3)[3], 0);
    }
}

//! Repeatable random numbers: SplitMix64.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of numbers that its seed determines.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        (number % bound as u64) as usize
    }
}

/// Scatters numbers: equal inputs give equal outputs, close inputs distant ones.
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

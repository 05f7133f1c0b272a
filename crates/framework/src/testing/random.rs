//! A small random number generator for reproducible tests.

/// SplitMix64: fast, tiny, and the same sequence for a seed on every platform. Not for secrets.
///
/// ```
/// use supercargo_framework::testing::SplitMix64;
///
/// let mut random = SplitMix64::new(7);
/// assert!(random.below(10) < 10);
/// assert_eq!(SplitMix64::new(7).next_u64(), SplitMix64::new(7).next_u64());
/// ```
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// What each call adds to the seed.
    pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next_u64() % limit as u64) as usize
    }

    /// `true` in `percent` of all calls.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of these choices; there must be one.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

//! Repeatable random numbers.

use supercargo_framework::testing::SplitMix64;

/// A stream of numbers that its seed determines.
pub type Random = SplitMix64;

/// Scatters numbers: equal inputs give equal outputs, close inputs distant ones.
pub fn mix(number: u64) -> u64 {
    SplitMix64::new(number).next_u64()
}

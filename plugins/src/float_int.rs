//! Integer arithmetic on floating-point numbers, for loops that can be vectorised.
//!
//! Processors divide, compare and convert several floating-point numbers at a time, but mostly not
//! 64-bit integers. Up to 2^52 both represent all integers, and results here equal those of integer
//! arithmetic.

/// 2^52: from here to 2^53 the lowest bit of a floating-point number is worth one.
const ONES: f64 = 4_503_599_627_370_496.0;

/// The maximum amount: 100 times as much, and quotients up to 100, are still exact.
pub(crate) const MOST: i64 = (1 << 45) - 1;

/// Whether all amounts are from 0 to [`MOST`].
pub(crate) fn are_small(amounts: &[i64]) -> bool {
    amounts.iter().fold(0, |all, amount| all | amount) & !MOST == 0
}

/// An amount from 0 to 2^52.
pub(crate) fn float(amount: i64) -> f64 {
    f64::from_bits(amount as u64 | ONES.to_bits()) - ONES
}

/// The integer part of a number from 0 to 2^51.
pub(crate) fn floor(number: f64) -> f64 {
    let nearest = (number + ONES) - ONES;
    if nearest > number { nearest - 1.0 } else { nearest }
}

/// An integer from 0 to 2^51.
pub(crate) fn integer(whole: f64) -> i64 {
    ((whole + ONES).to_bits() ^ ONES.to_bits()) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Amounts of all magnitudes.
    fn amount() -> impl Strategy<Value = i64> {
        (0..45_u32, 0..=MOST).prop_map(|(shift, amount)| amount >> shift)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn amounts_round_trip(amount in amount()) {
            prop_assert_eq!(integer(float(amount)), amount);
            prop_assert_eq!(float(amount).to_bits(), (amount as f64).to_bits());
        }

        #[test]
        fn quotients_are_truncated_like_integers(capacity in amount(), part in 0.0..1.0_f64, percent in 0..101_i64, beside in -1..2_i64) {
            let capacity = capacity.max(1);
            let anywhere = (capacity as f64 * part) as i64;
            let on_the_edge = capacity * percent / 100 + beside;
            for amount in [anywhere, on_the_edge.clamp(0, capacity)] {
                let quotient = floor(float(amount) * 100.0 / float(capacity));
                prop_assert_eq!(integer(quotient), amount * 100 / capacity, "{} of {}", amount, capacity);
            }
        }
    }

    #[test]
    fn only_amounts_in_range_are_small() {
        for (amounts, expected) in [
            (&[][..], true),
            (&[0, MOST], true),
            (&[0, MOST + 1], false),
            (&[-1, 0], false),
            (&[5, i64::MIN], false),
            (&[i64::MAX], false),
        ] {
            assert_eq!(are_small(amounts), expected, "{amounts:?}");
        }
    }
}

//! Whole numbers in floating point, for loops that a compiler can vectorise.
//!
//! Processors divide, compare and convert floating point numbers several at a time, and 64-bit integers mostly not. Up to
//! 2^52 both hold the same whole numbers. What is computed here is exactly what integer arithmetic makes of them.

/// 2^52: from here to 2^53 the lowest bit of a floating point number counts ones.
const ONES: f64 = 4_503_599_627_370_496.0;

/// Amounts from 0 to this are handled as floating point numbers: 100 times as much, and a quotient of two that is up to
/// 100, are then still exact.
pub(crate) const MOST: i64 = (1 << 45) - 1;

/// Whether all amounts are from 0 to [`MOST`].
pub(crate) fn are_small(amounts: &[i64]) -> bool {
    amounts.iter().fold(0, |all, amount| all | amount) & !MOST == 0
}

/// An amount from 0 to 2^52.
pub(crate) fn float(amount: i64) -> f64 {
    f64::from_bits(amount as u64 | ONES.to_bits()) - ONES
}

/// The whole part of a number from 0 to 2^51.
pub(crate) fn floor(number: f64) -> f64 {
    let nearest = (number + ONES) - ONES;
    if nearest > number { nearest - 1.0 } else { nearest }
}

/// A whole number from 0 to 2^51.
pub(crate) fn integer(whole: f64) -> i64 {
    ((whole + ONES).to_bits() ^ ONES.to_bits()) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Amounts of all magnitudes, and those beside a multiple of another.
    fn amount() -> impl Strategy<Value = i64> {
        (0..45_u32, 0..=MOST).prop_map(|(shift, amount)| amount >> shift)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn amounts_come_and_go(amount in amount()) {
            prop_assert_eq!(integer(float(amount)), amount);
            prop_assert_eq!(float(amount).to_bits(), (amount as f64).to_bits());
        }

        #[test]
        fn quotients_are_cut_as_integers_are(capacity in amount(), part in 0.0..1.0_f64, percent in 0..101_i64, beside in -1..2_i64) {
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

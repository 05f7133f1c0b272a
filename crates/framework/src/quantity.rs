//! Kubernetes quantities (`100m`, `1.5Gi`, `12e6`) as whole numbers, read without an allocation.

use std::cmp::Ordering;

use thiserror::Error;

/// The error of an invalid quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// Not `<signed number><suffix>`.
    #[error("quantity {0:?} is not a number with an optional suffix such as m, k, M, Ki, Mi or e3")]
    Malformed(String),
}

/// The value in whole units, rounded up, saturating at the ends of `i64` (upstream's
/// `Quantity.Value`).
pub fn value(text: &str) -> Result<i64, QuantityError> {
    scaled(text, 0)
}

/// The value in thousandths, rounded up, saturating (upstream's `Quantity.MilliValue`).
pub fn milli_value(text: &str) -> Result<i64, QuantityError> {
    scaled(text, 3)
}

/// `text` × 10^`shift`, rounded up (away from zero for positives, towards it for negatives).
fn scaled(text: &str, shift: i32) -> Result<i64, QuantityError> {
    let malformed = || QuantityError::Malformed(text.chars().take(64).collect());
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return Err(malformed());
    }
    let (binary, decimal) = scale_of(suffix).ok_or_else(malformed)?;
    let fraction = fraction.trim_end_matches('0');
    let digits = Digits::new(whole, fraction);
    let exponent =
        decimal.saturating_add(shift).saturating_sub(i32::try_from(fraction.len()).unwrap_or(i32::MAX));
    Ok(digits.times_power_of_two_and_ten(binary, exponent, negative))
}

/// The suffix as (power of two, power of ten).
fn scale_of(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // A longer exponent is out of range either way.
            (
                0,
                exponent.parse().unwrap_or(if exponent.starts_with('-') {
                    i32::MIN / 2
                } else {
                    i32::MAX / 2
                }),
            )
        }
    })
}

/// Significant digits; more than fit into `u128` are flagged as an overflow.
struct Digits {
    value: u128,
    dropped: i32,
    inexact: bool,
}

impl Digits {
    fn new(whole: &str, fraction: &str) -> Self {
        let mut digits = Self { value: 0, dropped: 0, inexact: false };
        for digit in whole.bytes().chain(fraction.bytes()).map(|b| u128::from(b - b'0')) {
            // Leave room for the binary suffix and a rounding step.
            if digits.value < 10_u128.pow(18) {
                digits.value = digits.value * 10 + digit;
            } else {
                digits.dropped += 1;
                digits.inexact |= digit != 0;
            }
        }
        digits
    }

    fn times_power_of_two_and_ten(self, binary: u32, exponent: i32, negative: bool) -> i64 {
        let exponent = exponent.saturating_add(self.dropped);
        let mut value = self.value << binary;
        let mut inexact = self.inexact;
        match exponent.cmp(&0) {
            Ordering::Greater => {
                let factor = u32::try_from(exponent).ok().and_then(|e| 10_u128.checked_pow(e));
                value = match (value, factor) {
                    (0, _) => 0,
                    (v, Some(f)) => v.saturating_mul(f),
                    (_, None) => u128::MAX,
                };
            }
            Ordering::Less => {
                // Beyond u128 the divisor exceeds any value, so the quotient is below one.
                let divisor = 10_u128.checked_pow(exponent.unsigned_abs()).unwrap_or(u128::MAX);
                inexact |= !value.is_multiple_of(divisor);
                value /= divisor;
            }
            Ordering::Equal => {}
        }
        let rounded = if inexact && !negative { value.saturating_add(1) } else { value };
        let magnitude = i64::try_from(rounded).unwrap_or(i64::MAX);
        if negative { -magnitude } else { magnitude }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_round_up_to_whole_units_and_thousandths() {
        let cases = [
            ("0", 0, 0),
            ("1", 1, 1000),
            ("100m", 1, 100),
            ("1100m", 2, 1100),
            ("1.5", 2, 1500),
            ("0.1", 1, 100),
            (".5", 1, 500),
            ("5.", 5, 5000),
            ("1n", 1, 1),
            ("1u", 1, 1),
            ("2k", 2000, 2_000_000),
            ("1Ki", 1024, 1_024_000),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("12e6", 12_000_000, 12_000_000_000),
            ("12E6", 12_000_000, 12_000_000_000),
            ("1E", 1_000_000_000_000_000_000, i64::MAX),
            ("5e-1", 1, 500),
            ("-1", -1, -1000),
            ("-1.5", -1, -1500),
            ("+3", 3, 3000),
            ("7Ei", 8_070_450_532_247_928_832, i64::MAX),
            ("8Ei", i64::MAX, i64::MAX),
            ("1e99", i64::MAX, i64::MAX),
            ("0e99", 0, 0),
            ("1e-99", 1, 1),
            ("0001", 1, 1000),
            ("99999999999999999999999999999999999999999", i64::MAX, i64::MAX),
        ];
        for (text, whole, milli) in cases {
            assert_eq!(value(text), Ok(whole), "{text}");
            assert_eq!(milli_value(text), Ok(milli), "{text} in thousandths");
        }
    }

    #[test]
    fn invalid_quantities_are_errors() {
        for text in ["", "-", "m", "1x", "1 ", " 1", "1.2.3", "1Kib", "1e", "1e+", "1ee3", "NaN", "inf", "١"]
        {
            assert!(value(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC{0,40}") {
            let _ = (value(&text), milli_value(&text));
        }

        #[test]
        fn whole_numbers_are_exact(n in any::<i64>()) {
            prop_assume!(n > i64::MIN);
            prop_assert_eq!(value(&n.to_string()), Ok(n));
        }

        #[test]
        fn thousandths_are_exact(n in -1_000_000_000_000_i64..1_000_000_000_000) {
            prop_assert_eq!(milli_value(&format!("{n}m")), Ok(n));
        }
    }
}

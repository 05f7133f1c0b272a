//! Sums of amounts.

/// A sum of any amounts in billionths. It is exact, so an amount can be taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// In units of 2^64.
    high: i128,
    /// The rest, which is not negative.
    low: i128,
}

const UNIT: i128 = 1 << 64;
const REST: i128 = UNIT - 1;

impl Sum {
    pub(crate) const fn add(&mut self, amount: i128) {
        self.carry(self.low + (amount & REST), amount >> 64);
    }

    pub(crate) const fn subtract(&mut self, amount: i128) {
        self.carry(self.low - (amount & REST), -(amount >> 64));
    }

    const fn carry(&mut self, low: i128, high: i128) {
        self.low = low & REST;
        self.high += high + (low >> 64);
    }

    pub(crate) const fn is_negative(self) -> bool {
        self.high < 0
    }

    pub(crate) const fn is_zero(self) -> bool {
        self.high == 0 && self.low == 0
    }

    /// The sum, at the ends of the type if it is beyond them.
    pub(crate) fn saturated(self) -> i128 {
        let end = if self.is_negative() { i128::MIN } else { i128::MAX };
        self.high.checked_mul(UNIT).and_then(|high| high.checked_add(self.low)).unwrap_or(end)
    }
}

impl From<i128> for Sum {
    fn from(amount: i128) -> Self {
        let mut sum = Self::default();
        sum.add(amount);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_that_overflow_together_can_be_taken_back() {
        for amounts in [[i128::MAX; 3], [i128::MIN; 3], [i128::MAX, i128::MIN, -1], [5, -7, UNIT]] {
            let mut sum = Sum::from(9);
            for amount in amounts {
                sum.add(amount);
            }
            for amount in amounts {
                sum.subtract(amount);
            }
            assert_eq!(sum, Sum::from(9), "{amounts:?}");
        }
    }

    #[test]
    fn sums_beyond_the_type_count_as_its_ends() {
        for (amounts, saturated) in [
            ([i128::MAX, 1], i128::MAX),
            ([i128::MIN, -1], i128::MIN),
            ([i128::MAX, i128::MIN], -1),
            ([-UNIT, UNIT - 1], -1),
            ([UNIT, UNIT], 2 * UNIT),
        ] {
            let mut sum = Sum::from(amounts[0]);
            sum.add(amounts[1]);
            assert_eq!(sum.saturated(), saturated, "{amounts:?}");
            assert_eq!(sum.is_negative(), saturated < 0, "{amounts:?}");
        }
        assert!(Sum::default().is_zero() && !Sum::from(1).is_zero() && !Sum::from(UNIT).is_zero());
    }
}

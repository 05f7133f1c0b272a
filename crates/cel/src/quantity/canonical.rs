//! What the device allocator needs of quantities: rounding, identity, and the canonical text.

use std::fmt::Write as _;

use super::{Base, Format, NANO, Quantity, QuantityError, suffixes};

/// The scale of thousandths.
const MILLI: i64 = -3;

impl Quantity {
    /// Reads a quantity of an API object, whose text the API server has checked. One that cannot be
    /// computed with counts as the largest of its sign, and text that is not a quantity as zero.
    pub fn lenient(text: &str) -> Self {
        match Self::parse(text) {
            Ok(quantity) => quantity,
            Err(QuantityError::Invalid(_)) => Self::computed(0, 0, Format::DecimalSi),
            Err(QuantityError::TooLarge) => {
                let value = if text.starts_with('-') { i128::MIN / 2 } else { i128::MAX / 2 };
                Self { value, is_decimal: true, text: text.into(), ..Self::computed(0, 0, Format::DecimalSi) }
            }
        }
    }

    /// A whole number. Same as upstream's `NewQuantity`.
    pub fn whole(value: i64, format: Format) -> Self {
        Self::computed(value, 0, format)
    }

    /// Thousandths. Same as upstream's `NewMilliQuantity`.
    pub fn thousandths(value: i64, format: Format) -> Self {
        Self::computed(value, MILLI, format)
    }

    /// The way it is written.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The value in billionths, which is exact, at the ends of the type if it is beyond them.
    pub fn nanos(&self) -> i128 {
        // Nothing is kept below a billionth.
        let shift = u32::try_from(self.scale - NANO).unwrap_or(0);
        let end = if self.value < 0 { i128::MIN } else { i128::MAX };
        if self.value == 0 {
            return 0;
        }
        10_i128.checked_pow(shift).and_then(|factor| self.value.checked_mul(factor)).unwrap_or(end)
    }

    /// Same as upstream's `Value`: rounded up, and wrong where 64 bits do not hold it.
    pub fn round_up(&self) -> i64 {
        self.scaled(0)
    }

    /// Same as upstream's `MilliValue`.
    pub fn round_up_milli(&self) -> i64 {
        self.scaled(MILLI)
    }

    /// The thousandths, if there is nothing below them and 64 bits hold them.
    pub fn exact_milli(&self) -> Option<i64> {
        let milli = self.round_up_milli();
        (self.compare(&Self::thousandths(milli, self.format)).is_eq()).then_some(milli)
    }

    fn scaled(&self, scale: i64) -> i64 {
        let below = scale - self.scale;
        let factor = u32::try_from(below.abs()).ok().and_then(|power| 10_i128.checked_pow(power));
        // 64 bits of more are what Go keeps.
        let low = self.value as i64;
        match (self.is_decimal, factor) {
            (_, Some(1)) => low,
            (false, Some(factor)) if below > 0 => away_from_zero(self.value, factor) as i64,
            (false, None) if below > 0 => self.sign(),
            (false, factor) => factor
                .and_then(|factor| self.value.checked_mul(factor))
                .and_then(|value| i64::try_from(value).ok())
                .unwrap_or(0),
            (true, Some(factor)) if below > 0 => {
                (self.value.div_euclid(factor) + i128::from(self.value.rem_euclid(factor) != 0)) as i64
            }
            (true, None) if below > 0 => i64::from(self.value > 0),
            (true, factor) => low.wrapping_mul(factor.unwrap_or(0) as i64),
        }
    }

    /// Upstream compares some quantities by `==`: those with the same value in another form differ,
    /// and so do decimal numbers, which are pointers.
    pub fn is_identical(&self, other: &Self) -> bool {
        let kept = |quantity: &Self| quantity.keeps_text.then(|| quantity.text.clone());
        !self.is_decimal
            && !other.is_decimal
            && (self.value, self.scale, self.format) == (other.value, other.scale, other.format)
            && kept(self) == kept(other)
    }

    /// Comparing with a decimal number makes upstream hold a quantity as one, too.
    pub fn become_decimal_as(&mut self, other: &Self) {
        self.is_decimal |= other.is_decimal;
    }

    /// The text of the API. Same as upstream's `String`.
    pub fn canonical(&self) -> String {
        if self.keeps_text {
            return self.text.to_string();
        }
        if self.value == 0 {
            return "0".into();
        }
        match self.format {
            Format::BinarySi => self.binary().unwrap_or_else(|| self.decimal(Format::DecimalSi)),
            format => self.decimal(format),
        }
    }

    /// With a power of two; nothing for small numbers and fractions.
    fn binary(&self) -> Option<String> {
        let nanos = self.nanos();
        let one = 10_i128.pow(NANO.unsigned_abs() as u32);
        if nanos % one != 0 || (nanos / one).abs() < 1024 {
            return None;
        }
        let mut amount = nanos / one;
        let mut exponent = 0;
        while amount % 1024 == 0 {
            amount /= 1024;
            exponent += 10;
        }
        Some(format!("{amount}{}", suffixes::name(Base::Two, exponent)))
    }

    fn decimal(&self, format: Format) -> String {
        let (mut amount, mut exponent) = (self.value, self.scale);
        while amount % 10 == 0 {
            amount /= 10;
            exponent += 1;
        }
        let zeros = exponent.rem_euclid(3);
        exponent -= zeros;
        let mut text = amount.to_string();
        text.extend(std::iter::repeat_n('0', zeros as usize));
        match format {
            Format::DecimalExponent if exponent == 0 => {}
            Format::DecimalExponent => {
                let _ = write!(text, "e{exponent}");
            }
            _ => text.push_str(suffixes::name(Base::Ten, exponent)),
        }
        text
    }
}

fn away_from_zero(value: i128, divisor: i128) -> i128 {
    value / divisor + if value % divisor == 0 { 0 } else { value.signum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn canonical_text_is_upstreams() {
        let cases = [
            ("0", "0"),
            ("0Ki", "0"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.3Ki", "307200m"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("100000e-3", "100"),
            ("12e6", "12e6"),
            ("1200e4", "12e6"),
            ("1e1", "10"),
            ("-5Gi", "-5Gi"),
            ("0.1", "100m"),
            ("1E", "1E"),
            ("1n", "1n"),
            ("0.0000000001", "1n"),
            ("9Ei", "9223372036854775807"),
            ("+5", "+5"),
            ("8Ki", "8Ki"),
        ];
        for (text, canonical) in cases {
            assert_eq!(quantity(text).canonical(), canonical, "{text}");
        }
        assert_eq!(Quantity::whole(1_048_576, Format::BinarySi).canonical(), "1Mi");
        assert_eq!(Quantity::thousandths(1500, Format::DecimalSi).canonical(), "1500m");
    }

    #[test]
    fn rounding_goes_up_and_wraps_as_in_go() {
        for (text, whole, milli) in [
            ("1500m", 2, 1500),
            ("1n", 1, 1),
            ("-1500m", -2, -1500),
            ("1Gi", 1 << 30, 1000 << 30),
            ("10E", 0, 0),
        ] {
            assert_eq!(
                (quantity(text).round_up(), quantity(text).round_up_milli()),
                (whole, milli),
                "{text}"
            );
        }
        assert_eq!(quantity("1500m").exact_milli(), Some(1500));
        assert_eq!(quantity("1500u").exact_milli(), None);
    }

    #[test]
    fn identity_depends_on_the_form() {
        assert!(quantity("5Gi").is_identical(&quantity("5Gi")));
        assert!(!quantity("1024").is_identical(&quantity("1Ki")));
        assert!(!quantity("5").is_identical(&Quantity::whole(5, Format::DecimalSi)), "one keeps its text");
        assert!(quantity("8Gi").is_identical(&Quantity::whole(8 << 30, Format::BinarySi)), "neither does");
        assert!(!quantity("1.5Gi").is_identical(&quantity("1.5Gi")), "decimal numbers are pointers");
    }

    #[test]
    fn quantity_beyond_the_range_counts_as_the_largest() {
        assert_eq!(Quantity::lenient("1e50").nanos(), i128::MAX);
        assert_eq!(Quantity::lenient("-1e99").nanos(), i128::MIN);
        assert_eq!(Quantity::lenient("many").nanos(), 0);
        assert_eq!(Quantity::lenient("1e99").round_up_milli(), Quantity::lenient("1e99").round_up_milli());
    }
}

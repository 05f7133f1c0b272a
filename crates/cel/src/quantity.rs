//! Quantities as upstream's `resource.Quantity` holds them: an integer with a power of ten, or a
//! decimal number. Comparisons and texts of expressions need both.

mod canonical;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

const WRONG_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";
const WRONG_NUMBER: &str = "unable to parse numeric part of quantity";
/// The smallest part that a quantity keeps.
const NANO: i64 = -9;
/// An exponent beyond this is not handled: no real quantity has one.
const MAX_EXPONENT: i64 = 60;

/// A quantity as upstream's `resource.Quantity`, with what its comparisons and conversions depend
/// on.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// The quantity is `value` times ten to the power of `scale`.
    value: i128,
    scale: i64,
    /// Upstream holds it as a decimal number, from which it never returns to an integer.
    is_decimal: bool,
    /// The text that it was read from; empty if it was computed.
    text: Arc<str>,
    /// Upstream keeps the text, because it is in canonical form.
    keeps_text: bool,
    format: Format,
}

/// The way in which a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

/// Why a quantity cannot be read or computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// Upstream's error.
    Invalid(&'static str),
    /// Larger than this crate computes with.
    TooLarge,
}

struct Parts<'a> {
    is_negative: bool,
    integer: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    Ten,
    Two,
}

impl Quantity {
    /// Reads a quantity. Errors are upstream's.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Invalid(WRONG_FORMAT));
        }
        let parts = split(text).ok_or(QuantityError::Invalid(WRONG_FORMAT))?;
        let (base, exponent) = suffix(parts.suffix).ok_or(QuantityError::Invalid(WRONG_SUFFIX))?;
        if exponent.abs() > MAX_EXPONENT {
            return Err(QuantityError::TooLarge);
        }
        let format = match base {
            Base::Two => Format::BinarySi,
            Base::Ten if parts.suffix.len() > 1 => Format::DecimalExponent,
            Base::Ten => Format::DecimalSi,
        };
        if let Some((value, scale)) = parts.as_integer(base, exponent) {
            let keeps_text = text == "0" || parts.is_canonical(base, scale);
            let value = value.into();
            return Ok(Self { value, scale, is_decimal: false, text: text.into(), keeps_text, format });
        }
        parts.as_decimal(base, exponent, text, format)
    }

    /// A whole number.
    pub(crate) fn of(value: i64) -> Self {
        Self { text: value.to_string().into(), ..Self::computed(value, 0, Format::DecimalSi) }
    }

    /// A quantity that no text says: `value` times ten to the power of `scale`.
    pub(crate) fn computed(value: i64, scale: i64, format: Format) -> Self {
        Self {
            value: value.into(),
            scale,
            is_decimal: false,
            text: Arc::default(),
            keeps_text: false,
            format,
        }
    }

    /// -1, 0 or 1.
    pub const fn sign(&self) -> i64 {
        self.value.signum() as i64
    }

    /// The value if upstream holds it as an integer.
    pub(crate) fn as_int(&self) -> Option<i64> {
        if self.is_decimal || self.scale < 0 {
            return None;
        }
        let factor = 10_i128.checked_pow(self.scale as u32)?;
        i64::try_from(self.value.checked_mul(factor)?).ok()
    }

    pub(crate) fn as_double(&self) -> f64 {
        let base = self.value as f64;
        if self.scale == 0 { base } else { base * power_of_ten(self.scale) }
    }

    /// Both values at the smaller scale.
    fn aligned(&self, other: &Self) -> Option<(i128, i128, i64)> {
        let scale = self.scale.min(other.scale);
        let at = |quantity: &Self| {
            let factor = 10_i128.checked_pow(u32::try_from(quantity.scale - scale).ok()?);
            if quantity.value == 0 { Some(0) } else { quantity.value.checked_mul(factor?) }
        };
        Some((at(self)?, at(other)?, scale))
    }

    /// Compares the values.
    pub fn compare(&self, other: &Self) -> Ordering {
        match self.aligned(other) {
            Some((a, b, _)) => a.cmp(&b),
            // Only one overflows: the one with the larger scale is further from zero.
            None if self.scale > other.scale => self.value.cmp(&0),
            None => 0.cmp(&other.value),
        }
    }

    pub(crate) fn add(&self, other: &Self) -> Result<Self, QuantityError> {
        if !self.is_decimal && !other.is_decimal {
            if other.value == 0 {
                return Ok(self.clone());
            }
            if self.value == 0 {
                return Ok(other.clone());
            }
        }
        let (a, b, scale) = self.aligned(other).ok_or(QuantityError::TooLarge)?;
        let value = a.checked_add(b).ok_or(QuantityError::TooLarge)?;
        let fits = [a, b, value].iter().all(|part| i64::try_from(*part).is_ok());
        let is_decimal = self.is_decimal || other.is_decimal || !fits;
        let format = if self.value == 0 { other.format } else { self.format };
        Ok(Self { value, scale, is_decimal, text: Arc::default(), keeps_text: false, format })
    }

    /// Upstream negates integers without a look at overflows, so the least one stays what it is.
    pub(crate) fn sub(&self, other: &Self) -> Result<Self, QuantityError> {
        if !other.is_decimal && other.value == i128::from(i64::MIN) {
            let sum = self.add(other)?;
            if !sum.is_decimal {
                return Ok(sum);
            }
        }
        self.add(&other.negated())
    }

    fn negated(&self) -> Self {
        Self { value: -self.value, text: Arc::default(), keeps_text: false, ..self.clone() }
    }
}

impl Parts<'_> {
    /// Upstream's fast path: the value and its scale.
    fn as_integer(&self, base: Base, exponent: i64) -> Option<(i64, i64)> {
        let digits = (self.integer.len() + self.fraction.len()) as i64;
        let (precision, scale, mantissa) = match base {
            Base::Ten => (18 - digits, exponent, 1),
            Base::Two if self.fraction.is_empty() => {
                let lost = (exponent as f32 * 3.0 / 10.0) as i64;
                (15 - digits - lost - 1, 0, 1_i64.checked_shl(exponent as u32)?)
            }
            Base::Two => return None,
        };
        let scale = scale - self.fraction.len() as i64;
        if precision < 0 || scale < NANO {
            return None;
        }
        let value: i64 = format!("{}{}", self.integer, self.fraction).parse().ok()?;
        let value = value.checked_mul(mantissa)?;
        Some((if self.is_negative { -value } else { value }, scale))
    }

    /// Whether upstream takes the text as the canonical form of what the fast path has read.
    fn is_canonical(&self, base: Base, scale: i64) -> bool {
        let digits = || self.integer.bytes().chain(self.fraction.bytes());
        match base {
            // The lowest three bits decide.
            Base::Two => {
                digits().fold(0_u64, |value, digit| value.wrapping_mul(10) + u64::from(digit - b'0')) % 8 != 0
            }
            Base::Ten => {
                let zeros = digits().rev().take(3).filter(|digit| *digit == b'0').count();
                scale % 3 == 0 && zeros < 3 && digits().next() != Some(b'0')
            }
        }
    }

    fn as_decimal(
        &self,
        base: Base,
        exponent: i64,
        text: &str,
        format: Format,
    ) -> Result<Quantity, QuantityError> {
        let digits = format!("{}{}", self.integer, self.fraction);
        let fraction = self.fraction.len() as i64;
        if digits.is_empty() {
            return Err(QuantityError::Invalid(WRONG_NUMBER));
        }
        // Digits beyond this crate's range that cannot count are cut off: what is smaller than a
        // nano rounds up.
        let mut value: i128 = 0;
        let mut scale = -fraction + if base == Base::Ten { exponent } else { 0 };
        let mut rest = digits.as_str();
        let keep = (digits.len() as i64 - (NANO - scale).max(0)).max(0) as usize;
        let mut is_inexact = false;
        if base == Base::Ten && keep < digits.len() {
            is_inexact = digits[keep..].bytes().any(|digit| digit != b'0');
            rest = &digits[..keep];
            scale = NANO;
        }
        for digit in rest.bytes() {
            let digit = i128::from(digit - b'0');
            value = value
                .checked_mul(10)
                .and_then(|value| value.checked_add(digit))
                .ok_or(QuantityError::TooLarge)?;
        }
        if base == Base::Two {
            value = value.checked_mul(1 << exponent).ok_or(QuantityError::TooLarge)?;
            while scale < NANO {
                is_inexact |= value % 10 != 0;
                value /= 10;
                scale += 1;
            }
            let whole = 10_i128.checked_pow((-scale).max(0) as u32).ok_or(QuantityError::TooLarge)?;
            let most = i128::from(i64::MAX).checked_mul(whole).ok_or(QuantityError::TooLarge)?;
            if value + i128::from(is_inexact) > most {
                (value, scale, is_inexact) = (i64::MAX.into(), 0, false);
            }
        }
        value += i128::from(is_inexact);
        if value != 0 && (if scale == 0 { base == Base::Ten } else { scale > NANO }) {
            let factor = 10_i128.pow((scale - NANO) as u32);
            (value, scale) = (value.checked_mul(factor).ok_or(QuantityError::TooLarge)?, NANO);
        }
        let is_below_one = value > 0 && scale < 0 && value < 10_i128.pow(scale.unsigned_abs() as u32);
        let format = if format == Format::BinarySi && is_below_one { Format::DecimalSi } else { format };
        let value = if self.is_negative { -value } else { value };
        Ok(Quantity { value, scale, is_decimal: true, text: text.into(), keeps_text: false, format })
    }
}

fn split(text: &str) -> Option<Parts<'_>> {
    let is_negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let rest = rest.trim_start_matches('0');
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let integer = if end == 0 { "0" } else { &rest[..end] };
    let rest = &rest[end..];
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let suffix = rest;
    let rest = rest.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    rest.bytes().all(|byte| byte.is_ascii_digit()).then_some(Parts { is_negative, integer, fraction, suffix })
}

/// The power that a suffix stands for.
fn suffix(text: &str) -> Option<(Base, i64)> {
    if let Some(found) = suffixes::find(text) {
        return Some(found);
    }
    let digits = text.strip_prefix(['e', 'E']).filter(|digits| !digits.is_empty())?;
    // Upstream keeps 32 bits of it.
    digits.parse::<i64>().ok().map(|exponent| (Base::Ten, i64::from(exponent as i32)))
}

/// The suffixes with a name.
mod suffixes {
    use super::Base;

    const NAMES: &[(&str, Base, i64)] = &[
        ("n", Base::Ten, -9),
        ("u", Base::Ten, -6),
        ("m", Base::Ten, -3),
        ("", Base::Ten, 0),
        ("k", Base::Ten, 3),
        ("M", Base::Ten, 6),
        ("G", Base::Ten, 9),
        ("T", Base::Ten, 12),
        ("P", Base::Ten, 15),
        ("E", Base::Ten, 18),
        ("Ki", Base::Two, 10),
        ("Mi", Base::Two, 20),
        ("Gi", Base::Two, 30),
        ("Ti", Base::Two, 40),
        ("Pi", Base::Two, 50),
        ("Ei", Base::Two, 60),
    ];

    pub(super) fn find(text: &str) -> Option<(Base, i64)> {
        NAMES.iter().find(|(name, ..)| *name == text).map(|(_, base, exponent)| (*base, *exponent))
    }

    /// The suffix of a power. Upstream writes none for a power without a name.
    pub(super) fn name(base: Base, exponent: i64) -> &'static str {
        NAMES.iter().find(|(_, b, e)| (*b, *e) == (base, exponent)).map_or("", |(name, ..)| name)
    }
}

/// Go's `math.Pow10`.
fn power_of_ten(exponent: i64) -> f64 {
    format!("1e{exponent}").parse().unwrap_or(f64::INFINITY)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtracting_the_least_integer_adds_it() {
        let least = Quantity::of(i64::MIN);
        for (from, expected) in [(0, Some(i64::MIN)), (5, Some(i64::MIN + 5)), (-1, None)] {
            assert_eq!(Quantity::of(from).sub(&least).unwrap().as_int(), expected, "{from}");
        }
    }
}

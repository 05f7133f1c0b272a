//! Quantities, such as `100m` or `1Gi`: parsed, compared and formatted as upstream does.
//!
//! The decoder rewrites text of any precision into its canonical form ([`canonical`]). Everything
//! else computes with a [`Quantity`], which saturates at 128 bits.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// Why text is not a quantity, in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuantityError {
    /// Not a number and a unit.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// A unit without a number. Upstream reads most of those as zero.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// An unknown unit.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// One in billionths.
const BILLION: i128 = 1_000_000_000;
/// The smallest unit, as a power of ten.
const NANO: i32 = -9;
const MILLI: i32 = -3;
/// The number of decimal digits that always fit in 64 bits; fewer with a binary unit.
const DIGITS: i32 = 18;
const BINARY_DIGITS: i32 = 14;
const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The family of the unit, which formatting preserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// `k`, `M`, `m`.
    Decimal,
    /// `e3`.
    Exponent,
    /// `Ki`, `Mi`.
    Binary,
}

/// The parts of a quantity's text.
struct Parts<'a> {
    negative: bool,
    /// Whether there are any digits.
    is_number: bool,
    /// The digits before the point, without leading zeros.
    whole: &'a str,
    /// The digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

/// A decimal number: digits times ten to the power of the exponent.
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i32,
}

/// An amount in billionths, with its format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    nanos: i128,
    format: Format,
}

/// The quantity in upstream's canonical form.
pub(crate) fn canonical(text: &str) -> Result<Cow<'_, str>, QuantityError> {
    normalise(text, false)
}

/// The same, rounded up to thousandths, as upstream does for the amounts in a ResourceList.
pub(crate) fn canonical_milli(text: &str) -> Result<Cow<'_, str>, QuantityError> {
    normalise(text, true)
}

fn normalise(text: &str, milli: bool) -> Result<Cow<'_, str>, QuantityError> {
    if text == "0" {
        return Ok(Cow::Borrowed(text));
    }
    let parts = Parts::of(text)?;
    let (exponent, mut format) = interpret(parts.suffix)?;
    match parts.simple_scale(exponent, format) {
        Some(scale) if parts.looks_canonical(scale, format) && (!milli || scale >= MILLI) => {
            return Ok(Cow::Borrowed(text));
        }
        None if !parts.is_number => return Err(QuantityError::Number),
        _ => {}
    }
    let mut number = parts.number(exponent, format);
    if format == Format::Binary && number.is_below_one() {
        format = Format::Decimal;
    }
    if milli {
        number.round_up(MILLI);
    }
    Ok(Cow::Owned(number.show(format)))
}

impl Quantity {
    /// Zero.
    pub(crate) const ZERO: Self = Self { nanos: 0, format: Format::Decimal };

    /// Parses a quantity.
    pub(crate) fn parse(text: &str) -> Result<Self, QuantityError> {
        let parts = Parts::of(text)?;
        let (exponent, format) = interpret(parts.suffix)?;
        if !parts.is_number && !parts.suffix.is_empty() {
            return Err(QuantityError::Number);
        }
        let nanos = match format {
            Format::Binary => parts.binary_nanos(exponent),
            Format::Decimal | Format::Exponent => parts.decimal_nanos(exponent),
        };
        let format = if format == Format::Binary && nanos < BILLION { Format::Decimal } else { format };
        Ok(Self { nanos: if parts.negative { -nanos } else { nanos }, format })
    }

    /// Parses a quantity in an object: text or, from YAML, a number.
    pub(crate) fn read(value: &Value) -> Result<Self, QuantityError> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => Err(QuantityError::Format),
        }
    }

    /// Parses a quantity in an object; zero if it is invalid.
    pub(crate) fn of(value: &Value) -> Self {
        Self::read(value).unwrap_or(Self::ZERO)
    }

    /// Whether it is zero.
    pub(crate) fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is negative.
    pub(crate) fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it has no fraction at a precision of thousandths, which is upstream's.
    pub(crate) fn is_integer(self) -> bool {
        round_up(self.nanos, BILLION / 1000) % 1000 == 0
    }

    /// The value, rounded away from zero.
    pub(crate) fn value(self) -> i64 {
        let most = i128::from(i64::MAX);
        i64::try_from(round_up(self.nanos, BILLION).clamp(-most - 1, most)).unwrap_or(i64::MAX)
    }

    /// The nearest floating-point value.
    #[allow(clippy::cast_precision_loss, reason = "the caller wants the nearest value")]
    pub(crate) fn as_f64(self) -> f64 {
        self.nanos as f64 / BILLION as f64
    }

    /// The value in thousandths, rounded away from zero.
    pub(crate) fn milli_value(self) -> i64 {
        i64::try_from(round_up(self.nanos, BILLION / 1000)).unwrap_or(i64::MAX)
    }

    /// Rounds up to thousandths.
    #[must_use]
    pub(crate) fn round_up_to_milli(self) -> Self {
        let milli = BILLION / 1000;
        Self { nanos: round_up(self.nanos, milli).saturating_mul(milli), ..self }
    }

    /// The sum, in this quantity's format, or in the other's if this one is zero.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_add(other.nanos), format }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.nanos.unsigned_abs().to_string();
        let decimal = Decimal { negative: self.is_negative(), digits, exponent: NANO };
        f.write_str(&decimal.show(self.format))
    }
}

impl From<Quantity> for Value {
    fn from(quantity: Quantity) -> Self {
        Self::String(quantity.to_string())
    }
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let negative = text.starts_with('-');
        let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
        let significant = rest.trim_start_matches('0');
        let (whole, after) = digits(significant);
        let (fraction, suffix) = after.strip_prefix('.').map_or(("", after), digits);
        let is_number = significant.len() < rest.len() || !whole.is_empty() || !fraction.is_empty();
        let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            Ok(Self { negative, is_number, whole, fraction, suffix })
        } else {
            Err(QuantityError::Format)
        }
    }

    /// The scale of a number that is certain to fit in 64 bits, for which upstream has a shortcut.
    fn simple_scale(&self, exponent: i32, format: Format) -> Option<i32> {
        // A lone zero counts as a digit.
        let whole = i32::try_from(self.whole.len().max(1)).ok()?;
        let fraction = i32::try_from(self.fraction.len()).ok()?;
        if format == Format::Binary {
            let room = BINARY_DIGITS - whole - exponent * 3 / 10;
            return (fraction == 0 && room >= 0 && self.multiplied(exponent).is_some()).then_some(0);
        }
        let scale = exponent.checked_sub(fraction)?;
        (whole + fraction <= DIGITS && scale >= NANO).then_some(scale)
    }

    fn multiplied(&self, exponent: i32) -> Option<i64> {
        let whole: i64 = if self.whole.is_empty() { 0 } else { self.whole.parse().ok()? };
        whole.checked_mul(1 << exponent)
    }

    /// Upstream keeps a simple number's text if it looks canonical, which includes non-canonical
    /// text such as `1.500`.
    fn looks_canonical(&self, scale: i32, format: Format) -> bool {
        if format == Format::Binary {
            return self.multiplied(0).is_some_and(|whole| whole & 7 != 0);
        }
        let mut last = self.whole.bytes().chain(self.fraction.bytes()).rev();
        let thousands = (0..3).all(|_| last.next() == Some(b'0'));
        scale % 3 == 0 && !thousands && !self.whole.is_empty()
    }

    fn number(&self, exponent: i32, format: Format) -> Decimal {
        if format == Format::Binary {
            let digits = self.binary_nanos(exponent).to_string();
            return Decimal { negative: self.negative, digits, exponent: NANO };
        }
        let fraction = i32::try_from(self.fraction.len()).unwrap_or(i32::MAX);
        let mut number = Decimal {
            negative: self.negative,
            digits: format!("{}{}", self.whole, self.fraction),
            exponent: exponent.saturating_sub(fraction),
        };
        number.round_up(NANO);
        number
    }

    /// The amount with a binary unit, rounded up to billionths. It saturates at 64 bits.
    fn binary_nanos(&self, exponent: i32) -> i128 {
        const CHUNK: usize = 18;
        let billion = BILLION.unsigned_abs();
        let most = u128::from(i64::MAX.unsigned_abs());
        let whole = match self.whole {
            "" => 0,
            text => text.parse::<u64>().map_or(most, |whole| u128::from(whole) << exponent),
        };
        // Two chunks of the fraction, each of which fits with its unit.
        let (high, rest) = self.fraction.split_at(self.fraction.len().min(CHUNK));
        let (low, rest) = rest.split_at(rest.len().min(CHUNK));
        let chunk = |digits: &str| format!("{digits:0<CHUNK$}").parse::<u128>().unwrap_or(0) << exponent;
        let (high, low) = if self.fraction.is_empty() { (0, 0) } else { (chunk(high), chunk(low)) };
        let beyond = u128::from(rest.bytes().any(|digit| digit != b'0'));
        let below = (high % billion) * billion * billion + low + beyond;
        let billionths = high / billion + below.div_ceil(billion * billion * billion);
        let amount = (whole.min(most) * billion + billionths).min(most * billion);
        i128::try_from(amount).unwrap_or(i128::MAX)
    }

    /// The amount with a decimal unit, rounded up to billionths. It saturates.
    fn decimal_nanos(&self, exponent: i32) -> i128 {
        let fraction = self.fraction.trim_end_matches('0');
        let digits = self.whole.bytes().chain(fraction.bytes());
        let amount = digits
            .fold(0_i128, |amount, digit| amount.saturating_mul(10).saturating_add(i128::from(digit - b'0')));
        if amount == 0 {
            return 0;
        }
        let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        let tens = 9_i32.saturating_sub(places).saturating_add(exponent);
        match 10_i128.checked_pow(tens.unsigned_abs()) {
            Some(ten) if tens >= 0 => amount.saturating_mul(ten),
            Some(ten) => round_up(amount, ten),
            None if tens >= 0 => i128::MAX,
            None => 1,
        }
    }
}

impl Decimal {
    fn is_below_one(&self) -> bool {
        self.whole() == Some(0)
    }

    fn is_zero(&self) -> bool {
        self.digits.bytes().all(|digit| digit == b'0')
    }

    /// The integer part, if it fits.
    fn whole(&self) -> Option<u128> {
        if self.is_zero() {
            return Some(0);
        }
        let zeros = usize::try_from(self.exponent).unwrap_or(0);
        let cut = usize::try_from(self.exponent.saturating_neg()).unwrap_or(0);
        let digits = self.digits.len().checked_sub(cut).map_or("", |kept| &self.digits[..kept]);
        if digits.is_empty() {
            return Some(0);
        }
        digits.parse::<u128>().ok()?.checked_mul(10u128.checked_pow(u32::try_from(zeros).ok()?)?)
    }

    /// Rounds away from zero, to a power of ten.
    fn round_up(&mut self, exponent: i32) {
        let Ok(cut) = usize::try_from(exponent.saturating_sub(self.exponent)) else { return };
        if cut == 0 || self.is_zero() {
            return;
        }
        let kept = self.digits.len().saturating_sub(cut);
        let up = self.digits[kept..].bytes().any(|digit| digit != b'0');
        self.digits.truncate(kept);
        self.exponent = exponent;
        if up {
            self.add_one();
        }
    }

    fn add_one(&mut self) {
        let kept = self.digits.trim_end_matches('9').len();
        let nines = self.digits.len() - kept;
        let head = self.digits[..kept].bytes().next_back().map_or(b'0', |digit| digit);
        self.digits.truncate(kept.saturating_sub(1));
        self.digits.push(char::from(head + 1));
        self.digits.extend(std::iter::repeat_n('0', nines));
    }

    fn show(mut self, format: Format) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        if format == Format::Binary
            && let Some(text) = self.show_binary()
        {
            return text;
        }
        let significant = self.digits.trim_end_matches('0').len();
        let zeros = i32::try_from(self.digits.len() - significant).unwrap_or(i32::MAX);
        self.digits.truncate(significant);
        self.exponent = self.exponent.saturating_add(zeros);
        let surplus = self.exponent.rem_euclid(3);
        self.digits.extend(std::iter::repeat_n('0', usize::try_from(surplus).unwrap_or(0)));
        self.exponent -= surplus;
        let digits = self.digits.trim_start_matches('0');
        let sign = if self.negative { "-" } else { "" };
        match (format, self.exponent) {
            (Format::Exponent, 0) => format!("{sign}{digits}"),
            (Format::Exponent, exponent) => format!("{sign}{digits}e{exponent}"),
            (_, exponent) => {
                // Upstream also drops the unit of amounts beyond `E` (`1000E`).
                let suffix = DECIMAL_SUFFIXES.iter().find(|(_, power)| *power == exponent);
                format!("{sign}{digits}{}", suffix.map_or("", |(suffix, _)| suffix))
            }
        }
    }

    /// `None` for small numbers and fractions, which are formatted as decimals.
    fn show_binary(&self) -> Option<String> {
        let mut whole = self.whole()?;
        let mut rounded = Self { digits: self.digits.clone(), ..*self };
        rounded.round_up(0);
        if whole < 1024 || rounded.whole() != Some(whole) {
            return None;
        }
        let mut unit = 0;
        while whole.is_multiple_of(1024) && unit + 1 < BINARY_SUFFIXES.len() {
            whole /= 1024;
            unit += 1;
        }
        Some(format!("{}{whole}{}", if self.negative { "-" } else { "" }, BINARY_SUFFIXES[unit]))
    }
}

/// Divides, rounding away from zero.
fn round_up(amount: i128, unit: i128) -> i128 {
    let (whole, rest) = (amount / unit, amount % unit);
    whole + rest.signum()
}

/// Splits off the leading digits.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// The exponent of a suffix: a power of ten, or of two in the binary family.
fn interpret(suffix: &str) -> Result<(i32, Format), QuantityError> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        return Ok((*exponent, Format::Decimal));
    }
    let unit = BINARY_SUFFIXES.iter().zip(0..).find(|(known, _)| **known == suffix);
    if let Some((_, power)) = unit {
        return Ok((power * 10, Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    // Upstream truncates exponents beyond 32 bits; no caller depends on that.
    let exponent = exponent.parse::<i32>().map_err(|_| QuantityError::Suffix)?;
    Ok((exponent, Format::Exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        canonical(text).map_or_else(|error| error.to_string(), Cow::into_owned)
    }

    #[test]
    fn canonical_form_has_the_largest_unit_without_fraction() {
        let cases = [
            ("0", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("1500m", "1500m"),
            ("1000", "1k"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("1.5Gi", "1536Mi"),
            ("2048Ki", "2Mi"),
            ("0.5Gi", "512Mi"),
            ("1023", "1023"),
            ("0.5Ki", "512"),
            ("1Ki", "1Ki"),
            ("100", "100"),
            ("1e3", "1e3"),
            ("1e4", "10e3"),
            ("12E6", "12E6"),
            ("1e0", "1e0"),
            ("0.1m", "100u"),
            ("0.0000000001", "1n"),
            ("-1.5", "-1500m"),
            ("00", "0"),
            ("0Mi", "0"),
            ("0.0", "0"),
            ("5.0", "5"),
            ("1000000000000", "1T"),
            ("110", "110"),
            ("8Ki", "8Ki"),
            ("1000Ki", "1000Ki"),
            ("1024Ki", "1Mi"),
            ("9999999999Ei", "9223372036854775807"),
            ("1.", "1."),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn text_that_looks_canonical_to_upstream_is_kept() {
        for text in ["1.500", "+5", "005", "1234Ki"] {
            assert_eq!(shown(text), text);
        }
    }

    #[test]
    fn invalid_quantities_are_rejected() {
        for text in ["", "x", "1 ", "1..2", "1x", "true", "{}", "1e3x", "é", "1é"] {
            assert_eq!(canonical(text), Err(QuantityError::Format), "{text}");
        }
        for text in ["-Pi", ".Ei", "-e-20"] {
            assert_eq!(canonical(text), Err(QuantityError::Number), "{text}");
        }
        assert_eq!(canonical("Ki"), Ok(Cow::Borrowed("0")));
        for text in ["1mm", "1i", "1e", "1Kim", "1e99999999999"] {
            assert_eq!(canonical(text), Err(QuantityError::Suffix), "{text}");
        }
    }

    #[test]
    fn resource_amounts_are_rounded_up_to_thousandths() {
        assert_eq!(canonical_milli("1u").unwrap(), "1m");
        assert_eq!(canonical_milli("1999u").unwrap(), "2m");
        assert_eq!(canonical_milli("999.9999m").unwrap(), "1");
        assert_eq!(canonical_milli("100m").unwrap(), "100m");
        assert_eq!(canonical_milli("-1u").unwrap(), "-1m");
    }

    #[test]
    fn quantities_are_formatted_in_canonical_form() {
        for (read, written) in [
            ("0", "0"),
            ("0Mi", "0"),
            ("-0", "0"),
            ("1500m", "1500m"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1E", "1E"),
            ("100n", "100n"),
            ("0.1n", "1n"),
            ("-1", "-1"),
            ("+2", "2"),
            ("9Ei", "9223372036854775807"),
            ("0.1Mi", "104857600m"),
            (".5", "500m"),
            ("1.", "1"),
        ] {
            assert_eq!(Quantity::parse(read).unwrap().to_string(), written, "{read}");
        }
    }

    #[test]
    fn invalid_quantities_have_upstream_errors() {
        assert_eq!(Quantity::parse("").unwrap_err(), QuantityError::Format);
        assert_eq!(Quantity::parse("one").unwrap_err(), QuantityError::Format);
        assert_eq!(Quantity::parse("1 Gi").unwrap_err(), QuantityError::Format);
        assert_eq!(Quantity::parse("1ee").unwrap_err(), QuantityError::Suffix);
        assert_eq!(Quantity::parse("1K").unwrap_err(), QuantityError::Suffix);
        assert_eq!(Quantity::parse("1ü").unwrap_err(), QuantityError::Format);
    }

    #[test]
    fn huge_amounts_do_not_overflow() {
        assert!(Quantity::parse("1e999999999").unwrap() > Quantity::parse("9E").unwrap());
        assert_eq!(Quantity::parse("1e-999999999").unwrap().to_string(), "1e-9");
        assert_eq!(Quantity::parse(&"9".repeat(500)).unwrap().value(), i64::MAX);
    }

    #[test]
    fn amounts_of_different_formats_compare() {
        let of = |text| Quantity::parse(text).unwrap();
        assert_eq!(of("1"), of("1000m"));
        assert!(of("1Gi") > of("1G"));
        assert!(of("1m").value() == 1 && !of("1m").is_integer() && of("2e3").is_integer());
        assert_eq!(of("1500m").plus(of("500m")).to_string(), "2");
    }
}

//! Quantities as upstream reads and writes them: `1000m` becomes `1`, `1024Mi` becomes `1Gi`.

use std::borrow::Cow;

/// Why text is no quantity. The texts are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// Not a number and a unit.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// A unit without a number. Upstream takes most of those for zero.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// No such unit.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The smallest unit, as a power of ten.
const NANO: i32 = -9;
const MILLI: i32 = -3;
/// So many decimal digits surely fit 64 bits; fewer, when there is a binary unit.
const DIGITS: i32 = 18;
const BINARY_DIGITS: i32 = 14;
const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The unit's family, which stays as it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `k`, `M`, `m`.
    Decimal,
    /// `e3`.
    Exponent,
    /// `Ki`, `Mi`.
    Binary,
}

/// The parts of the text.
struct Parts<'a> {
    negative: bool,
    /// Whether there are any digits.
    is_number: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

/// A decimal number: the digits, times ten to the exponent.
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i32,
}

/// The quantity as upstream writes it.
pub(crate) fn canonical(text: &str) -> Result<Cow<'_, str>, Error> {
    normalise(text, false)
}

/// The same, rounded up to thousandths, as upstream does with the amounts in lists of resources.
pub(crate) fn canonical_milli(text: &str) -> Result<Cow<'_, str>, Error> {
    normalise(text, true)
}

fn normalise(text: &str, milli: bool) -> Result<Cow<'_, str>, Error> {
    if text == "0" {
        return Ok(Cow::Borrowed(text));
    }
    let parts = Parts::of(text)?;
    let (exponent, mut format) = interpret(parts.suffix)?;
    match parts.simple_scale(exponent, format) {
        Some(scale) if parts.looks_canonical(scale, format) && (!milli || scale >= MILLI) => {
            return Ok(Cow::Borrowed(text));
        }
        None if !parts.is_number => return Err(Error::Number),
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

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::Format);
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
            Err(Error::Format)
        }
    }

    /// The scale of a number that surely fits 64 bits, at which upstream takes a short cut.
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

    /// Upstream keeps a simple number's text when it looks canonical to it, which is not always when it is: `1.500` stays.
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
            return self.binary(exponent);
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

    /// A number with a binary unit: never above 64 bits, rounded up to billionths.
    fn binary(&self, exponent: i32) -> Decimal {
        const BILLION: u128 = 1_000_000_000;
        const CHUNK: usize = 18;
        let most = u128::from(i64::MAX.unsigned_abs());
        let whole = match self.whole {
            "" => 0,
            text => text.parse::<u64>().map_or(most, |whole| u128::from(whole) << exponent),
        };
        // The fraction in two chunks: each fits with its unit.
        let (high, rest) = self.fraction.split_at(self.fraction.len().min(CHUNK));
        let (low, rest) = rest.split_at(rest.len().min(CHUNK));
        let chunk = |digits: &str| format!("{digits:0<CHUNK$}").parse::<u128>().unwrap_or(0) << exponent;
        let (high, low) = (chunk(high), chunk(low));
        let beyond = u128::from(rest.bytes().any(|digit| digit != b'0'));
        let below = (high % BILLION) * BILLION * BILLION + low + beyond;
        let billionths = high / BILLION + below.div_ceil(BILLION * BILLION * BILLION);
        let amount = (whole.min(most) * BILLION + billionths).min(most * BILLION);
        Decimal { negative: self.negative, digits: amount.to_string(), exponent: NANO }
    }
}

impl Decimal {
    fn is_below_one(&self) -> bool {
        self.whole() == Some(0)
    }

    fn is_zero(&self) -> bool {
        self.digits.bytes().all(|digit| digit == b'0')
    }

    /// The part before the point, if it fits.
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

    /// Away from zero, to a power of ten.
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
                // Upstream too loses what has no unit (`1000E`).
                let suffix = DECIMAL_SUFFIXES.iter().find(|(_, power)| *power == exponent);
                format!("{sign}{digits}{}", suffix.map_or("", |(suffix, _)| suffix))
            }
        }
    }

    /// `None` for small numbers and fractions, which are shown as decimals.
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

/// Splits off leading digits.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// The power of ten, or of two in the binary family.
fn interpret(suffix: &str) -> Result<(i32, Format), Error> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        return Ok((*exponent, Format::Decimal));
    }
    let unit = BINARY_SUFFIXES.iter().zip(0..).find(|(known, _)| **known == suffix);
    if let Some((_, power)) = unit {
        return Ok((power * 10, Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(Error::Suffix)?;
    // Upstream cuts what does not fit to 32 bits; nothing means that.
    let exponent = exponent.parse::<i32>().map_err(|_| Error::Suffix)?;
    Ok((exponent, Format::Exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        canonical(text).map_or_else(|error| error.to_string(), Cow::into_owned)
    }

    #[test]
    fn quantities_are_shown_with_the_largest_unit_that_leaves_no_fraction() {
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
    fn what_looks_canonical_to_upstream_stays() {
        for text in ["1.500", "+5", "005", "1234Ki"] {
            assert_eq!(shown(text), text);
        }
    }

    #[test]
    fn no_quantity_is_refused() {
        for text in ["", "x", "1 ", "1..2", "1x", "true", "{}", "1e3x", "é", "1é"] {
            assert_eq!(canonical(text), Err(Error::Format), "{text}");
        }
        for text in ["-Pi", ".Ei", "-e-20"] {
            assert_eq!(canonical(text), Err(Error::Number), "{text}");
        }
        assert_eq!(canonical("Ki"), Ok(Cow::Borrowed("0")));
        for text in ["1mm", "1i", "1e", "1Kim", "1e99999999999"] {
            assert_eq!(canonical(text), Err(Error::Suffix), "{text}");
        }
    }

    #[test]
    fn amounts_of_resources_are_rounded_up_to_thousandths() {
        assert_eq!(canonical_milli("1u").unwrap(), "1m");
        assert_eq!(canonical_milli("1999u").unwrap(), "2m");
        assert_eq!(canonical_milli("999.9999m").unwrap(), "1");
        assert_eq!(canonical_milli("100m").unwrap(), "100m");
        assert_eq!(canonical_milli("-1u").unwrap(), "-1m");
    }
}

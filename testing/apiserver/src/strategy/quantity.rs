//! Quantities, as `100m` or `1Gi`: read, compared and written as upstream does.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// An amount in billionths, and how it is written.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

const NANO: i128 = 1_000_000_000;
/// The most that a quantity in binary can be: all of int64.
const MOST: i128 = i64::MAX as i128 * NANO;

const WRONG_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_NUMBER: &str = "unable to parse numeric part of quantity";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, format: Format::Decimal };

    /// Reads one. The error is upstream's.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (is_negative, unsigned) = match text.as_bytes().first() {
            None => return Err(WRONG_FORMAT),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        check_suffix(suffix)?;
        let (factor, format) = factor(suffix).ok_or(WRONG_SUFFIX)?;
        if whole.is_empty() && fraction.is_empty() && !suffix.is_empty() {
            return Err(WRONG_NUMBER);
        }
        let amount = scale(whole, fraction, factor);
        let (amount, format) = match format {
            Format::Binary if amount > MOST => (MOST, format),
            Format::Binary if amount < NANO => (amount, Format::Decimal),
            _ => (amount, format),
        };
        Ok(Self { nanos: if is_negative { -amount } else { amount }, format })
    }

    /// Reads one in an object: text or, as YAML may have it, a number.
    pub fn read(value: &Value) -> Result<Self, &'static str> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => Err(WRONG_FORMAT),
        }
    }

    /// One in an object; nothing when it cannot be read.
    pub fn of(value: &Value) -> Self {
        Self::read(value).unwrap_or(Self::ZERO)
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is less than nothing.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether there is no part of a thousandth's precision: upstream looks no closer.
    pub fn is_integer(self) -> bool {
        round_up(self.nanos, NANO / 1000) % 1000 == 0
    }

    /// In ones, rounded away from nothing.
    pub fn value(self) -> i64 {
        let most = i128::from(i64::MAX);
        i64::try_from(round_up(self.nanos, NANO).clamp(-most - 1, most)).unwrap_or(i64::MAX)
    }

    /// In ones, as closely as that goes.
    #[allow(clippy::cast_precision_loss, reason = "it is asked for")]
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// In thousandths, rounded away from nothing.
    pub fn milli_value(self) -> i64 {
        i64::try_from(round_up(self.nanos, NANO / 1000)).unwrap_or(i64::MAX)
    }

    /// The same, or as many thousandths as it takes to be no less.
    #[must_use]
    pub fn round_up_to_milli(self) -> Self {
        let milli = NANO / 1000;
        Self { nanos: round_up(self.nanos, milli).saturating_mul(milli), ..self }
    }

    /// Both together, written as this one is, or as the other when this one is nothing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
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
        const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let is_small = self.nanos.abs() < 1024 * NANO;
        if self.format == Format::Binary && !is_small && self.nanos % NANO == 0 {
            let (number, steps) = reduce(self.nanos / NANO, 1024, BINARY.len() - 1);
            return write!(f, "{number}{}", BINARY[steps]);
        }
        let (number, steps) = reduce(self.nanos, 1000, DECIMAL.len() - 1);
        match (self.format, steps) {
            (Format::Exponent, 3) => write!(f, "{number}"),
            (Format::Exponent, 0) => write!(f, "{number}e-9"),
            (Format::Exponent, 1) => write!(f, "{number}e-6"),
            (Format::Exponent, 2) => write!(f, "{number}e-3"),
            (Format::Exponent, steps) => write!(f, "{number}e{}", (steps - 3) * 3),
            (_, steps) => write!(f, "{number}{}", DECIMAL[steps]),
        }
    }
}

impl From<Quantity> for Value {
    fn from(quantity: Quantity) -> Self {
        Self::String(quantity.to_string())
    }
}

/// What comes after the number: letters, then perhaps a signed number.
fn check_suffix(suffix: &str) -> Result<(), &'static str> {
    let rest = suffix.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    if rest.bytes().all(|byte| byte.is_ascii_digit()) { Ok(()) } else { Err(WRONG_FORMAT) }
}

/// What a suffix multiplies by: a base and its power.
fn factor(suffix: &str) -> Option<((i128, i32), Format)> {
    let decimal = |power| Some(((10, power), Format::Decimal));
    let binary = |power| Some(((2, power), Format::Binary));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let power = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some(((10, power), Format::Exponent))
        }
    }
}

/// The number times the factor in billionths; what is less than one of them counts as one, what is too much as the most.
fn scale(whole: &str, fraction: &str, (base, power): (i128, i32)) -> i128 {
    let fraction = fraction.trim_end_matches('0');
    let mut amount: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        amount = amount.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    // Ten to this power is left to multiply by.
    let mut tens = 9_i32.saturating_sub(places);
    if base == 2 {
        amount = amount.saturating_mul(1_i128.checked_shl(power.unsigned_abs()).unwrap_or(i128::MAX));
    } else {
        tens = tens.saturating_add(power);
    }
    if amount == 0 {
        return 0;
    }
    match 10_i128.checked_pow(tens.unsigned_abs()) {
        Some(ten) if tens >= 0 => amount.saturating_mul(ten),
        Some(ten) => round_up(amount, ten),
        None if tens >= 0 => i128::MAX,
        None => 1,
    }
}

/// Away from nothing.
fn round_up(amount: i128, unit: i128) -> i128 {
    let (whole, rest) = (amount / unit, amount % unit);
    whole + rest.signum()
}

/// Divides as often as nothing is lost.
fn reduce(mut number: i128, by: i128, most: usize) -> (i128, usize) {
    let mut steps = 0;
    while steps < most && number % by == 0 {
        number /= by;
        steps += 1;
    }
    (number, steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_in_upstreams_shortest_form() {
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
    fn what_is_no_quantity_is_refused_in_upstreams_words() {
        assert_eq!(Quantity::parse("").unwrap_err(), WRONG_FORMAT);
        assert_eq!(Quantity::parse("one").unwrap_err(), WRONG_FORMAT);
        assert_eq!(Quantity::parse("1 Gi").unwrap_err(), WRONG_FORMAT);
        assert_eq!(Quantity::parse("1ee").unwrap_err(), WRONG_SUFFIX);
        assert_eq!(Quantity::parse("1K").unwrap_err(), WRONG_SUFFIX);
        assert_eq!(Quantity::parse("1ü").unwrap_err(), WRONG_FORMAT);
    }

    #[test]
    fn amounts_beyond_all_bounds_do_not_overflow() {
        assert!(Quantity::parse("1e999999999").unwrap() > Quantity::parse("9E").unwrap());
        assert_eq!(Quantity::parse("1e-999999999").unwrap().to_string(), "1e-9");
        assert_eq!(Quantity::parse(&"9".repeat(500)).unwrap().value(), i64::MAX);
    }

    #[test]
    fn amounts_compare_whatever_their_form() {
        let of = |text| Quantity::parse(text).unwrap();
        assert_eq!(of("1"), of("1000m"));
        assert!(of("1Gi") > of("1G"));
        assert!(of("1m").value() == 1 && !of("1m").is_integer() && of("2e3").is_integer());
        assert_eq!(of("1500m").plus(of("500m")).to_string(), "2");
    }
}

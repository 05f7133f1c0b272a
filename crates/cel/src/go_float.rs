//! Texts of doubles as Go's `strconv.ParseFloat` reads them.

use std::borrow::Cow;

/// Exponents beyond this are not told apart.
const MAX_EXPONENT: i64 = 10_000;

/// Reads a double. One that is too large is none.
pub(crate) fn parse(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
        return Some(sign * f64::INFINITY);
    }
    if text.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    let digits = without_underscores(unsigned)?;
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => parse_hex(hex)?,
        None => {
            let is_part =
                |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
            let is_number = digits.bytes().all(is_part) && !digits.starts_with(['+', '-']);
            is_number.then(|| digits.parse::<f64>().ok())??
        }
    };
    value.is_finite().then_some(sign * value)
}

/// A number without the underscores between its digits, of which a prefix `0x` is one.
fn without_underscores(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(text.into());
    }
    let is_hex = text.starts_with("0x") || text.starts_with("0X");
    let is_digit = |c: char| if is_hex { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
    let start = if is_hex { 2 } else { 0 };
    let mut before = is_hex;
    let mut rest = text[start..].chars().peekable();
    while let Some(c) = rest.next() {
        if c == '_' && !(before && rest.peek().copied().is_some_and(is_digit)) {
            return None;
        }
        before = is_digit(c);
    }
    Some(text.replace('_', "").into())
}

/// A hexadecimal number after its prefix, such as `1.8p-3`.
fn parse_hex(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (mut mantissa, mut power) = (0_u64, parse_exponent(exponent)?);
    for (digits, is_fraction) in [(whole, false), (fraction, true)] {
        for c in digits.chars() {
            let digit = c.to_digit(16)?;
            if mantissa >> 60 == 0 {
                mantissa = mantissa << 4 | u64::from(digit);
                power -= if is_fraction { 4 } else { 0 };
            } else {
                // The last bit is far from those that count: it says that there is more.
                mantissa |= u64::from(digit != 0);
                power += if is_fraction { 0 } else { 4 };
            }
        }
    }
    Some(scaled(mantissa, power))
}

fn parse_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut value = 0;
    for digit in digits.bytes().map(|byte| i64::from(byte - b'0')) {
        if value < MAX_EXPONENT {
            value = value * 10 + digit;
        }
    }
    Some(if text.starts_with('-') { -value } else { value })
}

/// A number times a power of two, rounded once, to even.
fn scaled(mantissa: u64, power: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let shift = mantissa.leading_zeros();
    let mantissa = mantissa << shift;
    let power = power - i64::from(shift);
    // The powers of two of the first and the last bit.
    let first = power + 63;
    let last = (first - 52).max(-1074);
    if first > 1023 {
        return f64::INFINITY;
    }
    let dropped = last - power;
    if dropped > 64 {
        return 0.0;
    }
    let (all, half) = (u128::from(mantissa), 1_u128 << (dropped - 1));
    let (kept, rest) = (all >> dropped, all & (2 * half - 1));
    let is_up = rest > half || rest == half && kept & 1 == 1;
    let kept = (kept + u128::from(is_up)) as f64;
    kept * power_of_two(last)
}

/// For powers from -1074 to 1023.
fn power_of_two(power: i64) -> f64 {
    f64::from_bits(if power < -1022 { 1 << (power + 1074) } else { ((power + 1023) as u64) << 52 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_numbers_are_rounded_once() {
        let cases = [
            ("0x1p4", 16.0),
            ("-0X.8p1", -1.0),
            ("0x1.fffffffffffff8p0", 2.0),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.000000000000080000000000001p0", 1.000_000_000_000_000_2),
            ("0x1p-1074", 5e-324),
            ("0x1p-1075", 0.0),
            ("0x1.8p-1075", 5e-324),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x_1_0p0", 16.0),
            ("1_0.5_0e1_0", 10.5e10),
        ];
        for (text, value) in cases {
            assert_eq!(parse(text), Some(value), "{text}");
        }
        for text in
            ["0x1", "0xp1", "0x1p", "0x1p1024", "0x1.fffffffffffff8p1023", "1_", "1__0", "_1", "0x1_p1"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

//! Numbers, texts and durations as Go prints them.

use std::fmt::Write as _;

/// `%g`, which is also `%v`: the shortest digits; with an exponent from 6 on, and below -4.
pub(crate) fn double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return fixed(value);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// `strconv.FormatFloat(value, 'f', -1, 64)`.
pub(crate) fn fixed(value: f64) -> String {
    if value.is_finite() { format!("{value}") } else { double(value) }
}

/// The greatest width or precision that Go reads before one more digit.
const MAX_BEFORE_DIGIT: i64 = 1_000_000;
/// What Go prints where it does not find the verb, because the number before it is too large.
const NO_VERB: &str = "%!(NOVERB)";

/// `%.Nf` of `golang.org/x/text` in English: with commas between groups of digits.
pub(crate) fn english_fixed(value: f64, precision: i64) -> String {
    if precision / 10 > MAX_BEFORE_DIGIT {
        return NO_VERB.into();
    }
    if !value.is_finite() {
        return english_special(value);
    }
    // Small integers hold the precision, so a large one is another number, or none.
    let least = usize::from(precision as u8);
    let digits = match usize::try_from(precision as i16) {
        Ok(most) => format!("{:.most$}", value.abs()),
        Err(_) => value.abs().to_string(),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    let fraction = format!("{:0<least$}", fraction.trim_end_matches('0'));
    if !fraction.is_empty() {
        out.push('.');
        out += &fraction;
    }
    out
}

/// `%Ne` of `golang.org/x/text` in English, where N is the least width.
pub(crate) fn english_scientific(value: f64, width: i64) -> String {
    if width / 10 > MAX_BEFORE_DIGIT {
        return NO_VERB.into();
    }
    let text = if value.is_finite() { english_power(value) } else { english_special(value) };
    format!("{text:>width$}", width = usize::from(width as u16))
}

fn english_power(value: f64) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let text = format!("{:.6e}", value.abs());
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let signs = [if value < 0.0 { "-" } else { "" }, if exponent < 0 { "⁻" } else { "" }];
    let power = format!("{:02}", exponent.unsigned_abs());
    let power: String = power.bytes().map(|digit| DIGITS[usize::from(digit - b'0')]).collect();
    format!("{}{digits}×10{}{power}", signs[0], signs[1])
}

fn english_special(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value > 0.0 { "∞".into() } else { "-∞".into() }
}

/// Go's `%q` of a string. Characters that are newer than Go's tables are not escaped.
pub fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    text.chars().for_each(|c| quote_char(c, &mut out));
    out.push('"');
    out
}

/// [`quote`] of bytes that need not be UTF-8.
pub(crate) fn quote_bytes(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| quote_char(c, &mut out));
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}

/// The escape sequence of two characters for a character within quotes, if there is one.
pub(crate) const fn short_escape(c: char) -> Option<&'static str> {
    Some(match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        _ => return None,
    })
}

fn quote_char(c: char, out: &mut String) {
    match c {
        c if let Some(escape) = short_escape(c) => out.push_str(escape),
        c if is_printable(c) => out.push(c),
        c => {
            let code = c as u32;
            let _ = match code {
                0..0x80 => write!(out, "\\x{code:02x}"),
                0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
                _ => write!(out, "\\U{code:08x}"),
            };
        }
    }
}

/// Go's `strconv.IsPrint`.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // Debug text has the same escapes. It also escapes combining characters, but only at its start.
    format!("a{c}").escape_debug().count() == 2
}

/// `time.Duration.String`.
pub(crate) fn duration(nanos: i64) -> String {
    if nanos == 0 {
        return "0s".into();
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    if total < 1_000_000_000 {
        let (unit, divisor) = match total {
            0..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            _ => ("ms", 1_000_000),
        };
        return format!("{sign}{}{unit}", fraction(total, divisor));
    }
    let (minutes, seconds) = (total / 60_000_000_000, total % 60_000_000_000);
    let seconds = fraction(seconds, 1_000_000_000);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

fn fraction(value: u64, divisor: u64) -> String {
    let width = divisor.to_string().len() - 1;
    let rest = format!("{:0width$}", value % divisor);
    let rest = rest.trim_end_matches('0');
    if rest.is_empty() || width == 0 {
        (value / divisor).to_string()
    } else {
        format!("{}.{rest}", value / divisor)
    }
}

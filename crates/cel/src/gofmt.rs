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

/// Go's `%q` of a string. Combining characters and others that Go escapes, too, stay as they are.
pub fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c.is_ascii() && !(' '..='~').contains(&c) => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            '\u{80}'..='\u{a0}'
            | '\u{ad}'
            | '\u{feff}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{200b}'..='\u{200f}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
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

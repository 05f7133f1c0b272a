//! Durations in Go's syntax: `1m30s`, `1.5h`.

use std::time::Duration;

/// Parses a non-negative duration; `None` if Go rejects the text, too.
pub fn parse(text: &str) -> Option<Duration> {
    unsigned(text.strip_prefix('+').unwrap_or(text))
}

/// Parses a duration as its length and whether it is negative; `None` if Go rejects the text, too.
/// Go's longest negative duration is one nanosecond longer than what this accepts.
pub fn parse_signed(text: &str) -> Option<(Duration, bool)> {
    match text.strip_prefix('-') {
        Some(rest) => Some((unsigned(rest)?, true)),
        None => Some((parse(text)?, false)),
    }
}

fn unsigned(text: &str) -> Option<Duration> {
    let mut rest = text;
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanoseconds = 0_u64;
    // At least one number with a unit.
    loop {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, unit_on) = rest.split_at(digits);
        let letters =
            unit_on.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(unit_on.len());
        let (unit, next) = unit_on.split_at(letters);
        nanoseconds = nanoseconds.checked_add(scaled(number, nanoseconds_of(unit)?)?)?;
        if next.is_empty() {
            break;
        }
        rest = next;
    }
    // Go's durations are signed.
    i64::try_from(nanoseconds).is_ok().then(|| Duration::from_nanos(nanoseconds))
}

/// Formats a duration as Go does: `1h0m0s`, `1.5s`, `20ms`.
pub fn format(length: Duration) -> String {
    let seconds = length.as_secs();
    if length.is_zero() {
        return "0s".to_owned();
    }
    if seconds == 0 {
        let nanoseconds = f64::from(length.subsec_nanos());
        // At most nine digits, which a float represents exactly.
        return match length.subsec_nanos() {
            ..1_000 => format!("{nanoseconds}ns"),
            1_000..1_000_000 => format!("{}µs", nanoseconds / 1e3),
            _ => format!("{}ms", nanoseconds / 1e6),
        };
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let fraction = format!("{:09}", length.subsec_nanos());
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    let rest = format!("{}{dot}{fraction}s", seconds % 60);
    match (hours, minutes) {
        (0, 0) => rest,
        (0, _) => format!("{minutes}m{rest}"),
        _ => format!("{hours}h{minutes}m{rest}"),
    }
}

fn nanoseconds_of(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3_600 * 1_000_000_000,
        _ => return None,
    })
}

/// A decimal number of units, in nanoseconds.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = |text: &str| {
        if text.is_empty() { Some(0) } else { text.parse::<u64>().ok() }
    };
    // Twelve digits are finer than a nanosecond, even for hours. More would overflow.
    let fraction = fraction.get(..12).unwrap_or(fraction);
    let divisor = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = u128::from(digits(fraction)?) * u128::from(unit) / divisor;
    digits(whole)?.checked_mul(unit)?.checked_add(u64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_durations_keep_their_sign() {
        let second = Duration::from_secs(1);
        for (text, expected) in [
            ("1s", Some((second, false))),
            ("+1s", Some((second, false))),
            ("-1s", Some((second, true))),
            ("-0", Some((Duration::ZERO, true))),
            ("--1s", None),
            ("-+1s", None),
            ("-", None),
            ("1", None),
        ] {
            assert_eq!(parse_signed(text), expected, "{text}");
        }
        assert_eq!((parse("+1s"), parse("-1s")), (Some(second), None));
    }
}

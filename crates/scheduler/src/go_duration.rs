//! Durations in Go's notation.

use std::time::Duration;

/// The duration as Go prints it: `15m0s`, `1.5s`, `200ms`.
pub(crate) fn go_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let trimmed = |value: f64, unit: &str| format!("{}{unit}", (value * 1e9).round() / 1e9);
    if nanos == 0 {
        return "0s".to_owned();
    }
    if nanos < 1_000 {
        return format!("{nanos}ns");
    }
    if nanos < 1_000_000 {
        return trimmed(nanos as f64 / 1e3, "µs");
    }
    if nanos < 1_000_000_000 {
        return trimmed(nanos as f64 / 1e6, "ms");
    }
    let (hours, minutes) = (duration.as_secs() / 3600, duration.as_secs() / 60 % 60);
    let seconds = trimmed((duration.as_secs() % 60) as f64 + f64::from(duration.subsec_nanos()) / 1e9, "s");
    match (hours, minutes) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_as_in_go() {
        for (duration, expected) in [
            (Duration::ZERO, "0s"),
            (Duration::from_millis(200), "200ms"),
            (Duration::from_millis(1500), "1.5s"),
            (Duration::from_secs(10), "10s"),
            (Duration::from_mins(15), "15m0s"),
            (Duration::from_millis(3_661_500), "1h1m1.5s"),
            (Duration::from_micros(1500), "1.5ms"),
        ] {
            assert_eq!(go_duration(duration), expected);
        }
    }
}

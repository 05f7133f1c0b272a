//! Human-readable durations: at most two units, and only one where the second is insignificant.

use jiff::SignedDuration;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// For example `3d4h`. Up to two seconds in the future is now, to tolerate clock skew.
pub(crate) fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(seconds, (MINUTE, 'm'), (1, 's')),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds, (HOUR, 'h'), (MINUTE, 'm')),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds, (DAY, 'd'), (HOUR, 'h')),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(seconds, (YEAR, 'y'), (DAY, 'd')),
        _ => format!("{}y", seconds / YEAR),
    }
}

fn two(seconds: i64, large: (i64, char), small: (i64, char)) -> String {
    let rest = seconds % large.0 / small.0;
    let whole = format!("{}{}", seconds / large.0, large.1);
    if rest == 0 { whole } else { format!("{whole}{rest}{}", small.1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_lose_precision_as_they_grow() {
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + MINUTE, "3h1m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (3 * DAY + 4 * HOUR, "3d4h"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR, "8y"),
            (80 * YEAR + 5 * DAY, "80y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), text, "{seconds}");
        }
        assert_eq!(human_duration(SignedDuration::from_millis(-1900)), "0s");
    }
}

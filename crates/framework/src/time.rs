//! Time as data: the pure crates never read a clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A wall-clock time, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Whole seconds since the Unix epoch, rounded down.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// The same time, rounded down to a second.
    pub fn floor_to_second(self) -> Self {
        Self(self.seconds() * 1_000_000)
    }

    /// The time in whole seconds as the API writes it, such as `2026-11-26T04:00:00Z`.
    pub fn to_rfc3339(self) -> String {
        const DAY: i64 = 24 * 60 * 60;
        /// From 0000-03-01 to 1970-01-01. A year that begins in March ends with its leap day.
        const EPOCH: i64 = 719_468;
        const OF_400_YEARS: i64 = 146_097;
        let days = self.seconds().div_euclid(DAY) + EPOCH;
        let (cycle, day) = (days.div_euclid(OF_400_YEARS), days.rem_euclid(OF_400_YEARS));
        let year = (day - day / 1460 + day / 36_524 - day / (OF_400_YEARS - 1)) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (year, month) = (400 * cycle + year + month / 10, (month + 2) % 12 + 1);
        let second = self.seconds().rem_euclid(DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    /// The time `duration` later.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The duration since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// The current time, passed to the scheduler with every call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Wall-clock time, used for backoff and conditions as upstream.
    pub wall: Timestamp,
    /// Monotonic time since the process started, used for durations.
    pub monotonic: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_form_of_the_api() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
        ] {
            assert_eq!(Timestamp(seconds * 1_000_000).to_rfc3339(), expected);
        }
    }
}

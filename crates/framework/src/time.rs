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

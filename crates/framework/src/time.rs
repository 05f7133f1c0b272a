//! Time as data: the pure crates never ask a clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment of wall-clock time, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Whole seconds since the Unix epoch, rounded down.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// The same moment without its fraction of a second.
    pub fn floor_to_second(self) -> Self {
        Self(self.seconds() * 1_000_000)
    }

    /// The moment `duration` later.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long ago `earlier` was; zero when it is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// The present, as handed to the scheduler with every call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Wall-clock time; backoff and conditions use it, as upstream does.
    pub wall: Timestamp,
    /// Time since the process started, which never goes back; durations are measured with it.
    pub monotonic: Duration,
}

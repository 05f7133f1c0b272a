//! What time it is for the scheduler, which asks no clock itself.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use supercargo_framework::{Now, Timestamp};

/// Tells the thread that owns the scheduler the time.
pub trait Clock: Send {
    /// What time it is.
    fn now(&self) -> Now;

    /// Told that there is nothing to do for `idle` unless something happens: how long to wait before asking again.
    /// A clock that skips idle time answers with less.
    fn wait(&self, idle: Duration) -> Duration {
        idle
    }
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { wall: Timestamp::default().plus(since_epoch), monotonic: self.0.elapsed() }
    }
}

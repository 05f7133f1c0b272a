//! The clock of the scheduler, which reads no clock itself.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use supercargo_framework::{Now, Timestamp};

/// The clock of the thread that owns the scheduler.
pub trait Clock: Send {
    /// The current time.
    fn now(&self) -> Now;

    /// How long to wait for messages when nothing else is due for `idle`. A clock that skips idle
    /// time returns less.
    fn wait(&self, idle: Duration) -> Duration {
        idle
    }
}

/// The system clocks.
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

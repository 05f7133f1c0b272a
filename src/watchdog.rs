//! Whether the owner's thread goes on.
//!
//! It notes each step, and when it only waits for messages. A plugin that never returns leaves no other trace: nothing fails,
//! and nothing is scheduled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep};

/// How long a step may take beside what it waits for extenders.
const LONGEST_STEP: Duration = Duration::from_secs(30);
/// After so many times as long the process ends by itself: the lease must come free also where nobody asks how it is.
const PATIENCE: u32 = 2;
/// Before that it is looked at once more: this process may have stood still as a whole, and not the thread within it.
const LAST_LOOK: Duration = Duration::from_secs(1);
/// There is no step: it waits for messages.
const IDLE: u64 = u64::MAX;

/// Noted by the owner's thread, looked at by others.
#[derive(Clone, Debug)]
pub(crate) struct Watchdog {
    zero: Instant,
    /// When the step under way began, in milliseconds since `zero`, or [`IDLE`].
    step: Arc<AtomicU64>,
    longest_step: Duration,
}

/// The owner's thread does not go on.
#[derive(Debug, Error)]
#[error("the scheduler has not advanced for {} s", .stalled_for.as_secs())]
pub(crate) struct Stalled {
    stalled_for: Duration,
}

impl Watchdog {
    /// Of a thread that has not begun. A call to an extender, which counts as a step, may take as long as this.
    pub(crate) fn new(longest_call: Duration) -> Self {
        let longest_step = LONGEST_STEP.saturating_add(longest_call);
        Self { zero: Instant::now(), step: Arc::new(AtomicU64::new(IDLE)), longest_step }
    }

    /// A step begins.
    pub(crate) fn tick(&self) {
        let millis = self.zero.elapsed().as_millis();
        self.step.store(u64::try_from(millis).unwrap_or(IDLE), Ordering::Relaxed);
    }

    /// There is nothing to do until something happens.
    pub(crate) fn idle(&self) {
        self.step.store(IDLE, Ordering::Relaxed);
    }

    /// The check `scheduler` of health endpoints.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Stalled> {
        let stalled_for = self.stalled_for(now);
        if stalled_for > self.longest_step { Err(Stalled { stalled_for }) } else { Ok(()) }
    }

    /// Resolves when there is no hope that it goes on, if ever.
    pub(crate) async fn expired(&self) -> Stalled {
        let limit = self.longest_step.saturating_mul(PATIENCE);
        loop {
            let (step, stalled_for) = (self.step.load(Ordering::Relaxed), self.stalled_for(Instant::now()));
            sleep(limit.saturating_sub(stalled_for).max(LAST_LOOK)).await;
            if stalled_for >= limit && self.step.load(Ordering::Relaxed) == step {
                return Stalled { stalled_for };
            }
        }
    }

    /// When the step under way began.
    #[cfg(test)]
    pub(crate) fn step(&self) -> u64 {
        self.step.load(Ordering::Relaxed)
    }

    /// How long the step under way has taken.
    fn stalled_for(&self, now: Instant) -> Duration {
        match self.step.load(Ordering::Relaxed) {
            IDLE => Duration::ZERO,
            began => now.saturating_duration_since(self.zero + Duration::from_millis(began)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_step_that_takes_too_long_is_a_stall_and_rest_is_none() {
        let watchdog = Watchdog::new(Duration::from_secs(5));
        let after = |seconds| Instant::now() + Duration::from_secs(seconds);
        assert!(watchdog.check(after(1000)).is_ok(), "it has not begun");
        watchdog.tick();
        assert!(watchdog.check(after(35)).is_ok());
        let stalled = watchdog.check(after(36)).unwrap_err();
        assert_eq!(stalled.to_string(), "the scheduler has not advanced for 36 s");
        sleep(Duration::from_secs(36)).await;
        watchdog.tick();
        assert!(watchdog.check(Instant::now()).is_ok(), "it goes on");
        watchdog.idle();
        assert!(watchdog.check(after(1000)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_scheduler_that_stands_still_is_given_up_and_one_that_rests_is_not() {
        let watchdog = Watchdog::new(Duration::ZERO);
        let resting = tokio::time::timeout(Duration::from_hours(1), watchdog.expired());
        assert!(resting.await.is_err());
        watchdog.tick();
        let began = Instant::now();
        assert_eq!(watchdog.expired().await.to_string(), "the scheduler has not advanced for 60 s");
        assert_eq!(began.elapsed().as_secs(), 61);
    }
}

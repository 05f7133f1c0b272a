//! The fence: blocks writes of a process that does not lead.

use std::sync::Arc;

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Checked before each request. It closes by the clock, so it also stops a process that was
/// suspended past the end of its lease, alone or with its machine. Initially closed.
#[derive(Clone, Debug)]
pub struct Fence {
    state: Arc<Mutex<State>>,
    is_for_events: bool,
    suspended: fn() -> Duration,
}

#[derive(Debug, Default)]
struct State {
    /// The end by the monotonic clock, and how long the machine had been suspended until then.
    until: Option<(Instant, Duration)>,
    is_released: bool,
}

impl Default for Fence {
    fn default() -> Self {
        Self { state: Arc::default(), is_for_events: false, suspended }
    }
}

/// How long the machine has been suspended since it started. The monotonic clock, by which Rust
/// measures time, stands still meanwhile, but the lease runs out.
fn suspended() -> Duration {
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, Timespec, clock_gettime};
        // Clocks since the start are not negative.
        let time = |Timespec { tv_sec, tv_nsec }| Duration::new(tv_sec as u64, tv_nsec as u32);
        let monotonic = time(clock_gettime(ClockId::Monotonic));
        time(clock_gettime(ClockId::Boottime)).saturating_sub(monotonic)
    }
    #[cfg(not(target_os = "linux"))]
    Duration::ZERO
}

impl Fence {
    /// A view for events. They may be written after the lease is released, because they do not
    /// conflict with the next leader.
    pub fn for_events(&self) -> Self {
        Self { is_for_events: true, ..self.clone() }
    }

    /// Whether a request may be sent now.
    pub(crate) fn is_open(&self) -> bool {
        let State { until, is_released } = *self.state.lock();
        let is_before = |(end, suspended): (Instant, Duration)| {
            Instant::now() + (self.suspended)().saturating_sub(suspended) < end
        };
        until.is_some_and(is_before) && (self.is_for_events || !is_released)
    }

    /// Opens the fence until then.
    pub(crate) fn open_until(&self, until: Instant) {
        self.state.lock().until = Some((until, (self.suspended)()));
    }

    /// Blocks everything but events from now on.
    pub(crate) fn release(&self) {
        self.state.lock().is_released = true;
    }

    /// Closes the fence.
    pub(crate) fn close(&self) {
        self.state.lock().until = None;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static SUSPENDED: Cell<Duration> = const { Cell::new(Duration::from_secs(100)) };
    }

    #[test]
    fn fence_closes_when_the_machine_was_suspended_past_its_end() {
        let fence = Fence { suspended: || SUSPENDED.get(), ..Fence::default() };
        fence.open_until(Instant::now() + Duration::from_secs(12));
        assert!(fence.is_open());
        SUSPENDED.set(Duration::from_secs(105));
        assert!(fence.is_open());
        SUSPENDED.set(Duration::from_mins(2));
        assert!(!fence.is_open() && !fence.for_events().is_open());
        fence.open_until(Instant::now() + Duration::from_secs(12));
        assert!(fence.is_open());
    }

    #[test]
    fn time_of_suspension_does_not_pass_while_the_machine_runs() {
        // The two clocks are read one after the other.
        assert!(suspended().abs_diff(suspended()) < Duration::from_secs(1));
    }
}

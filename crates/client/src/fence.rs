//! The fence: blocks writes of a process that does not lead.

use std::sync::Arc;

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::host::Clock;

/// Checked before each request. It closes by the clock, so it also stops a process that was
/// suspended past the end of its lease, alone or with its machine. Initially closed.
#[derive(Clone, Debug)]
pub struct Fence {
    state: Arc<Mutex<State>>,
    is_for_events: bool,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct State {
    /// The end, unless the machine is suspended for longer than until then.
    until: Option<Moment>,
    is_released: bool,
}

/// A time by the monotonic clock, and how long the machine had been suspended by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    suspended: Duration,
}

impl Fence {
    /// A closed fence on a machine with this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Arc::default(), is_for_events: false, clock }
    }

    /// A view for events. They may be written after the lease is released, because they do not
    /// conflict with the next leader.
    pub fn for_events(&self) -> Self {
        Self { is_for_events: true, ..self.clone() }
    }

    /// Whether a request may be sent now.
    pub(crate) fn is_open(&self) -> bool {
        let State { until, is_released } = *self.state.lock();
        let now = self.moment();
        let is_before = |end: Moment| now.at + now.suspended.saturating_sub(end.suspended) < end.at;
        until.is_some_and(is_before) && (self.is_for_events || !is_released)
    }

    /// The time by the clocks that close the fence.
    pub(crate) fn moment(&self) -> Moment {
        Moment { at: Instant::now(), suspended: self.clock.suspended() }
    }

    /// Opens the fence for this long, counted from `since`: the answer that allows it may be read
    /// only after a suspension.
    pub(crate) fn open_for(&self, hold: Duration, since: Moment) {
        self.state.lock().until = Some(Moment { at: since.at + hold, ..since });
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
    use supercargo_framework::Now;

    use super::*;

    /// The machine has been suspended for this long.
    #[derive(Debug, Default)]
    struct Suspended(Mutex<Duration>);

    impl Clock for Suspended {
        fn now(&self) -> Now {
            Now::default()
        }

        fn suspended(&self) -> Duration {
            *self.0.lock()
        }
    }

    #[test]
    fn fence_closes_when_the_machine_was_suspended_past_its_end() {
        let clock = Arc::new(Suspended(Mutex::new(Duration::from_secs(100))));
        let (fence, hold) = (Fence::new(clock.clone()), Duration::from_secs(12));
        let sent = fence.moment();
        fence.open_for(hold, sent);
        assert!(fence.is_open());
        *clock.0.lock() = Duration::from_secs(105);
        assert!(fence.is_open());
        *clock.0.lock() = Duration::from_mins(2);
        assert!(!fence.is_open() && !fence.for_events().is_open());
        fence.open_for(hold, sent);
        assert!(!fence.is_open(), "the suspension was between the request and its answer");
        fence.open_for(hold, fence.moment());
        assert!(fence.is_open());
    }
}

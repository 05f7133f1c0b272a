//! The fence: blocks writes of a process that does not lead.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Checked before each request. It closes by the clock, so it also stops a process that was
/// suspended past the end of its lease. Initially closed.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    state: Arc<Mutex<State>>,
    is_for_events: bool,
}

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    is_released: bool,
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
        until.is_some_and(|until| Instant::now() < until) && (self.is_for_events || !is_released)
    }

    /// Opens the fence until then.
    pub(crate) fn open_until(&self, until: Instant) {
        self.state.lock().until = Some(until);
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

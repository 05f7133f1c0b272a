//! Until when this process may write.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Asked before each request that leaves: what does not hold the lease any more, as far as its clock can tell, begins nothing.
/// This is what stops a process that slept through its lease, before anything in it has noticed. Closed at first.
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
    /// The same for events: those about what this scheduler did while it led may still be written when it has given the lease up,
    /// because they meet nothing that the next leader does.
    pub fn for_events(&self) -> Self {
        Self { is_for_events: true, ..self.clone() }
    }

    /// Whether a request may leave now.
    pub(crate) fn is_open(&self) -> bool {
        let State { until, is_released } = *self.state.lock();
        until.is_some_and(|until| Instant::now() < until) && (self.is_for_events || !is_released)
    }

    /// Lets requests pass until then.
    pub(crate) fn open_until(&self, until: Instant) {
        self.state.lock().until = Some(until);
    }

    /// Lets nothing but events pass from here on.
    pub(crate) fn release(&self) {
        self.state.lock().is_released = true;
    }

    /// Lets nothing pass.
    pub(crate) fn close(&self) {
        self.state.lock().until = None;
    }
}

//! Until when this process may write.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Asked before each request that leaves: what does not hold the lease any more, as far as its clock can tell, begins nothing.
/// This is what stops a process that slept through its lease, before anything in it has noticed. Closed at first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fence(Arc<Mutex<Option<Instant>>>);

impl Fence {
    /// Whether a request may leave now.
    pub(crate) fn is_open(&self) -> bool {
        let until = *self.0.lock();
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Lets requests pass until then.
    pub(super) fn open_until(&self, until: Instant) {
        *self.0.lock() = Some(until);
    }

    /// Lets none pass.
    pub(super) fn close(&self) {
        *self.0.lock() = None;
    }
}

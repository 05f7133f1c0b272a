//! The requests in flight on a connection, and its idle time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The requests in flight on a connection, and its idle time.
#[derive(Clone, Default)]
pub(super) struct Activity {
    counted: Arc<Mutex<Counted>>,
    /// Notified when a request ends.
    ended: Arc<Notify>,
}

struct Counted {
    under_way: usize,
    last: Instant,
}

impl Default for Counted {
    fn default() -> Self {
        Self { under_way: 0, last: Instant::now() }
    }
}

/// A guard for a request in flight.
pub(super) struct Busy(Activity);

impl Activity {
    pub(super) fn begin(&self) -> Busy {
        self.counted.lock().under_way += 1;
        Busy(self.clone())
    }

    /// When the connection became idle; `None` while it is busy.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let counted = self.counted.lock();
        (counted.under_way == 0).then_some(counted.last)
    }

    /// Waits until the connection has been idle for `limit`.
    pub(super) async fn idle(&self, limit: Duration) {
        loop {
            self.done().await;
            let until = self.counted.lock().last + limit;
            sleep_until(until).await;
            if self.idle_since().is_some_and(|since| since + limit <= Instant::now()) {
                return;
            }
        }
    }

    /// Waits until no request is in flight.
    pub(super) async fn done(&self) {
        while self.counted.lock().under_way > 0 {
            self.ended.notified().await;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut counted = self.0.counted.lock();
        counted.under_way -= 1;
        counted.last = Instant::now();
        self.0.ended.notify_one();
    }
}

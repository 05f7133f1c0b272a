//! What happens on a connection.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// What happens on a connection.
#[derive(Clone, Default)]
pub(super) struct Activity {
    counted: Arc<Mutex<Counted>>,
    /// A request has ended.
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

/// A request that is under way for as long as this is there.
pub(super) struct Busy(Activity);

impl Activity {
    pub(super) fn begin(&self) -> Busy {
        self.counted.lock().under_way += 1;
        Busy(self.clone())
    }

    /// Since when there has been nothing to do; `None` while there is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let counted = self.counted.lock();
        (counted.under_way == 0).then_some(counted.last)
    }

    /// Waits until there has been nothing to do for so long.
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

    /// Waits until no request is under way.
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

//! The requests in flight on a connection, its idle time, and whether its client is known.

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
    is_admitted: bool,
}

impl Default for Counted {
    fn default() -> Self {
        Self { under_way: 0, last: Instant::now(), is_admitted: false }
    }
}

/// How much a connection matters, least first: those of strangers, then idle ones, then those that
/// have been idle or open for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    is_admitted: bool,
    is_busy: bool,
    since: Instant,
}

/// A guard for a request in flight.
pub(super) struct Busy(Activity);

impl Activity {
    pub(super) fn begin(&self) -> Busy {
        self.counted.lock().under_way += 1;
        Busy(self.clone())
    }

    /// Marks the client as known: a request was authorized.
    pub(super) fn admit(&self) {
        self.counted.lock().is_admitted = true;
    }

    pub(super) fn rank(&self) -> Rank {
        let Counted { under_way, last, is_admitted } = *self.counted.lock();
        Rank { is_admitted, is_busy: under_way > 0, since: last }
    }

    /// When the connection became idle; `None` while it is busy.
    fn idle_since(&self) -> Option<Instant> {
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

//! The requests in flight on a connection, its idle time, and what is known of its client.

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
    client: Client,
}

impl Default for Counted {
    fn default() -> Self {
        Self { under_way: 0, last: Instant::now(), client: Client::Stranger }
    }
}

/// What is known of a client, least important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Client {
    /// It has sent no request that was answered.
    Stranger,
    /// A request was authorized.
    Known,
    /// It has only sent requests that everybody may send.
    Probe,
}

/// How much connections of the same kind of client matter, least first: idle ones, then those that
/// have been idle or open for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
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

    /// Marks the client as known.
    pub(super) fn admit(&self) {
        self.counted.lock().client = Client::Known;
    }

    /// Marks the client as a probe, unless it is known.
    pub(super) fn probe(&self) {
        let mut counted = self.counted.lock();
        if counted.client == Client::Stranger {
            counted.client = Client::Probe;
        }
    }

    pub(super) fn rank(&self) -> (Client, Rank) {
        let Counted { under_way, last, client } = *self.counted.lock();
        (client, Rank { is_busy: under_way > 0, since: last })
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

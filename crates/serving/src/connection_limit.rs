//! Limits the number of connections. When the last slot is taken, the connection that matters least
//! is closed: that of a stranger before that of a known client, an idle one before a busy one. So
//! there is always a slot for a probe, and strangers cost known clients at most one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::activity::Activity;

/// When to look for another connection to close, if the last one takes longer.
const RETRY_PERIOD: Duration = Duration::from_millis(100);

/// A limit of open connections.
pub(super) struct ConnectionLimit {
    free: Arc<Semaphore>,
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    by_number: BTreeMap<u64, (Activity, CancellationToken)>,
    next_number: u64,
}

/// A reserved slot for the next connection.
pub(super) struct Reservation {
    _permit: Option<OwnedSemaphorePermit>,
}

/// The slot of a connection, released on drop.
pub(super) struct Slot {
    number: u64,
    open: Arc<Mutex<Open>>,
    /// The requests on the connection.
    pub(super) activity: Activity,
    /// Cancelled to close the connection for another one.
    pub(super) leave: CancellationToken,
    _reservation: Reservation,
}

impl ConnectionLimit {
    pub(super) fn new(most: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(most)), open: Arc::default() }
    }

    /// Waits for a free slot, closing a connection if necessary.
    pub(super) async fn reserve(&self) -> Reservation {
        loop {
            if self.free.available_permits() == 0 {
                self.make_room();
            }
            if let Ok(permit) = timeout(RETRY_PERIOD, Arc::clone(&self.free).acquire_owned()).await {
                // The semaphore is never closed, so the permit exists.
                return Reservation { _permit: permit.ok() };
            }
        }
    }

    /// Assigns a slot to an accepted connection.
    pub(super) fn take(&self, reservation: Reservation) -> Slot {
        let (activity, leave) = (Activity::default(), CancellationToken::new());
        let mut open = self.open.lock();
        let number = open.next_number;
        open.next_number += 1;
        open.by_number.insert(number, (activity.clone(), leave.clone()));
        Slot { number, open: Arc::clone(&self.open), activity, leave, _reservation: reservation }
    }

    /// Closes the connection that matters least.
    fn make_room(&self) {
        let open = self.open.lock();
        if let Some((_, leave)) = open.by_number.values().min_by_key(|(activity, _)| activity.rank()) {
            leave.cancel();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.open.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::sleep;

    use super::*;

    /// Opens a connection a second after the last one.
    async fn come(limit: &ConnectionLimit) -> Slot {
        let slot = limit.take(limit.reserve().await);
        sleep(Duration::from_secs(1)).await;
        slot
    }

    /// Which of these connections are to be closed, once there is another one.
    fn leaving(limit: &ConnectionLimit, slots: &[&Slot]) -> Vec<bool> {
        assert!(limit.reserve().now_or_never().is_none());
        slots.iter().map(|slot| slot.leave.is_cancelled()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_is_closed() {
        let limit = ConnectionLimit::new(3);
        let [first, second, third] = [come(&limit).await, come(&limit).await, come(&limit).await];
        let busy = first.activity.begin();
        assert_eq!(leaving(&limit, &[&first, &second, &third]), [false, true, false], "the first is busy");
        drop(second);
        let fourth = come(&limit).await;
        drop(busy);
        let leaving = leaving(&limit, &[&first, &third, &fourth]);
        assert_eq!(leaving, [false, true, false], "the first was busy a moment ago");
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_are_closed_before_known_clients() {
        let limit = ConnectionLimit::new(3);
        let [idle, busy, stranger] = [come(&limit).await, come(&limit).await, come(&limit).await];
        idle.activity.admit();
        busy.activity.admit();
        let _requests = [busy.activity.begin(), stranger.activity.begin()];
        assert_eq!(leaving(&limit, &[&idle, &busy, &stranger]), [false, false, true]);
        drop(stranger);
        let known = come(&limit).await;
        known.activity.admit();
        assert_eq!(leaving(&limit, &[&idle, &busy, &known]), [true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_gets_a_slot_even_if_all_are_busy() {
        let limit = ConnectionLimit::new(1);
        let only = come(&limit).await;
        only.activity.admit();
        let _busy = only.activity.begin();
        let leave = only.leave.clone();
        let room = tokio::spawn(async move { drop(limit.reserve().await) });
        leave.cancelled().await;
        drop(only);
        room.await.unwrap();
    }
}

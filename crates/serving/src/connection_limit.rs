//! Limits the number of connections. When the last slot is taken, the connection that has been idle
//! longest is closed. So clients that only hold connections cannot lock out others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::activity::Activity;

/// When to look again for an idle connection, if all are busy.
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

    /// Waits for a free slot, closing an idle connection if necessary.
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

    /// Closes the connection that has been idle longest.
    fn make_room(&self) {
        let open = self.open.lock();
        let idle =
            open.by_number.values().filter_map(|(activity, leave)| Some((activity.idle_since()?, leave)));
        if let Some((_, leave)) = idle.min_by_key(|(since, _)| *since) {
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

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_is_closed() {
        let limit = ConnectionLimit::new(3);
        let [first, second, third] = [come(&limit).await, come(&limit).await, come(&limit).await];
        let busy = first.activity.begin();
        assert!(limit.reserve().now_or_never().is_none());
        let leaves = [&first, &second, &third].map(|slot| slot.leave.is_cancelled());
        assert_eq!(leaves, [false, true, false], "the first is busy");
        drop(second);
        let fourth = come(&limit).await;
        drop(busy);
        assert!(limit.reserve().now_or_never().is_none());
        let leaves = [&first, &third, &fourth].map(|slot| slot.leave.is_cancelled());
        assert_eq!(leaves, [false, true, false], "the first was busy a moment ago");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_connection_to_become_idle_is_closed() {
        let limit = ConnectionLimit::new(1);
        let only = come(&limit).await;
        let busy = only.activity.begin();
        let leave = only.leave.clone();
        let room = tokio::spawn(async move { drop(limit.reserve().await) });
        sleep(Duration::from_mins(1)).await;
        assert!(!leave.is_cancelled());
        drop(busy);
        leave.cancelled().await;
        drop(only);
        room.await.unwrap();
    }
}

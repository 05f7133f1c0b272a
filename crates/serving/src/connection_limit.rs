//! Places for connections. One is always kept free: when the last is taken, whoever has been idle for longest has to leave, so that
//! strangers who only hold connections keep nobody out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::activity::Activity;

/// Who is busy when room is needed may be idle after this.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// So many places, some of them taken.
pub(super) struct Places {
    free: Arc<Semaphore>,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    by_number: BTreeMap<u64, (Activity, CancellationToken)>,
    next_number: u64,
}

/// Room for one more connection.
pub(super) struct Room {
    _permit: Option<OwnedSemaphorePermit>,
}

/// A connection's place, free again when this is dropped.
pub(super) struct Place {
    number: u64,
    taken: Arc<Mutex<Taken>>,
    /// What happens on the connection.
    pub(super) activity: Activity,
    /// Cancelled when the connection has to make room.
    pub(super) leave: CancellationToken,
    _room: Room,
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(most)), taken: Arc::default() }
    }

    /// Waits for room, and makes some.
    pub(super) async fn room(&self) -> Room {
        loop {
            if self.free.available_permits() == 0 {
                self.make_room();
            }
            if let Ok(permit) = timeout(LOOK_AGAIN, Arc::clone(&self.free).acquire_owned()).await {
                // It is never closed, so there is one.
                return Room { _permit: permit.ok() };
            }
        }
    }

    /// A connection has come.
    pub(super) fn take(&self, room: Room) -> Place {
        let (activity, leave) = (Activity::default(), CancellationToken::new());
        let mut taken = self.taken.lock();
        let number = taken.next_number;
        taken.next_number += 1;
        taken.by_number.insert(number, (activity.clone(), leave.clone()));
        Place { number, taken: Arc::clone(&self.taken), activity, leave, _room: room }
    }

    /// Has whoever has been idle for longest leave.
    fn make_room(&self) {
        let taken = self.taken.lock();
        let idle =
            taken.by_number.values().filter_map(|(activity, leave)| Some((activity.idle_since()?, leave)));
        if let Some((_, leave)) = idle.min_by_key(|(since, _)| *since) {
            leave.cancel();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::sleep;

    use super::*;

    /// A connection that comes a moment after the last one.
    async fn come(places: &Places) -> Place {
        let place = places.take(places.room().await);
        sleep(Duration::from_secs(1)).await;
        place
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_been_idle_for_longest_makes_room() {
        let places = Places::new(3);
        let [first, second, third] = [come(&places).await, come(&places).await, come(&places).await];
        let busy = first.activity.begin();
        assert!(places.room().now_or_never().is_none());
        let leaves = [&first, &second, &third].map(|place| place.leave.is_cancelled());
        assert_eq!(leaves, [false, true, false], "the first is at work");
        drop(second);
        let fourth = come(&places).await;
        drop(busy);
        assert!(places.room().now_or_never().is_none());
        let leaves = [&first, &third, &fourth].map(|place| place.leave.is_cancelled());
        assert_eq!(leaves, [false, true, false], "the first was at work a moment ago");
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_are_at_work_the_first_to_be_idle_makes_room() {
        let places = Places::new(1);
        let only = come(&places).await;
        let busy = only.activity.begin();
        let leave = only.leave.clone();
        let room = tokio::spawn(async move { drop(places.room().await) });
        sleep(Duration::from_mins(1)).await;
        assert!(!leave.is_cancelled());
        drop(busy);
        leave.cancelled().await;
        drop(only);
        room.await.unwrap();
    }
}

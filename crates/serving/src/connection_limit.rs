//! Limits the number of connections. When the last slot is taken, the connection that matters least
//! is closed: that of a stranger before that of a known client, an idle one before a busy one.
//! Strangers cost known clients at most one.
//!
//! Probes need no credentials, so some slots are theirs: strangers do not get them, and more probes
//! close each other. Of strangers and of probes, those of the address with the most connections are
//! closed first. So a probe keeps its slot until it is answered, although it begins as a stranger.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, Client};

/// When to look for another connection to close, if the last one takes longer.
const RETRY_PERIOD: Duration = Duration::from_millis(100);
/// The slots of probes.
const MAX_PROBES: usize = 16;

/// A limit of open connections.
pub(super) struct ConnectionLimit {
    free: Arc<Semaphore>,
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    by_number: BTreeMap<u64, Connection>,
    next_number: u64,
}

struct Connection {
    peer: IpAddr,
    activity: Activity,
    leave: CancellationToken,
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
                self.open.lock().make_room();
            }
            if let Ok(permit) = timeout(RETRY_PERIOD, Arc::clone(&self.free).acquire_owned()).await {
                // The semaphore is never closed, so the permit exists.
                return Reservation { _permit: permit.ok() };
            }
        }
    }

    /// Assigns a slot to an accepted connection.
    pub(super) fn take(&self, reservation: Reservation, peer: IpAddr) -> Slot {
        let (activity, leave) = (Activity::default(), CancellationToken::new());
        let mut open = self.open.lock();
        let number = open.next_number;
        open.next_number += 1;
        let connection = Connection { peer: network(peer), activity: activity.clone(), leave: leave.clone() };
        open.by_number.insert(number, connection);
        Slot { number, open: Arc::clone(&self.open), activity, leave, _reservation: reservation }
    }
}

impl Open {
    /// Closes the connection that matters least.
    fn make_room(&self) {
        let ranked = self.by_number.values().map(|connection| (connection, connection.activity.rank()));
        let ranked: Vec<_> = ranked.collect();
        let mut crowds = HashMap::<_, usize>::new();
        let mut probes = 0;
        for (connection, (client, _)) in &ranked {
            *crowds.entry((*client, connection.peer)).or_default() += 1;
            probes += usize::from(*client == Client::Probe);
        }
        let worth = |&(connection, (client, rank)): &(&Connection, _)| {
            // Many connections of one known client are its own business.
            let crowd = if client == Client::Known { 0 } else { crowds[&(client, connection.peer)] };
            (client, Reverse(crowd), rank)
        };
        let too_many_probes = probes > MAX_PROBES;
        let candidates =
            ranked.iter().filter(|(_, (client, _))| !too_many_probes || *client == Client::Probe);
        if let Some((connection, _)) = candidates.min_by_key(|one| worth(one)) {
            connection.leave.cancel();
        }
    }
}

/// The address of a client, or its network: an IPv6 client has many addresses.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
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
        come_from(limit, 1).await
    }

    async fn come_from(limit: &ConnectionLimit, address: u8) -> Slot {
        let slot = limit.take(limit.reserve().await, [10, 0, 0, address].into());
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
    async fn strangers_of_the_largest_crowd_are_closed_first() {
        let limit = ConnectionLimit::new(4);
        let mut slots = vec![come_from(&limit, 1).await];
        for _ in 0..2 {
            slots.push(come_from(&limit, 2).await);
        }
        slots.push(come_from(&limit, 3).await);
        let slots: Vec<_> = slots.iter().collect();
        assert_eq!(leaving(&limit, &slots), [false, true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_and_known_clients_do_not_displace_probes() {
        let limit = ConnectionLimit::new(3);
        let [probe, known, stranger] = [come(&limit).await, come(&limit).await, come(&limit).await];
        probe.activity.probe();
        known.activity.admit();
        let _busy = [known.activity.begin(), stranger.activity.begin()];
        assert_eq!(leaving(&limit, &[&probe, &known, &stranger]), [false, false, true]);
        drop(stranger);
        let newer = come(&limit).await;
        newer.activity.admit();
        assert_eq!(leaving(&limit, &[&probe, &known, &newer]), [false, false, true], "the idle one");
    }

    #[tokio::test(start_paused = true)]
    async fn surplus_probes_of_one_address_displace_only_each_other() {
        let limit = ConnectionLimit::new(MAX_PROBES + 3);
        let kubelet = come_from(&limit, 1).await;
        kubelet.activity.probe();
        let known = come_from(&limit, 3).await;
        known.activity.admit();
        // It stays known.
        known.activity.probe();
        let stranger = come_from(&limit, 3).await;
        let mut probes = Vec::new();
        for _ in 0..MAX_PROBES {
            let probe = come_from(&limit, 2).await;
            probe.activity.probe();
            probes.push(probe);
        }
        let first = [&kubelet, &known, &stranger, &probes[0], &probes[1]];
        assert_eq!(leaving(&limit, &first), [false, false, false, true, false]);
    }

    #[test]
    fn addresses_of_an_ipv6_network_count_as_one() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
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

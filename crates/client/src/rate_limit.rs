//! Rate limit: `clientConnection.qps` and `burst`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Allows a burst of requests, and then a fixed rate.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    interval: Duration,
    burst: u32,
    /// When the next request is due at exactly the permitted rate.
    due: Arc<Mutex<Option<Instant>>>,
}

impl RateLimiter {
    /// A limit of `qps` requests per second with a burst; `None` if `qps` is not positive.
    pub fn new(qps: f32, burst: u32) -> Option<Self> {
        let interval = Duration::try_from_secs_f64(1.0 / f64::from(qps)).ok().filter(|_| qps > 0.0)?;
        Some(Self { interval, burst: burst.max(1), due: Arc::default() })
    }

    /// Waits for this request's turn.
    pub async fn ready(&self) {
        let now = Instant::now();
        let turn = self.take_turn(now);
        // Even a sleep until now lasts until the next timer tick.
        if turn > now {
            tokio::time::sleep_until(turn).await;
        }
    }

    fn take_turn(&self, now: Instant) -> Instant {
        let mut due = self.due.lock();
        let earliest = due.unwrap_or(now).max(now);
        *due = Some(earliest.checked_add(self.interval).unwrap_or(earliest));
        // A product out of range is an endless burst.
        let turn = self.interval.checked_mul(self.burst - 1).and_then(|ahead| earliest.checked_sub(ahead));
        turn.map_or(now, |turn| turn.max(now))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_in_turn() {
        let limit = RateLimiter::new(10.0, 3).unwrap();
        let start = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..6 {
            limit.ready().await;
            waits.push((Instant::now() - start).as_millis());
        }
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        assert!(RateLimiter::new(0.0, 3).is_none() && RateLimiter::new(-1.0, 3).is_none());
    }

    #[tokio::test]
    async fn within_the_burst_there_is_nothing_to_wait_for() {
        let limit = RateLimiter::new(10.0, 3).unwrap();
        let turns = [0; 4].map(|_| limit.ready().now_or_never().is_some());
        assert_eq!(turns, [true, true, true, false]);
    }
}

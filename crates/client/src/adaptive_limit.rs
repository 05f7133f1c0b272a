//! Adaptive limit of the requests in flight: as many as the API server accepts.
//!
//! Additive increase, multiplicative decrease, as in TCP: overload halves the limit, and each full
//! round of answered requests raises it by one. If the server rejects even a single request, the
//! client pauses for as long as the server asks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// The initial and maximum limit. The API server allows 100 streams per HTTP/2 connection. The
/// request that takes the last one waits in hyper, which drops it if the connection ends: nobody
/// knows then whether it was sent.
const MAX_IN_FLIGHT: f64 = 98.0;

/// Limits the requests in flight of a client. Requests above the limit wait, each kind in order.
#[derive(Clone)]
pub(crate) struct AdaptiveLimit(Arc<Mutex<State>>);

struct State {
    limit: f64,
    in_flight: usize,
    waiting: Waiting,
    /// When the server accepts requests again.
    resume: Option<Instant>,
    /// The number of reductions so far.
    reductions: u64,
}

/// What a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Work that begins with this request, or is done with it.
    New,
    /// Work for which requests were sent before.
    Begun,
}

/// The waiting requests. The two kinds take turns: a burst of new work delays none that has begun,
/// and both go on.
#[derive(Default)]
struct Waiting {
    new: VecDeque<oneshot::Sender<Permit>>,
    begun: VecDeque<oneshot::Sender<Permit>>,
    is_turn_of_begun: bool,
}

impl Waiting {
    fn len(&self) -> usize {
        self.new.len() + self.begun.len()
    }

    fn push(&mut self, work: Work, request: oneshot::Sender<Permit>) {
        match work {
            Work::New => self.new.push_back(request),
            Work::Begun => self.begun.push_back(request),
        }
    }

    fn pop(&mut self) -> Option<oneshot::Sender<Permit>> {
        self.is_turn_of_begun = !self.is_turn_of_begun;
        let [first, second] = if self.is_turn_of_begun {
            [&mut self.begun, &mut self.new]
        } else {
            [&mut self.new, &mut self.begun]
        };
        first.pop_front().or_else(|| second.pop_front())
    }
}

/// A permit for one request in flight. Dropping it admits the next request.
pub(crate) struct Permit {
    /// `None` for a permit that was never used.
    limiter: Option<AdaptiveLimit>,
    reductions: u64,
}

/// What the outcome of a request says about the load of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// The server answered.
    Normal,
    /// The server is overloaded and asks for this pause.
    Overload(Duration),
}

/// Statistics of a client's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStats {
    /// The maximum number of requests in flight.
    pub limit: usize,
    /// The number of requests in flight.
    pub in_flight: usize,
    /// The number of waiting requests.
    pub waiting: usize,
}

impl Default for AdaptiveLimit {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            limit: MAX_IN_FLIGHT,
            in_flight: 0,
            waiting: Waiting::default(),
            resume: None,
            reductions: 0,
        })))
    }
}

impl State {
    fn has_capacity(&self) -> bool {
        self.in_flight < self.limit as usize
    }
}

impl AdaptiveLimit {
    /// Waits for a permit, and until the server accepts requests again.
    pub(crate) async fn acquire(&self, work: Work) -> Permit {
        let mut permit = self.permit(work).await;
        loop {
            let (resume, reductions) = {
                let state = self.0.lock();
                (state.resume, state.reductions)
            };
            permit.reductions = reductions;
            match resume {
                Some(resume) if resume > Instant::now() => sleep_until(resume).await,
                _ => return permit,
            }
        }
    }

    async fn permit(&self, work: Work) -> Permit {
        let turn = {
            let mut state = self.0.lock();
            if state.waiting.len() == 0 && state.has_capacity() {
                state.in_flight += 1;
                return self.new_permit();
            }
            let (sender, turn) = oneshot::channel();
            state.waiting.push(work, sender);
            turn
        };
        // Senders are dropped only with the limiter, which the caller holds.
        turn.await.unwrap_or(Permit { limiter: None, reductions: 0 })
    }

    fn new_permit(&self) -> Permit {
        Permit { limiter: Some(self.clone()), reductions: 0 }
    }

    /// Admits waiting requests up to the limit.
    fn admit(&self) {
        loop {
            let waiter = {
                let mut state = self.0.lock();
                if !state.has_capacity() {
                    return;
                }
                let Some(waiter) = state.waiting.pop() else { return };
                state.in_flight += 1;
                waiter
            };
            // The waiting request was cancelled.
            if let Err(mut permit) = waiter.send(self.new_permit()) {
                permit.limiter = None;
                self.0.lock().in_flight -= 1;
            }
        }
    }

    /// The current statistics.
    pub(crate) fn stats(&self) -> LimitStats {
        let state = self.0.lock();
        LimitStats { limit: state.limit as usize, in_flight: state.in_flight, waiting: state.waiting.len() }
    }

    /// The current limit.
    #[cfg(test)]
    pub(crate) fn limit(&self) -> usize {
        self.0.lock().limit as usize
    }
}

impl Permit {
    /// Adapts the limit to the outcome of the request.
    pub(crate) fn record(&self, load: Load) {
        let Some(limiter) = &self.limiter else { return };
        let mut state = limiter.0.lock();
        match load {
            // Only a limit that is reached shows that the server may accept more.
            Load::Normal if !state.has_capacity() => {
                state.limit = (state.limit + 1.0 / state.limit).min(MAX_IN_FLIGHT);
            }
            Load::Normal => {}
            // A request from before the last reduction does not justify another one.
            Load::Overload(_) if self.reductions != state.reductions => {}
            Load::Overload(pause) => {
                state.reductions += 1;
                if state.limit > 1.0 {
                    state.limit = (state.limit / 2.0).max(1.0);
                    let limit = state.limit as usize;
                    tracing::info!(limit, "API server is overloaded; reducing the requests in flight");
                } else {
                    state.resume = Some(Instant::now() + pause);
                }
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.take() {
            limiter.0.lock().in_flight -= 1;
            limiter.admit();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A limiter with this limit.
    fn limited(limit: f64) -> AdaptiveLimit {
        let limiter = AdaptiveLimit::default();
        limiter.0.lock().limit = limit;
        limiter
    }

    async fn acquire(limiter: &AdaptiveLimit, count: usize) -> Vec<Permit> {
        futures::future::join_all((0..count).map(|_| limiter.acquire(Work::New))).await
    }

    #[tokio::test]
    async fn requests_above_the_limit_wait_in_order() {
        let limiter = limited(2.0);
        let mut inside = acquire(&limiter, 2).await;
        let mut third = Box::pin(limiter.acquire(Work::New));
        let mut fourth = Box::pin(limiter.acquire(Work::New));
        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        inside.pop();
        assert!((&mut fourth).now_or_never().is_none(), "the third request is admitted first");
        let third = third.now_or_never().unwrap();
        drop(third);
        assert!(fourth.now_or_never().is_some());
    }

    #[tokio::test]
    async fn permits_of_cancelled_requests_are_passed_on() {
        let limiter = limited(1.0);
        let inside = limiter.acquire(Work::New).await;
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(limiter.acquire(Work::New))).collect();
        for turn in &mut waiting {
            assert!(turn.now_or_never().is_none());
        }
        let mut last = waiting.pop().unwrap();
        // One is cancelled before it is admitted, one afterwards.
        waiting.pop();
        drop(inside);
        waiting.pop();
        assert!((&mut last).now_or_never().is_some());
        assert_eq!(limiter.0.lock().in_flight, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn overload_halves_the_limit_once_per_round() {
        let limiter = limited(64.0);
        let permits = acquire(&limiter, 64).await;
        for permit in &permits {
            permit.record(Load::Overload(Duration::ZERO));
        }
        assert_eq!(limiter.limit(), 32);
        drop(permits);
        for expected in [16, 8, 4, 2, 1, 1] {
            limiter.acquire(Work::New).await.record(Load::Overload(Duration::ZERO));
            assert_eq!(limiter.limit(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn limit_grows_by_one_per_full_round() {
        let limiter = limited(1.0);
        let requests = (0..500).map(|_| async {
            let permit = limiter.acquire(Work::New).await;
            tokio::time::sleep(SECOND / 100).await;
            permit.record(Load::Normal);
        });
        futures::future::join_all(requests).await;
        // 1 + 2 + … + 31 is about 500.
        assert!((25..=33).contains(&limiter.limit()), "{}", limiter.limit());
        let limit = limiter.limit();
        limiter.acquire(Work::New).await.record(Load::Normal);
        assert_eq!(limiter.limit(), limit, "an unused limit does not grow");
        limiter.0.lock().limit = MAX_IN_FLIGHT;
        for permit in acquire(&limiter, MAX_IN_FLIGHT as usize).await {
            permit.record(Load::Normal);
        }
        assert_eq!(limiter.limit(), MAX_IN_FLIGHT as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_pause_if_the_server_rejects_a_single_one() {
        let limiter = limited(2.0);
        let began = Instant::now();
        limiter.acquire(Work::New).await.record(Load::Overload(5 * SECOND));
        acquire(&limiter, 1).await;
        assert_eq!((limiter.limit(), began.elapsed()), (1, Duration::ZERO));
        limiter.acquire(Work::New).await.record(Load::Overload(5 * SECOND));
        let (first, second) = (limiter.acquire(Work::New), limiter.acquire(Work::New));
        let first = async { drop(first.await) };
        tokio::join!(first, async { drop(second.await) });
        assert_eq!(began.elapsed(), 5 * SECOND);
        limiter.acquire(Work::New).await.record(Load::Normal);
        drop(limiter.acquire(Work::New).await);
        assert_eq!(began.elapsed(), 5 * SECOND);
    }

    #[tokio::test]
    async fn new_and_begun_work_take_turns() {
        let limiter = limited(1.0);
        let inside = limiter.acquire(Work::New).await;
        let order = Mutex::new(Vec::new());
        let request = |work, name| {
            let (limiter, order) = (&limiter, &order);
            async move {
                let _permit = limiter.acquire(work).await;
                order.lock().push(name);
            }
            .boxed_local()
        };
        let new = (1..=4).map(|name| request(Work::New, name));
        let begun = (11..=12).map(|name| request(Work::Begun, name));
        let all = futures::future::join_all(new.chain(begun));
        tokio::join!(all, async { drop(inside) });
        assert_eq!(*order.lock(), [11, 1, 12, 2, 3, 4]);
    }
}

//! How many requests a client has under way at once: as many as the API server takes.
//!
//! What TCP does with segments: each time the server says that it is too busy, half as many; for each window full that it
//! answers, one more. When it refuses even a request that comes alone, nothing is sent for as long as it asks for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// The most requests at once, and as many as before anything is known. One HTTP/2 connection carries 100 with the API server's
/// settings; more would wait in line there, and could not be told from those under way when the connection ends.
const MOST: f64 = 100.0;

/// The requests under way of one client, and those that wait.
#[derive(Clone)]
pub struct Window(Arc<Mutex<State>>);

struct State {
    limit: f64,
    under_way: usize,
    /// Who waits for a place, in order.
    waiting: VecDeque<oneshot::Sender<Place>>,
    /// When a server that takes nothing wants to be asked again.
    resume: Option<Instant>,
    /// Counts reductions.
    reductions: u64,
}

/// A request's place among those under way. It is free again when this is dropped.
pub(crate) struct Place {
    /// `None` for one that was never taken.
    window: Option<Window>,
    reductions: u64,
}

/// How a request went, as far as it says whether the server keeps up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// It was answered.
    Fine,
    /// The server is too busy, and wants to be left alone for so long.
    TooMuch(Duration),
}

/// How things stand with a client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// How many may be under way.
    pub limit: usize,
    /// How many are.
    pub under_way: usize,
    /// How many wait for a place.
    pub waiting: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            limit: MOST,
            under_way: 0,
            waiting: VecDeque::new(),
            resume: None,
            reductions: 0,
        })))
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.under_way < self.limit as usize
    }
}

impl Window {
    /// Waits for a place, and for the server to be ready for requests again.
    pub(crate) async fn enter(&self) -> Place {
        let mut place = self.place().await;
        loop {
            let (resume, reductions) = {
                let state = self.0.lock();
                (state.resume, state.reductions)
            };
            place.reductions = reductions;
            match resume {
                Some(resume) if resume > Instant::now() => sleep_until(resume).await,
                _ => return place,
            }
        }
    }

    async fn place(&self) -> Place {
        let turn = {
            let mut state = self.0.lock();
            if state.waiting.is_empty() && state.has_room() {
                state.under_way += 1;
                return self.new_place();
            }
            let (sender, turn) = oneshot::channel();
            state.waiting.push_back(sender);
            turn
        };
        // Those who wait are dropped with the window only, and whoever calls this has it.
        turn.await.unwrap_or(Place { window: None, reductions: 0 })
    }

    fn new_place(&self) -> Place {
        Place { window: Some(self.clone()), reductions: 0 }
    }

    /// Gives free places to those who wait.
    fn admit(&self) {
        loop {
            let waiter = {
                let mut state = self.0.lock();
                if !state.has_room() {
                    return;
                }
                let Some(waiter) = state.waiting.pop_front() else { return };
                state.under_way += 1;
                waiter
            };
            // Whoever has stopped waiting gives it back.
            if let Err(mut place) = waiter.send(self.new_place()) {
                place.window = None;
                self.0.lock().under_way -= 1;
            }
        }
    }

    /// How things stand.
    pub(crate) fn figures(&self) -> Figures {
        let state = self.0.lock();
        Figures { limit: state.limit as usize, under_way: state.under_way, waiting: state.waiting.len() }
    }

    /// How many requests may be under way now.
    #[cfg(test)]
    pub(crate) fn limit(&self) -> usize {
        self.0.lock().limit as usize
    }
}

impl Place {
    /// Learns from how the request went.
    pub(crate) fn learn(&self, load: Load) {
        let Some(window) = &self.window else { return };
        let mut state = window.0.lock();
        match load {
            // Only a window that was used to the full shows that more would have been taken.
            Load::Fine if !state.has_room() => state.limit = (state.limit + 1.0 / state.limit).min(MOST),
            Load::Fine => {}
            // What was sent before the last reduction says nothing of what came after it.
            Load::TooMuch(_) if self.reductions != state.reductions => {}
            Load::TooMuch(pause) => {
                state.reductions += 1;
                if state.limit > 1.0 {
                    state.limit = (state.limit / 2.0).max(1.0);
                    let at_once = state.limit as usize;
                    tracing::info!(at_once, "the API server is too busy: sending fewer requests at once");
                } else {
                    state.resume = Some(Instant::now() + pause);
                }
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(window) = self.window.take() {
            window.0.lock().under_way -= 1;
            window.admit();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A window with room for so many.
    fn window(limit: f64) -> Window {
        let window = Window::default();
        window.0.lock().limit = limit;
        window
    }

    async fn enter(window: &Window, count: usize) -> Vec<Place> {
        futures::future::join_all((0..count).map(|_| window.enter())).await
    }

    #[tokio::test]
    async fn no_more_than_the_limit_enter_and_the_others_in_order() {
        let window = window(2.0);
        let mut inside = enter(&window, 2).await;
        let mut third = Box::pin(window.enter());
        let mut fourth = Box::pin(window.enter());
        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        inside.pop();
        assert!((&mut fourth).now_or_never().is_none(), "it is the third's turn");
        let third = third.now_or_never().unwrap();
        drop(third);
        assert!(fourth.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_place_that_nobody_waits_for_any_more_goes_to_the_next() {
        let window = window(1.0);
        let inside = window.enter().await;
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(window.enter())).collect();
        for turn in &mut waiting {
            assert!(turn.now_or_never().is_none());
        }
        let mut last = waiting.pop().unwrap();
        // One gives up before its turn comes, and one when it has come already.
        waiting.pop();
        drop(inside);
        waiting.pop();
        assert!((&mut last).now_or_never().is_some());
        assert_eq!(window.0.lock().under_way, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_server_gets_half_as_much_once_for_all_that_was_under_way() {
        let window = window(64.0);
        let places = enter(&window, 64).await;
        for place in &places {
            place.learn(Load::TooMuch(Duration::ZERO));
        }
        assert_eq!(window.limit(), 32);
        drop(places);
        for expected in [16, 8, 4, 2, 1, 1] {
            window.enter().await.learn(Load::TooMuch(Duration::ZERO));
            assert_eq!(window.limit(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_that_is_used_grows_by_one_for_each_window_full() {
        let window = window(1.0);
        let requests = (0..500).map(|_| async {
            let place = window.enter().await;
            tokio::time::sleep(SECOND / 100).await;
            place.learn(Load::Fine);
        });
        futures::future::join_all(requests).await;
        // 1 + 2 + … + 31 is about 500.
        assert!((25..=33).contains(&window.limit()), "{}", window.limit());
        let limit = window.limit();
        window.enter().await.learn(Load::Fine);
        assert_eq!(window.limit(), limit, "what is not used does not grow");
        window.0.lock().limit = MOST;
        for place in enter(&window, MOST as usize).await {
            place.learn(Load::Fine);
        }
        assert_eq!(window.limit(), MOST as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_refuses_even_one_alone_is_left_alone_as_long_as_it_says() {
        let window = window(2.0);
        let began = Instant::now();
        window.enter().await.learn(Load::TooMuch(5 * SECOND));
        enter(&window, 1).await;
        assert_eq!((window.limit(), began.elapsed()), (1, Duration::ZERO));
        window.enter().await.learn(Load::TooMuch(5 * SECOND));
        let (first, second) = (window.enter(), window.enter());
        let first = async { drop(first.await) };
        tokio::join!(first, async { drop(second.await) });
        assert_eq!(began.elapsed(), 5 * SECOND);
        window.enter().await.learn(Load::Fine);
        drop(window.enter().await);
        assert_eq!(began.elapsed(), 5 * SECOND);
    }
}

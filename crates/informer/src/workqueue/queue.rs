//! The queue itself.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;
use tokio::time::Instant;

use super::order::{Fifo, Order};
use super::rate_limiter::{RateLimiter, default_controller_rate_limiter};
use super::state::{Next, State};
use super::{Item, Key, Metrics};

/// A queue of keys between handlers and workers. Clones share the queue.
///
/// See the [module](super) for its rules. client-go moves delayed keys in a goroutine, which runs
/// every 10 s at least. Here no task is required or left behind: every operation first adds the due
/// keys, and waiters in [`Self::get`] wake when the next key is due.
pub struct WorkQueue<T>(Arc<Shared<T>>);

struct Shared<T> {
    name: Arc<str>,
    state: Mutex<State<T>>,
    /// Outside the state's lock, because limiters can be user code.
    limiter: Mutex<Box<dyn RateLimiter<T>>>,
    /// Wakes workers: one per key, or all if the next due time changes.
    work: Notify,
    /// Wakes the callers that wait for a drain.
    drained: Notify,
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Configures a queue.
pub struct WorkQueueBuilder<T> {
    name: Arc<str>,
    order: Box<dyn Order<T>>,
    limiter: Box<dyn RateLimiter<T>>,
}

impl<T: Key> WorkQueueBuilder<T> {
    /// The queue's name in its [metrics](WorkQueue::metrics).
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// The order in which keys are handed out. The default is [`Fifo`].
    pub fn order(mut self, order: impl Order<T>) -> Self {
        self.order = Box::new(order);
        self
    }

    /// The limiter for [`WorkQueue::add_rate_limited`]. The default is
    /// [`default_controller_rate_limiter`].
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<T>) -> Self {
        self.limiter = Box::new(limiter);
        self
    }

    /// Builds the queue.
    pub fn build(self) -> WorkQueue<T> {
        WorkQueue(Arc::new(Shared {
            name: self.name,
            state: Mutex::new(State::new(self.order)),
            limiter: Mutex::new(self.limiter),
            work: Notify::new(),
            drained: Notify::new(),
        }))
    }
}

impl<T: Key> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Key> WorkQueue<T> {
    /// A first-in, first-out queue with the default rate limiter.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Configures a queue.
    pub fn builder() -> WorkQueueBuilder<T> {
        WorkQueueBuilder {
            name: "".into(),
            order: Box::new(Fifo::new()),
            limiter: Box::new(default_controller_rate_limiter()),
        }
    }

    /// The current state, with due keys added.
    fn state(&self, now: Instant) -> MutexGuard<'_, State<T>> {
        let mut state = self.0.state.lock();
        state.catch_up(now);
        state
    }

    /// Adds a key. Does nothing if it is waiting already, or the queue is shutting down.
    pub fn add(&self, key: T) {
        let now = Instant::now();
        if self.state(now).add(key, now) {
            self.0.work.notify_one();
        }
    }

    /// Adds a key after a delay; immediately if the delay is zero. Of several delays, the earliest
    /// due time applies. Does nothing if the queue shuts down before.
    pub fn add_after(&self, key: T, delay: Duration) {
        let now = Instant::now();
        let mut state = self.state(now);
        if state.is_shutting_down() {
            return;
        }
        state.count_retry();
        if delay.is_zero() {
            if state.add(key, now) {
                self.0.work.notify_one();
            }
        } else if state.add_after(key, now, delay) {
            // Wakes all: a single waiter might be dropped before the key is due.
            self.0.work.notify_waiters();
        }
    }

    /// Adds a key after the delay of the rate limiter.
    pub fn add_rate_limited(&self, key: T) {
        let delay = self.0.limiter.lock().when(&key);
        self.add_after(key, delay);
    }

    /// Resets the key's failures in the rate limiter, once its processing has succeeded or was
    /// given up. Does not remove the key from the queue.
    pub fn forget(&self, key: &T) {
        self.0.limiter.lock().forget(key);
    }

    /// The number of failures that the rate limiter counts for the key.
    pub fn num_requeues(&self, key: &T) -> usize {
        self.0.limiter.lock().num_requeues(key)
    }

    /// Waits for the next key. Returns `None` when the queue is shutting down and empty.
    ///
    /// Cancel safe.
    pub async fn get(&self) -> Option<Item<T>> {
        // A worker that finds a key each time must still yield.
        consume_budget().await;
        loop {
            let woken = self.0.work.notified();
            tokio::pin!(woken);
            // Enabled before the check, so that no later wake-up is lost.
            woken.as_mut().enable();
            let now = Instant::now();
            let next = self.state(now).next(now);
            match next {
                Next::Key(key) => return Some(Item::new(self.clone(), key)),
                Next::End => return None,
                Next::Wait(None) => woken.await,
                Next::Wait(Some(due)) => tokio::select! {
                    () = woken => {}
                    () = tokio::time::sleep_until(due) => {}
                },
            }
        }
    }

    /// The effect of dropping an [`Item`].
    pub(super) fn done(&self, key: &T) {
        let now = Instant::now();
        let mut state = self.state(now);
        if state.done(key, now) {
            self.0.work.notify_one();
        } else if state.is_drained() {
            self.0.drained.notify_waiters();
        }
    }

    /// The number of waiting keys, without those in progress.
    pub fn len(&self) -> usize {
        self.state(Instant::now()).len()
    }

    /// Whether no key is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rejects further adds and discards delayed keys. Workers still receive the waiting keys. Ends
    /// any wait for a drain.
    pub fn shut_down(&self) {
        self.close(false);
        self.0.drained.notify_waiters();
    }

    /// Rejects further adds, and waits until workers have processed all keys, or
    /// [`Self::shut_down`] is called.
    ///
    /// Waits for waiting keys, too, as client-go's documentation says. Its code returns once no key
    /// is in progress, which can leave some behind. Without workers, this waits forever.
    pub async fn shut_down_with_drain(&self) {
        self.close(true);
        loop {
            let drained = self.0.drained.notified();
            if self.state(Instant::now()).is_drained() {
                return;
            }
            drained.await;
        }
    }

    fn close(&self, drain: bool) {
        self.state(Instant::now()).shut_down(drain);
        self.0.work.notify_waiters();
    }

    /// Whether the queue has been shut down, empty or not.
    pub fn is_shutting_down(&self) -> bool {
        self.0.state.lock().is_shutting_down()
    }

    /// The queue's current metrics.
    pub fn metrics(&self) -> Metrics {
        let now = Instant::now();
        self.state(now).metrics(&self.0.name, now)
    }
}

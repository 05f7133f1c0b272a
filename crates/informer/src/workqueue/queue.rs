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

/// A queue of keys between those who notice changes and those who act on them. Clones share the queue.
///
/// See the [module](super) for its rules. client-go moves delayed keys in a goroutine, which looks every 10 s
/// at the latest; here no task is needed, and none is left behind: whoever uses the queue first adds what is
/// due, and those who wait in [`Self::get`] wake when the next key is.
pub struct WorkQueue<T>(Arc<Shared<T>>);

struct Shared<T> {
    name: Arc<str>,
    state: Mutex<State<T>>,
    /// Not under the state's lock, since it may be anybody's.
    limiter: Mutex<Box<dyn RateLimiter<T>>>,
    /// Wakes workers: one per key, all when the times that they wait for are no longer right.
    work: Notify,
    /// Wakes those who wait for a drain.
    drained: Notify,
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Sets a queue up.
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

    /// The order in which keys are handed out, instead of [`Fifo`].
    pub fn order(mut self, order: impl Order<T>) -> Self {
        self.order = Box::new(order);
        self
    }

    /// What [`WorkQueue::add_rate_limited`] asks, instead of [`default_controller_rate_limiter`].
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<T>) -> Self {
        self.limiter = Box::new(limiter);
        self
    }

    /// The queue.
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
    /// A queue in order of arrival with the default rate limiter.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A queue with settings of your own.
    pub fn builder() -> WorkQueueBuilder<T> {
        WorkQueueBuilder {
            name: "".into(),
            order: Box::new(Fifo::new()),
            limiter: Box::new(default_controller_rate_limiter()),
        }
    }

    /// The state as it is now, with what is due.
    fn state(&self, now: Instant) -> MutexGuard<'_, State<T>> {
        let mut state = self.0.state.lock();
        state.catch_up(now);
        state
    }

    /// Asks for the key to be handed out. Does nothing if it waits already, or the queue is shutting down.
    pub fn add(&self, key: T) {
        let now = Instant::now();
        if self.state(now).add(key, now) {
            self.0.work.notify_one();
        }
    }

    /// Adds the key when the delay has passed; at once if it is zero. If the key is to be added later
    /// already, the earlier time holds. Does nothing if the queue is shutting down, now or by then.
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
            // All: if only one looked again and then went away, nobody would wake in time.
            self.0.work.notify_waiters();
        }
    }

    /// Adds the key when the rate limiter says.
    pub fn add_rate_limited(&self, key: T) {
        let delay = self.0.limiter.lock().when(&key);
        self.add_after(key, delay);
    }

    /// Tells the rate limiter that the key is done with, successfully or not, and its failures count no
    /// longer. This does not take the key from the queue.
    pub fn forget(&self, key: &T) {
        self.0.limiter.lock().forget(key);
    }

    /// How often the rate limiter was asked about the key since it was last told to forget it.
    pub fn num_requeues(&self, key: &T) -> usize {
        self.0.limiter.lock().num_requeues(key)
    }

    /// Takes the next key, waiting until there is one; `None` when the queue is shutting down and empty.
    ///
    /// Nothing is lost if this future is dropped before it is ready.
    pub async fn get(&self) -> Option<Item<T>> {
        // A worker that finds a key each time, and never waits, must still let others have the thread.
        consume_budget().await;
        loop {
            let woken = self.0.work.notified();
            tokio::pin!(woken);
            // Before the look, so that nothing that comes after it is missed.
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

    /// What dropping an [`Item`] does.
    pub(super) fn done(&self, key: &T) {
        let now = Instant::now();
        let mut state = self.state(now);
        if state.done(key, now) {
            self.0.work.notify_one();
        } else if state.is_drained() {
            self.0.drained.notify_waiters();
        }
    }

    /// How many keys wait, without those that workers have in hand.
    pub fn len(&self) -> usize {
        self.state(Instant::now()).len()
    }

    /// Whether no key waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the queue for adds, forgets what was to be added later, and lets workers have the rest. Who
    /// waits for a drain waits no longer.
    pub fn shut_down(&self) {
        self.close(false);
        self.0.drained.notify_waiters();
    }

    /// Closes the queue for adds, and waits until workers have got and done everything; [`Self::shut_down`]
    /// ends that wait.
    ///
    /// Keys that wait are waited for, as client-go documents it; its code returns as soon as no key is in
    /// hand, and so may leave some. With no worker to take them, this waits for ever.
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

    /// Whether the queue has been shut down, be it empty or not.
    pub fn is_shutting_down(&self) -> bool {
        self.0.state.lock().is_shutting_down()
    }

    /// How the queue is doing.
    pub fn metrics(&self) -> Metrics {
        let now = Instant::now();
        self.state(now).metrics(&self.0.name, now)
    }
}

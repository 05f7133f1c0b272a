//! A key that a worker is processing.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::{Key, WorkQueue};

/// A key that a worker is processing. No other worker receives it until this is dropped.
///
/// Dropping it is client-go's `Done`, including early returns, cancellation and panics.
pub struct Item<T: Key> {
    queue: WorkQueue<T>,
    key: T,
}

impl<T: Key> Item<T> {
    pub(super) fn new(queue: WorkQueue<T>, key: T) -> Self {
        Self { queue, key }
    }

    /// See [`WorkQueue::add_after`]. The key is queued once this is dropped and the delay has
    /// passed.
    pub fn add_after(&self, delay: Duration) {
        self.queue.add_after(self.key.clone(), delay);
    }

    /// See [`WorkQueue::add_rate_limited`]. The key is queued once this is dropped and the delay
    /// has passed.
    pub fn add_rate_limited(&self) {
        self.queue.add_rate_limited(self.key.clone());
    }

    /// See [`WorkQueue::forget`].
    pub fn forget(&self) {
        self.queue.forget(&self.key);
    }

    /// See [`WorkQueue::num_requeues`].
    pub fn num_requeues(&self) -> usize {
        self.queue.num_requeues(&self.key)
    }
}

impl<T: Key> Deref for Item<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.key
    }
}

impl<T: Key + fmt::Debug> fmt::Debug for Item<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Item").field(&self.key).finish()
    }
}

impl<T: Key> Drop for Item<T> {
    fn drop(&mut self) {
        self.queue.done(&self.key);
    }
}

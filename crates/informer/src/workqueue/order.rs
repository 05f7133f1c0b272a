//! The order in which keys are handed out.

use std::collections::VecDeque;

/// The waiting keys in their order. Each is contained once.
///
/// Same as client-go's `workqueue.Queue`. Called under the queue's lock; must not use the queue.
pub trait Order<T>: Send + 'static {
    /// A waiting key was added again. Its position may change.
    fn touch(&mut self, key: &T);

    /// Adds a key.
    fn push(&mut self, key: T);

    /// Removes the next key.
    fn pop(&mut self) -> Option<T>;

    /// The number of keys.
    fn len(&self) -> usize;

    /// Whether there are no keys.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// First in, first out: the default. Adding a key again does not change its position.
#[derive(Clone, Debug)]
pub struct Fifo<T>(VecDeque<T>);

impl<T> Fifo<T> {
    /// An empty order.
    pub fn new() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + 'static> Order<T> for Fifo<T> {
    fn touch(&mut self, _: &T) {}

    fn push(&mut self, key: T) {
        self.0.push_back(key);
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop_front()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

//! In which order keys are handed out.

use std::collections::VecDeque;

/// The keys that wait, in the order of their turns. Each is in it once.
///
/// Same as client-go's `workqueue.Queue`. It is called under the queue's lock and must not use the queue.
pub trait Order<T>: Send + 'static {
    /// A key that waits already was added again: its turn may be changed.
    fn touch(&mut self, key: &T);

    /// A key begins to wait.
    fn push(&mut self, key: T);

    /// Takes out the key whose turn it is.
    fn pop(&mut self) -> Option<T>;

    /// How many keys wait.
    fn len(&self) -> usize;

    /// Whether no key waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// First in, first out, which is the default. Adding a key again does not change its turn.
#[derive(Clone, Debug)]
pub struct Fifo<T>(VecDeque<T>);

impl<T> Fifo<T> {
    /// Nothing.
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

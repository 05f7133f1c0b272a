//! Limits the bindings that wait for the API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::owner::{Mailbox, Message};

/// With this many bindings waiting, no more pods are scheduled. They stay in the queue, where they
/// hold no resources and are scheduled on newer state. Ten times the bindings in flight, and about
/// a second of work for an API server.
pub(crate) const MAX_BACKLOG: usize = 1_000;

/// Counts the bindings that wait.
#[derive(Clone)]
pub struct Backlog {
    count: Arc<AtomicUsize>,
    mailbox: Mailbox,
}

/// Counts as one waiting binding until dropped.
pub(crate) struct Entry(Backlog);

impl Backlog {
    /// An empty backlog, which tells the owner when there is room again.
    pub fn new(mailbox: Mailbox) -> Self {
        Self { count: Arc::default(), mailbox }
    }

    /// Adds an entry.
    pub(crate) fn enter(&self) -> Entry {
        self.count.fetch_add(1, Ordering::Relaxed);
        Entry(self.clone())
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether more bindings may start. The owner gets [`Message::Room`] when this becomes true
    /// again.
    pub(crate) fn has_room(&self) -> bool {
        self.count() < MAX_BACKLOG
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::Relaxed) == MAX_BACKLOG {
            self.0.mailbox.post(Message::Room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_notified_once_when_there_is_room_again() {
        let (mailbox, messages) = Mailbox::new();
        let backlog = Backlog::new(mailbox);
        let mut entries: Vec<_> = (1..MAX_BACKLOG).map(|_| backlog.enter()).collect();
        assert!(backlog.has_room());
        entries.extend([backlog.enter(), backlog.enter()]);
        assert!(!backlog.has_room());
        entries.pop();
        assert!(!backlog.has_room() && messages.try_recv().is_err(), "it is just full");
        entries.pop();
        assert!(backlog.has_room() && matches!(messages.try_recv(), Ok(Message::Room)));
        drop(entries);
        assert!(messages.try_recv().is_err());
    }
}

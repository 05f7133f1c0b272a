//! What has been begun for bindings and waits for the API server, and when that is too much to begin more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::owner::{Mailbox, Message};

/// While so much waits, no more pods are scheduled: they keep their place in the queue, where a newer cluster decides about them,
/// instead of holding room on a node. Ten times what is under way at most, and about a second's work for an API server.
pub(crate) const MOST: usize = 1_000;

/// Counts.
#[derive(Clone)]
pub(crate) struct Backlog {
    count: Arc<AtomicUsize>,
    mailbox: Mailbox,
}

/// One that counts until this is dropped.
pub(crate) struct Entry(Backlog);

impl Backlog {
    pub(crate) fn new(mailbox: Mailbox) -> Self {
        Self { count: Arc::default(), mailbox }
    }

    /// Counts one more.
    pub(crate) fn enter(&self) -> Entry {
        self.count.fetch_add(1, Ordering::Relaxed);
        Entry(self.clone())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether more may be begun. When that becomes true again, the owner is told.
    pub(crate) fn has_room(&self) -> bool {
        self.count() < MOST
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::Relaxed) == MOST {
            self.0.mailbox.post(Message::Room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_told_once_when_there_is_room_again() {
        let (mailbox, messages) = Mailbox::new();
        let backlog = Backlog::new(mailbox);
        let mut entries: Vec<_> = (1..MOST).map(|_| backlog.enter()).collect();
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

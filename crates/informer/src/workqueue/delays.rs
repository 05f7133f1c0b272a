//! Keys with a delay.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::Key;

/// Replaces delays that are longer than the clock can represent.
const FAR: Duration = Duration::from_hours(24 * 365);

/// The due times of keys. A key has one, the earliest requested.
pub(super) struct Delays<T> {
    /// By due time and, for equal times, by arrival.
    due: BTreeMap<(Instant, u64), T>,
    times: HashMap<T, (Instant, u64)>,
    arrivals: u64,
}

impl<T: Key> Delays<T> {
    pub(super) fn new() -> Self {
        Self { due: BTreeMap::new(), times: HashMap::default(), arrivals: 0 }
    }

    /// Returns whether this key is now the earliest.
    pub(super) fn insert(&mut self, key: T, now: Instant, delay: Duration) -> bool {
        let at = now.checked_add(delay).unwrap_or_else(|| now + FAR);
        if let Some(known) = self.times.get(&key) {
            if known.0 <= at {
                return false;
            }
            self.due.remove(known);
        }
        let first = self.next().is_none_or(|first| at < first);
        self.arrivals += 1;
        let time = (at, self.arrivals);
        self.times.insert(key.clone(), time);
        self.due.insert(time, key);
        first
    }

    /// The earliest due time.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.keys().next().map(|time| time.0)
    }

    /// Removes the next due key, and returns it with its due time.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(T, Instant)> {
        let first = self.due.first_entry().filter(|first| first.key().0 <= now)?;
        let ((at, _), key) = first.remove_entry();
        self.times.remove(&key);
        Some((key, at))
    }

    pub(super) fn clear(&mut self) {
        self.due.clear();
        self.times.clear();
    }
}

//! A queue of scheduled actions.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tokio::time::Instant;

/// Actions ordered by time; simultaneous ones stay in insertion order.
#[derive(Debug)]
pub(super) struct Timers<T> {
    heap: BinaryHeap<Timer<T>>,
    set: u64,
}

#[derive(Debug)]
struct Timer<T> {
    at: Instant,
    place: u64,
    what: T,
}

impl<T> Timers<T> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), set: 0 }
    }

    pub(super) fn set(&mut self, at: Instant, what: T) {
        self.set += 1;
        self.heap.push(Timer { at, place: self.set, what });
    }

    /// The time of the next action.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|timer| timer.at)
    }

    /// Takes the next action if it is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<T> {
        let is_due = self.next().is_some_and(|at| at <= now);
        if is_due { self.heap.pop().map(|timer| timer.what) } else { None }
    }

    /// Waits until the next action is due; forever if there is none.
    pub(super) async fn due(&self) {
        match self.next() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

impl<T> Ord for Timer<T> {
    /// Reversed, because the heap returns the greatest element first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.place).cmp(&(self.at, self.place))
    }
}

impl<T> PartialOrd for Timer<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Timer<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Timer<T> {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn actions_are_ordered_by_time_then_insertion() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timers = Timers::new();
        for (seconds, what) in [(2, 'c'), (1, 'a'), (9, 'z'), (1, 'b')] {
            timers.set(at(seconds), what);
        }
        assert_eq!(timers.next(), Some(at(1)));
        let due: String = std::iter::from_fn(|| timers.take(at(2))).collect();
        assert_eq!(due, "abc");
        assert_eq!(timers.next(), Some(at(9)));
    }
}

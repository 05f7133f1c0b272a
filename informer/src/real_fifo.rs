//! The default queue: every change in its order over all keys, lists and resyncs as one change each.

use std::collections::VecDeque;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tokio::sync::Notify;

use crate::delta::{Batch, Delta, Queue};
use crate::key::ObjectKey;

/// Keys per batch. Large enough to amortise the store's lock, small enough not to hold it for long.
const MAX_BATCH: usize = 1000;

pub(crate) struct RealFifo<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

struct State<T> {
    deltas: VecDeque<Delta<T>>,
    first_list: FirstList,
    closed: bool,
}

/// Where the first list is on its way through the queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstList {
    Awaited,
    Queued,
    /// Popped, or never to come because something else was pushed first.
    Done,
}

impl<T> RealFifo<T> {
    pub(crate) fn new() -> Self {
        let state = State { deltas: VecDeque::new(), first_list: FirstList::Awaited, closed: false };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl<T: Send + Sync + 'static> Queue<T> for RealFifo<T> {
    fn push(&self, delta: Delta<T>) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        if state.first_list == FirstList::Awaited {
            match delta {
                Delta::ReplacedAll(_) => state.first_list = FirstList::Queued,
                Delta::SyncAll | Delta::Bookmark(_) => {}
                _ => state.first_list = FirstList::Done,
            }
        }
        state.deltas.push_back(delta);
        drop(state);
        self.changed.notify_one();
    }

    async fn pop_batch(&self) -> Option<Batch<T>> {
        loop {
            // In a block of its own, so that the guard is gone before the wait.
            {
                let mut state = self.state.lock();
                if let Some(batch) = state.next_batch() {
                    return Some(batch);
                }
                if state.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    fn len(&self) -> usize {
        self.state.lock().deltas.len()
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }
}

impl<T> State<T> {
    fn next_batch(&mut self) -> Option<Batch<T>> {
        let first = self.deltas.pop_front()?;
        let in_initial_list = self.first_list == FirstList::Queued && matches!(first, Delta::ReplacedAll(_));
        if in_initial_list {
            self.first_list = FirstList::Done;
        }
        let mut seen: FxHashSet<ObjectKey> = first.key().cloned().into_iter().collect();
        // What concerns all objects is a batch by itself: handlers then see one server state at a time.
        let alone = seen.is_empty() && !matches!(first, Delta::Bookmark(_));
        let mut deltas = vec![first];
        while !alone && deltas.len() < MAX_BATCH {
            let joins = match self.deltas.front() {
                Some(Delta::Bookmark(_)) => true,
                Some(delta) => delta.key().is_some_and(|key| seen.insert(key.clone())),
                None => false,
            };
            if !joins {
                break;
            }
            deltas.extend(self.deltas.pop_front());
        }
        Some(Batch { deltas, in_initial_list, synced: self.first_list == FirstList::Done })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::delta::Replacement;
    use crate::key::Deleted;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(None, name)
    }

    fn added(name: &str) -> Delta<u32> {
        Delta::Added(key(name), Arc::new(0))
    }

    fn deleted(name: &str) -> Delta<u32> {
        Delta::Deleted(key(name), Deleted::Known(Arc::new(0)))
    }

    fn replaced(names: &[&str]) -> Delta<u32> {
        let objects = names.iter().map(|name| (key(name), Arc::new(0))).collect();
        Delta::ReplacedAll(Replacement { objects, keep: Vec::new(), resource_version: "1".to_owned() })
    }

    fn name(delta: &Delta<u32>) -> String {
        match delta {
            Delta::Added(key, _) => format!("+{key}"),
            Delta::Updated(key, _) => format!("~{key}"),
            Delta::Deleted(key, _) => format!("-{key}"),
            Delta::ReplacedAll(list) => format!("={}", list.objects.len()),
            Delta::SyncAll => "sync".to_owned(),
            Delta::Bookmark(version) => format!("@{version}"),
        }
    }

    async fn batches(queue: &RealFifo<u32>) -> Vec<(String, bool, bool)> {
        queue.close();
        let mut all = Vec::new();
        while let Some(batch) = queue.pop_batch().await {
            let names: Vec<_> = batch.deltas.iter().map(name).collect();
            all.push((names.join(" "), batch.in_initial_list, batch.synced));
        }
        all
    }

    #[tokio::test]
    async fn batches_end_at_a_repeated_key_and_around_what_concerns_all_objects() {
        let queue = RealFifo::new();
        for delta in [
            replaced(&["a", "b"]),
            added("c"),
            Delta::Bookmark("5".to_owned()),
            deleted("a"),
            added("c"),
            Delta::SyncAll,
            added("a"),
            replaced(&[]),
            added("b"),
        ] {
            queue.push(delta);
        }
        let expected = [
            ("=2", true),
            ("+c @5 -a", false),
            ("+c", false),
            ("sync", false),
            ("+a", false),
            ("=0", false),
            ("+b", false),
        ];
        let expected: Vec<_> =
            expected.into_iter().map(|(names, initial)| (names.to_owned(), initial, true)).collect();
        assert_eq!(batches(&queue).await, expected);
    }

    #[tokio::test]
    async fn a_batch_holds_at_most_a_thousand_keys() {
        let queue = RealFifo::new();
        for n in 0..2500 {
            queue.push(added(&n.to_string()));
        }
        queue.close();
        let mut sizes = Vec::new();
        while let Some(batch) = queue.pop_batch().await {
            sizes.push(batch.deltas.len());
        }
        assert_eq!(sizes, [1000, 1000, 500]);
    }

    #[tokio::test]
    async fn an_empty_first_list_syncs_and_what_precedes_it_does_not() {
        let queue = RealFifo::new();
        queue.push(Delta::SyncAll);
        queue.push(replaced(&[]));
        assert_eq!(batches(&queue).await, [("sync".to_owned(), false, false), ("=0".to_owned(), true, true)]);
        let queue = RealFifo::new();
        queue.push(added("a"));
        queue.push(replaced(&[]));
        assert_eq!(batches(&queue).await, [("+a".to_owned(), false, true), ("=0".to_owned(), false, true)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_pop_returns_when_the_queue_is_closed() {
        let queue = Arc::new(RealFifo::<u32>::new());
        let popper = Arc::clone(&queue);
        let popped = tokio::spawn(async move { popper.pop_batch().await.is_none() });
        tokio::task::yield_now().await;
        queue.close();
        queue.push(added("late"));
        assert!(popped.await.unwrap());
    }
}

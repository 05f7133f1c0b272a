use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use futures::FutureExt;
use parking_lot::Mutex;

use super::*;
use crate::testing::settle;
use crate::workqueue::{Fifo, Order};

/// A FIFO that records its calls.
struct Noted(Fifo<&'static str>, Arc<Mutex<Vec<String>>>);

impl Order<&'static str> for Noted {
    fn touch(&mut self, key: &&'static str) {
        self.1.lock().push(format!("touch {key}"));
    }

    fn push(&mut self, key: &'static str) {
        self.1.lock().push(format!("push {key}"));
        self.0.push(key);
    }

    fn pop(&mut self) -> Option<&'static str> {
        self.0.pop()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

fn noted() -> (WorkQueue<&'static str>, impl Fn() -> Vec<String>) {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let queue = WorkQueue::builder().order(Noted(Fifo::new(), Arc::clone(&notes))).build();
    (queue, move || std::mem::take(&mut *notes.lock()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_workers_never_process_the_same_key() {
    const KEYS: usize = 50;
    let queue = WorkQueue::<usize>::new();
    let in_hand: Arc<Vec<AtomicBool>> = Arc::new((0..KEYS).map(|_| AtomicBool::new(false)).collect());
    let got: Arc<Vec<AtomicUsize>> = Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect());
    let workers: Vec<_> = (0..10)
        .map(|_| {
            let (queue, in_hand, got) = (queue.clone(), Arc::clone(&in_hand), Arc::clone(&got));
            tokio::spawn(async move {
                while let Some(key) = queue.get().await {
                    assert!(!in_hand[*key].swap(true, Ordering::SeqCst), "{} is in two hands", *key);
                    // Adds every key again while it is processed.
                    if got[*key].fetch_add(1, Ordering::SeqCst) == 0 {
                        queue.add(*key);
                    }
                    tokio::task::yield_now().await;
                    in_hand[*key].store(false, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let producers = (0..KEYS).map(|key| {
        let queue = queue.clone();
        tokio::spawn(async move {
            for _ in 0..50 {
                queue.add(key);
                tokio::task::yield_now().await;
            }
        })
    });
    for producer in producers.collect::<Vec<_>>() {
        producer.await.unwrap();
    }
    // Before the end wakes all workers: none may sleep while a key waits.
    let all_handed_out = async {
        while queue.metrics().depth > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), all_handed_out).await.expect("somebody wakes");
    queue.shut_down_with_drain().await;
    for worker in workers {
        worker.await.unwrap();
    }
    for (key, got) in got.iter().enumerate() {
        let got = got.load(Ordering::SeqCst);
        assert!((2..=51).contains(&got), "{key} was handed out {got} times");
    }
    queue.add(0);
    assert!(queue.get().await.is_none() && queue.is_empty(), "nothing comes after the end");
}

#[tokio::test]
async fn queue_length_counts_waiting_keys() {
    let queue = WorkQueue::new();
    assert!(queue.is_empty());
    queue.add("a");
    assert_eq!(queue.len(), 1);
    queue.add("b");
    queue.add("a");
    assert_eq!(queue.len(), 2, "a waits once");
    let item = take(&queue);
    assert_eq!(queue.len(), 1, "a processed key does not wait");
    queue.add("a");
    assert_eq!(queue.len(), 1, "nor if it is added meanwhile");
    drop(item);
    assert_eq!(queue.len(), 2);
}

#[tokio::test]
async fn a_key_added_while_processed_is_queued_exactly_once_more() {
    let queue = WorkQueue::new();
    queue.add("a");
    let first = take(&queue);
    queue.add("a");
    queue.add("a");
    assert!(is_waiting(&queue), "the key is processed");
    drop(first);
    let second = take(&queue);
    assert_eq!(*second, "a");
    drop(second);
    assert!(is_waiting(&queue));
}

#[tokio::test]
async fn a_waiting_key_added_again_is_touched_and_keeps_its_place() {
    let (queue, notes) = noted();
    queue.add("a");
    queue.add("b");
    queue.add("a");
    assert_eq!(notes(), ["push a", "push b", "touch a"]);
    assert_eq!((*take(&queue), *take(&queue)), ("a", "b"));
    assert!(is_waiting(&queue));
}

#[tokio::test(start_paused = true)]
async fn a_processed_key_added_again_is_not_touched_or_handed_out() {
    let (queue, notes) = noted();
    queue.add("a");
    let first = take(&queue);
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|item| *item) }
    });
    settle().await;
    queue.add("a");
    queue.add("a");
    settle().await;
    assert!(!second.is_finished(), "the first worker processes the key");
    assert_eq!(notes(), ["push a"]);
    drop(first);
    assert_eq!(second.await.unwrap(), Some("a"));
    assert_eq!(notes(), ["push a"], "pushed once more, never touched");
    settle().await;
    assert!(is_waiting(&queue));
}

/// A key that knows whether it is still referenced.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Held(Arc<str>);

impl Held {
    fn new(text: &str) -> (Self, Weak<str>) {
        let text: Arc<str> = text.into();
        let weak = Arc::downgrade(&text);
        (Self(text), weak)
    }
}

#[tokio::test(start_paused = true)]
async fn a_processed_key_is_not_retained() {
    let queue = WorkQueue::new();
    let (first, first_alive) = Held::new("first");
    let (second, second_alive) = Held::new("second");
    let (later, later_alive) = Held::new("later");
    queue.add(first);
    queue.add(second);
    queue.add_after(later, ms(1));
    drop(queue.get().await);
    assert!(first_alive.upgrade().is_none(), "nothing keeps the key alive while others wait");
    assert!(second_alive.upgrade().is_some());
    drop(queue.get().await);
    drop(queue.get().await);
    assert!(second_alive.upgrade().is_none() && later_alive.upgrade().is_none());

    let (never, never_alive) = Held::new("never");
    queue.add_after(never, ms(1));
    queue.shut_down();
    assert!(never_alive.upgrade().is_none(), "delayed keys are discarded at the shutdown");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_or_cancelled_worker_returns_its_key() {
    let queue = WorkQueue::new();
    queue.add("a");
    let panicking = tokio::spawn({
        let queue = queue.clone();
        async move {
            let item = queue.get().await.unwrap();
            item.add_rate_limited();
            panic!("{} is too much", *item);
        }
    });
    assert!(panicking.await.unwrap_err().is_panic());
    let hanging = tokio::spawn({
        let queue = queue.clone();
        async move {
            let item = queue.get().await.unwrap();
            queue.add("a");
            std::future::pending::<()>().await;
            drop(item);
        }
    });
    tokio::time::sleep(ms(10)).await;
    assert!(is_waiting(&queue), "the key came back after the delay, and is processed");
    hanging.abort();
    assert!(hanging.await.unwrap_err().is_cancelled());
    assert_eq!(*take(&queue), "a");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_waiting_loses_no_key() {
    let queue = WorkQueue::new();
    let got = Arc::new(AtomicUsize::new(0));
    let patient = tokio::spawn({
        let (queue, got) = (queue.clone(), Arc::clone(&got));
        async move {
            while queue.get().await.is_some() {
                got.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    settle().await;
    {
        // It can be woken first, and leaves before it checks.
        let mut impatient = Box::pin(queue.get());
        assert!(impatient.as_mut().now_or_never().is_none());
        queue.add("a");
        queue.add("b");
    }
    settle().await;
    assert_eq!(got.load(Ordering::SeqCst), 2);
    {
        // It alone knows when the next key is due, and leaves.
        let mut impatient = Box::pin(queue.get());
        queue.add_after("c", ms(20));
        assert!(impatient.as_mut().now_or_never().is_none());
        queue.add_after("d", ms(10));
    }
    tokio::time::sleep(ms(11)).await;
    assert_eq!(got.load(Ordering::SeqCst), 3);
    tokio::time::sleep(ms(10)).await;
    assert_eq!(got.load(Ordering::SeqCst), 4);
    queue.shut_down();
    patient.await.unwrap();
}

#[tokio::test]
async fn a_busy_worker_yields() {
    let queue = WorkQueue::new();
    for key in 0..10_000 {
        queue.add(key);
    }
    tokio::spawn({
        let queue = queue.clone();
        async move { while queue.get().await.is_some() {} }
    });
    tokio::task::yield_now().await;
    assert!((1..10_000).contains(&queue.len()), "{} keys are left", queue.len());
}

/// The key with the most shouts comes first. A touch is another shout.
#[derive(Default)]
struct ByShouts(BTreeMap<&'static str, usize>);

impl Order<&'static str> for ByShouts {
    fn touch(&mut self, key: &&'static str) {
        *self.0.entry(key).or_default() += 1;
    }

    fn push(&mut self, key: &'static str) {
        self.0.insert(key, 0);
    }

    fn pop(&mut self) -> Option<&'static str> {
        let loudest = self.0.iter().max_by_key(|(_, shouts)| **shouts).map(|(key, _)| *key)?;
        self.0.remove(loudest);
        Some(loudest)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[tokio::test]
async fn a_custom_order_may_move_a_touched_key() {
    let queue = WorkQueue::builder().order(ByShouts::default()).build();
    for key in ["a", "b", "c", "b", "b", "c"] {
        queue.add(key);
    }
    assert_eq!([*take(&queue), *take(&queue), *take(&queue)], ["b", "c", "a"]);
}

/// Notes the hash of what was written so far: the state of an unseeded hasher is the same in every
/// map.
#[derive(Clone, Debug)]
struct Probe(Arc<Mutex<Vec<u64>>>);

impl PartialEq for Probe {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Probe {}

impl Hash for Probe {
    fn hash<H: Hasher>(&self, state: &mut H) {
        1_u8.hash(state);
        self.0.lock().push(state.finish());
    }
}

#[tokio::test(start_paused = true)]
async fn each_map_of_keys_hashes_with_its_own_seed() {
    let hashes = Arc::<Mutex<Vec<u64>>>::default();
    for _ in 0..2 {
        let queue = WorkQueue::new();
        queue.add_after(Probe(Arc::clone(&hashes)), Duration::from_secs(1));
        queue.add(Probe(Arc::clone(&hashes)));
        let key = queue.get().await.unwrap();
        key.add_rate_limited();
    }
    // Each queue has maps of waiting, processed, delayed and failed keys.
    let distinct: BTreeSet<u64> = hashes.lock().iter().copied().collect();
    assert_eq!(distinct.len(), 2 * 4);
}

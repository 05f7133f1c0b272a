//! What a queue knows, and the rules by which that changes.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::time::Instant;

use super::Key;
use super::delays::Delays;
use super::metrics::{Histogram, Metrics};
use super::order::Order;

/// How far a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Closed for adds, and somebody may wait for the rest to be done.
    Draining,
    /// Closed for adds, and nobody waits.
    ShutDown,
}

pub(super) struct State<T> {
    /// Whose turn it is. Every key in it is dirty and not in process.
    order: Box<dyn Order<T>>,
    /// What is to be handed out, since when: what waits, and what is in process and was added meanwhile.
    dirty: FxHashMap<T, Instant>,
    /// What workers have in hand, since when.
    processing: FxHashMap<T, Instant>,
    delays: Delays<T>,
    phase: Phase,
    adds: u64,
    retries: u64,
    queue_duration: Histogram,
    work_duration: Histogram,
}

/// What a worker that asks is told.
pub(super) enum Next<T> {
    Key(T),
    /// Nothing now, but perhaps at this time.
    Wait(Option<Instant>),
    /// Nothing ever again.
    End,
}

impl<T: Key> State<T> {
    pub(super) fn new(order: Box<dyn Order<T>>) -> Self {
        Self {
            order,
            dirty: FxHashMap::default(),
            processing: FxHashMap::default(),
            delays: Delays::new(),
            phase: Phase::Open,
            adds: 0,
            retries: 0,
            queue_duration: Histogram::default(),
            work_duration: Histogram::default(),
        }
    }

    /// Adds what is due, as of the time when it was. To be called before anything else is done.
    pub(super) fn catch_up(&mut self, now: Instant) {
        while let Some((key, at)) = self.delays.pop_due(now) {
            self.add(key, at);
        }
    }

    /// Whether one more key can be handed out now.
    pub(super) fn add(&mut self, key: T, at: Instant) -> bool {
        if self.is_shutting_down() {
            return false;
        }
        let in_process = self.processing.contains_key(&key);
        if self.dirty.contains_key(&key) {
            if !in_process {
                self.order.touch(&key);
            }
            return false;
        }
        self.adds += 1;
        self.dirty.insert(key.clone(), at);
        if !in_process {
            self.order.push(key);
        }
        !in_process
    }

    /// Whether those who wait must look again, because the next key is due earlier than they know.
    pub(super) fn add_after(&mut self, key: T, now: Instant, delay: Duration) -> bool {
        self.delays.insert(key, now, delay)
    }

    pub(super) fn count_retry(&mut self) {
        self.retries += 1;
    }

    pub(super) fn next(&mut self, now: Instant) -> Next<T> {
        let Some(key) = self.order.pop() else {
            return if self.is_shutting_down() { Next::End } else { Next::Wait(self.delays.next()) };
        };
        if let Some(since) = self.dirty.remove(&key) {
            self.queue_duration.observe(now - since);
        }
        self.processing.insert(key.clone(), now);
        Next::Key(key)
    }

    /// Whether one more key can be handed out now.
    pub(super) fn done(&mut self, key: &T, now: Instant) -> bool {
        if let Some(since) = self.processing.remove(key) {
            self.work_duration.observe(now - since);
        }
        match self.dirty.get_key_value(key) {
            Some((key, _)) => {
                self.order.push(key.clone());
                true
            }
            None => false,
        }
    }

    pub(super) fn shut_down(&mut self, drain: bool) {
        self.phase = if drain { Phase::Draining } else { Phase::ShutDown };
        self.delays.clear();
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Whether nobody has to wait for a drain any more.
    pub(super) fn is_drained(&self) -> bool {
        self.phase == Phase::ShutDown || (self.processing.is_empty() && self.order.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn metrics(&self, name: &Arc<str>, now: Instant) -> Metrics {
        let running = || self.processing.values().map(|since| now - *since);
        Metrics {
            name: Arc::clone(name),
            depth: self.dirty.len(),
            adds: self.adds,
            retries: self.retries,
            queue_duration: self.queue_duration.clone(),
            work_duration: self.work_duration.clone(),
            unfinished_work: running().fold(Duration::ZERO, Duration::saturating_add),
            longest_running_processor: running().max().unwrap_or_default(),
        }
    }
}

//! The state of a queue and its transitions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Key;
use super::delays::Delays;
use super::metrics::{Histogram, Metrics};
use super::order::Order;

/// The lifecycle of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Rejects adds; a caller may wait for the rest.
    Draining,
    /// Rejects adds; nobody waits.
    ShutDown,
}

pub(super) struct State<T> {
    /// The waiting keys: dirty and not in progress.
    order: Box<dyn Order<T>>,
    /// Keys to be handed out, with the time of the add: waiting keys, and keys in progress that
    /// were added again.
    dirty: HashMap<T, Instant>,
    /// Keys in progress, with their start.
    processing: HashMap<T, Instant>,
    delays: Delays<T>,
    phase: Phase,
    adds: u64,
    retries: u64,
    queue_duration: Histogram,
    work_duration: Histogram,
}

/// The result of taking a key.
pub(super) enum Next<T> {
    Key(T),
    /// No key now, but possibly at this time.
    Wait(Option<Instant>),
    /// No key will follow.
    End,
}

impl<T: Key> State<T> {
    pub(super) fn new(order: Box<dyn Order<T>>) -> Self {
        Self {
            order,
            dirty: HashMap::default(),
            processing: HashMap::default(),
            delays: Delays::new(),
            phase: Phase::Open,
            adds: 0,
            retries: 0,
            queue_duration: Histogram::default(),
            work_duration: Histogram::default(),
        }
    }

    /// Adds the due keys at their due times. Must precede every other operation.
    pub(super) fn catch_up(&mut self, now: Instant) {
        while let Some((key, at)) = self.delays.pop_due(now) {
            self.add(key, at);
        }
    }

    /// Returns whether one more key can be handed out.
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

    /// Returns whether waiters must check again, because the earliest due time has changed.
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

    /// Returns whether one more key can be handed out.
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

    /// Whether a wait for a drain can end.
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

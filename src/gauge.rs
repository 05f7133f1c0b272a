//! Numbers that a task keeps current for `/debug/footprint`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many series of warnings are followed, and how many writes have not ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventGauges {
    pub(crate) series: Gauge,
    pub(crate) writes: Gauge,
}

/// A number that a task keeps current for others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauge(Arc<AtomicUsize>);

impl Gauge {
    pub(crate) fn set(&self, value: usize) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

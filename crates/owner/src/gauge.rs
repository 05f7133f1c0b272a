//! Gauges that a task updates and a scrape of `/metrics` reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of event series, and of writes that are queued or in flight.
#[derive(Clone, Debug, Default)]
pub struct EventGauges {
    /// Series that are kept.
    pub series: Gauge,
    /// Writes that wait or are in flight.
    pub writes: Gauge,
}

/// A number that one task updates and others read.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicUsize>);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: usize) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

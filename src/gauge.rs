//! Gauges that a task updates and a scrape of `/metrics` reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of event series, and of writes that are queued or in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventGauges {
    pub(crate) series: Gauge,
    pub(crate) writes: Gauge,
}

/// A number that one task updates and others read.
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

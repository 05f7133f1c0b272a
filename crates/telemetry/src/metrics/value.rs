//! Values of series. They are written from any thread, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::spec::{MetricKind, Spec};
use super::text::Text;

/// The value of one series.
pub trait Value: Default + Send + Sync {
    /// An empty value.
    fn new(kind: &MetricKind) -> Self;

    /// Writes the samples.
    fn write(&self, text: &mut Text, spec: &Spec, labels: &[&str]);
}

/// A counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds 1.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a number.
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The current count.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Value for Counter {
    fn new(_: &MetricKind) -> Self {
        Self::default()
    }

    fn write(&self, text: &mut Text, spec: &Spec, labels: &[&str]) {
        text.sample(spec, labels, self.get() as f64);
    }
}

/// A gauge.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// The current value.
    pub(crate) fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Value for Gauge {
    fn new(_: &MetricKind) -> Self {
        Self::default()
    }

    fn write(&self, text: &mut Text, spec: &Spec, labels: &[&str]) {
        text.sample(spec, labels, self.get());
    }
}

/// A histogram.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    bounds: Box<[f64]>,
    /// Counts per bucket, not cumulative; the last is above all bounds.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// A histogram with these upper bounds, in ascending order.
    pub(crate) fn with_bounds(bounds: Vec<f64>) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::default()).collect();
        Self { bounds: bounds.into(), counts, sum: AtomicU64::default() }
    }

    /// Adds an observation.
    pub(crate) fn observe(&self, value: f64) {
        let range = self.bounds.partition_point(|bound| *bound < value);
        self.counts[range].fetch_add(1, Ordering::Relaxed);
        // Usually a single thread writes, and the first attempt succeeds.
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Adds a duration in seconds.
    pub(crate) fn took(&self, duration: Duration) {
        self.observe(duration.as_secs_f64());
    }
}

impl Value for Histogram {
    fn new(kind: &MetricKind) -> Self {
        match kind {
            MetricKind::Histogram(buckets) => Self::with_bounds(buckets.bounds()),
            MetricKind::Counter | MetricKind::Gauge => Self::with_bounds(Vec::new()),
        }
    }

    fn write(&self, text: &mut Text, spec: &Spec, labels: &[&str]) {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let sum = f64::from_bits(self.sum.load(Ordering::Relaxed));
        text.histogram(spec, labels, &self.bounds, &counts, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_bounds_are_inclusive() {
        let histogram = Histogram::with_bounds(vec![1.0, 2.0]);
        for value in [0.0, 1.0, 1.5, 2.0, 2.5, f64::INFINITY] {
            histogram.observe(value);
        }
        let counts: Vec<u64> = histogram.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert_eq!(counts, [2, 2, 2]);
    }
}

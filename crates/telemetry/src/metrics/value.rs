//! What a series holds. Written from any thread, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::spec::{Kind, Spec};
use super::text::Text;

/// What there is one of for each combination of labels.
pub trait Value: Default + Send + Sync {
    /// One that has counted nothing yet.
    fn new(kind: &Kind) -> Self;

    /// Its lines.
    fn write(&self, text: &mut Text, spec: &Spec, labels: &[&str]);
}

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// So many more.
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// How many there were.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Value for Counter {
    fn new(_: &Kind) -> Self {
        Self::default()
    }

    fn write(&self, text: &mut Text, spec: &Spec, labels: &[&str]) {
        text.sample(spec, labels, self.get() as f64);
    }
}

/// A number that rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// It is this now.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// What it is.
    pub(crate) fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Value for Gauge {
    fn new(_: &Kind) -> Self {
        Self::default()
    }

    fn write(&self, text: &mut Text, spec: &Spec, labels: &[&str]) {
        text.sample(spec, labels, self.get());
    }
}

/// How many numbers fell into each of some ranges.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    bounds: Box<[f64]>,
    /// Those in a range and no lower one; the last is above all bounds.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// With these upper bounds, ascending.
    pub(crate) fn with_bounds(bounds: Vec<f64>) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::default()).collect();
        Self { bounds: bounds.into(), counts, sum: AtomicU64::default() }
    }

    /// One more number.
    pub(crate) fn observe(&self, value: f64) {
        let range = self.bounds.partition_point(|bound| *bound < value);
        self.counts[range].fetch_add(1, Ordering::Relaxed);
        // Nearly always one thread writes, and the first try succeeds.
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// One more duration, in seconds.
    pub(crate) fn took(&self, duration: Duration) {
        self.observe(duration.as_secs_f64());
    }
}

impl Value for Histogram {
    fn new(kind: &Kind) -> Self {
        match kind {
            Kind::Histogram(buckets) => Self::with_bounds(buckets.bounds()),
            Kind::Counter | Kind::Gauge => Self::with_bounds(Vec::new()),
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
    fn a_bound_belongs_to_the_range_below_it() {
        let histogram = Histogram::with_bounds(vec![1.0, 2.0]);
        for value in [0.0, 1.0, 1.5, 2.0, 2.5, f64::INFINITY] {
            histogram.observe(value);
        }
        let counts: Vec<u64> = histogram.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert_eq!(counts, [2, 2, 2]);
    }
}

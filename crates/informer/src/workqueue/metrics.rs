//! How a queue is doing.

use std::sync::Arc;
use std::time::Duration;

/// How a queue is doing at one moment, with all that a Prometheus exporter needs.
///
/// Upstream's names are given with the fields; each carries the label `name`. Where client-go refreshes the
/// two times of unfinished work every 500 ms, they are exact here.
///
/// ```
/// use kube_informers::prometheus::TextWriter;
/// use kube_informers::workqueue::WorkQueue;
///
/// # fn main() -> std::fmt::Result {
/// let queue = WorkQueue::builder().name("pods").build();
/// queue.add("default/web");
///
/// let (metrics, mut text) = (queue.metrics(), TextWriter::new(String::new()));
/// text.sample("workqueue_depth", [("name", &*metrics.name)], metrics.depth as f64)?;
/// for (bound, count) in metrics.queue_duration.cumulative() {
///     let bound = bound.as_secs_f64().to_string();
///     let labels = [("name", &*metrics.name), ("le", &bound)];
///     text.sample("workqueue_queue_duration_seconds_bucket", labels, count as f64)?;
/// }
/// assert!(text.into_inner().starts_with("workqueue_depth{name=\"pods\"} 1\n"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// The queue's name; empty unless one was given.
    pub name: Arc<str>,
    /// `workqueue_depth`: how many keys are yet to be handed out. Unlike the queue's length this counts keys
    /// that were added while a worker has them in hand.
    pub depth: usize,
    /// `workqueue_adds_total`: how many adds there were, without those that changed nothing.
    pub adds: u64,
    /// `workqueue_retries_total`: how many adds were for later, or rate limited.
    pub retries: u64,
    /// `workqueue_queue_duration_seconds`: from a key's add until a worker gets it.
    pub queue_duration: Histogram,
    /// `workqueue_work_duration_seconds`: from then until the worker is done.
    pub work_duration: Histogram,
    /// `workqueue_unfinished_work_seconds`: for how long the workers have had their keys in hand, added up.
    /// If it grows and grows, workers are stuck.
    pub unfinished_work: Duration,
    /// `workqueue_longest_running_processor_seconds`: for how long the slowest of them has.
    pub longest_running_processor: Duration,
}

/// Durations, counted by decades from 10 ns to 10 s as upstream's are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many fell between the bound before and this one.
    counts: [u64; Self::BOUNDS.len()],
    count: u64,
    sum: Duration,
}

impl Histogram {
    /// The upper bounds of the buckets, which belong to them.
    pub const BOUNDS: [Duration; 10] = [
        Duration::from_nanos(10),
        Duration::from_nanos(100),
        Duration::from_micros(1),
        Duration::from_micros(10),
        Duration::from_micros(100),
        Duration::from_millis(1),
        Duration::from_millis(10),
        Duration::from_millis(100),
        Duration::from_secs(1),
        Duration::from_secs(10),
    ];

    pub(super) fn observe(&mut self, duration: Duration) {
        let bucket = Self::BOUNDS.partition_point(|bound| *bound < duration);
        // What is longer than the last bound is in the count alone.
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// Each bound with how many were at most as long, as Prometheus has it; the last bucket, without a bound,
    /// is [`Self::count`].
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let counts = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        Self::BOUNDS.into_iter().zip(counts)
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How long they were together.
    pub fn sum(&self) -> Duration {
        self.sum
    }
}

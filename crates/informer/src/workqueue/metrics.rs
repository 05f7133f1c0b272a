//! Metrics of work queues.

use std::sync::Arc;
use std::time::Duration;

/// The metrics of a queue at one moment, complete for a Prometheus exporter.
///
/// The fields name upstream's metrics, all with the label `name`. client-go refreshes the two
/// durations of unfinished work every 500 ms; here they are exact.
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
#[non_exhaustive]
pub struct Metrics {
    /// The queue's name; empty by default.
    pub name: Arc<str>,
    /// `workqueue_depth`: the number of keys to be handed out. Unlike the queue's length, it
    /// includes keys that were added while a worker processes them.
    pub depth: usize,
    /// `workqueue_adds_total`: the number of adds, except those without effect.
    pub adds: u64,
    /// `workqueue_retries_total`: the number of delayed or rate-limited adds.
    pub retries: u64,
    /// `workqueue_queue_duration_seconds`: the time from adding a key until a worker receives it.
    pub queue_duration: Histogram,
    /// `workqueue_work_duration_seconds`: the time until the worker is done.
    pub work_duration: Histogram,
    /// `workqueue_unfinished_work_seconds`: the total time that keys in progress have taken so far.
    /// If it keeps growing, workers are stuck.
    pub unfinished_work: Duration,
    /// `workqueue_longest_running_processor_seconds`: the longest of these times.
    pub longest_running_processor: Duration,
}

/// A histogram of durations, with upstream's buckets of powers of ten from 10 ns to 10 s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The count of each bucket, not cumulative.
    counts: [u64; Self::BOUNDS.len()],
    count: u64,
    sum: Duration,
}

impl Histogram {
    /// The inclusive upper bounds of the buckets.
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
        // Durations above the last bound appear only in the total count.
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// Each bound with its cumulative count, as in Prometheus. The `+Inf` bucket is
    /// [`Self::count`].
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let counts = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        Self::BOUNDS.into_iter().zip(counts)
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }
}

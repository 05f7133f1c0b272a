mod delays;
mod drains;
mod histories;
mod metrics;
mod parallelize;
mod queues;
mod rate_limiters;

use std::time::Duration;

use futures::FutureExt;

use super::{Item, WorkQueue};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The key that is available immediately.
fn take(queue: &WorkQueue<&'static str>) -> Item<&'static str> {
    queue.get().now_or_never().expect("a key or the end").expect("a key")
}

/// Whether a worker has to wait.
fn is_waiting(queue: &WorkQueue<&'static str>) -> bool {
    queue.get().now_or_never().is_none()
}

/// Whether no key will follow.
fn is_at_its_end(queue: &WorkQueue<&'static str>) -> bool {
    matches!(queue.get().now_or_never(), Some(None))
}

//! Work queues between event handlers and workers.
//!
//! A handler should only enqueue the key of the changed object. A worker then reads the object's
//! newest state and acts on it. A [`WorkQueue`] lets both run at their own speed:
//!
//! * A waiting key is queued once, however often it is added.
//! * A key that is being processed is not given to another worker. If it is added meanwhile, it is
//!   queued again afterwards.
//! * A key can be added with a delay ([`WorkQueue::add_after`]), or after a failure with the delay
//!   of a [`RateLimiter`] ([`WorkQueue::add_rate_limited`]).
//! * A shutdown can wait for the keys in progress ([`WorkQueue::shut_down_with_drain`]).
//!
//! This is client-go's `util/workqueue`. Its queue, delaying queue and rate-limiting queue are one
//! type here. Dropping the [`Item`] replaces the call of `Done`, so that even a worker that panics
//! returns its key.
//!
//! ```
//! use kube_informers::workqueue::WorkQueue;
//! use kube_informers::ObjectKey;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let queue = WorkQueue::new();
//! // As a handler would. The second call has no effect.
//! queue.add(ObjectKey::new(Some("default"), "web"));
//! queue.add(ObjectKey::new(Some("default"), "web"));
//!
//! let worker = tokio::spawn({
//!     let queue = queue.clone();
//!     async move {
//!         let mut tries = 0;
//!         while let Some(key) = queue.get().await {
//!             tries += 1;
//!             // Read the store and act here.
//!             let done: Result<(), &str> = if tries < 3 { Err("not yet") } else { Ok(()) };
//!             match done {
//!                 Ok(()) => key.forget(),
//!                 Err(_) if key.num_requeues() < 5 => key.add_rate_limited(),
//!                 Err(error) => {
//!                     key.forget();
//!                     eprintln!("dropping {}: {error}", *key);
//!                 }
//!             }
//!         }
//!         tries
//!     }
//! });
//! tokio::time::sleep(std::time::Duration::from_secs(1)).await;
//! queue.shut_down_with_drain().await;
//! assert_eq!(worker.await.unwrap(), 3);
//! # }
//! ```

mod delays;
mod item;
mod metrics;
mod order;
mod parallelize;
mod queue;
mod rate_limiter;
mod state;
#[cfg(test)]
mod tests;

use std::hash::Hash;

pub use item::Item;
pub use metrics::{Histogram, Metrics};
pub use order::{Fifo, Order};
pub use parallelize::parallelize_until;
pub use queue::{WorkQueue, WorkQueueBuilder};
pub use rate_limiter::{
    BucketRateLimiter, ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter, MaxOfRateLimiter,
    RateLimiter, WithMaxWaitRateLimiter, default_controller_rate_limiter,
};

/// A type that can be queued; implemented for every suitable type. Clones should be cheap.
///
/// Keys are often names that users choose, so each map of keys hashes with its own seed.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<T: Clone + Eq + Hash + Send + 'static> Key for T {}

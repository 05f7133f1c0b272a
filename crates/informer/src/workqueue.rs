//! Work queues: what event handlers put keys on, and workers take them from.
//!
//! A handler should only say *which* object has changed; a worker then looks at the object's newest state and
//! does what is to be done. A [`WorkQueue`] between them lets each go at its own speed:
//!
//! * A key that waits is there once, however often it is added.
//! * A key that a worker has in hand is given to no other. Added meanwhile, it comes once more after the
//!   worker is done.
//! * A key may be added for later ([`WorkQueue::add_after`]), and what failed may be added again at the pace
//!   of a [`RateLimiter`] ([`WorkQueue::add_rate_limited`]).
//! * Shutting down can wait for what is in hand ([`WorkQueue::shut_down_with_drain`]).
//!
//! It is client-go's `util/workqueue`: its queue, delaying queue and rate-limiting queue are one type here,
//! and `Done` is not called but happens when the [`Item`] is dropped, so that not even a worker that panics
//! keeps a key for ever.
//!
//! ```
//! use kube_informers::workqueue::WorkQueue;
//! use kube_informers::ObjectKey;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let queue = WorkQueue::new();
//! // As a handler would; the second of them changes nothing.
//! queue.add(ObjectKey::new(Some("default"), "web"));
//! queue.add(ObjectKey::new(Some("default"), "web"));
//!
//! let worker = tokio::spawn({
//!     let queue = queue.clone();
//!     async move {
//!         let mut tries = 0;
//!         while let Some(key) = queue.get().await {
//!             tries += 1;
//!             // Here a worker reads the store, and makes the world as it should be.
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

/// What can be queued. Every type that is all of this is a key; a clone should be cheap.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<T: Clone + Eq + Hash + Send + 'static> Key for T {}

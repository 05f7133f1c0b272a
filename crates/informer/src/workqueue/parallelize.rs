//! Parallel execution of independent pieces of work.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use tokio_util::sync::CancellationToken;

/// Executes `pieces` independent pieces of work, numbered from 0, with a limited number of workers,
/// until all are done or `stop` is cancelled. Executes each piece at most once, and exactly once
/// without cancellation.
///
/// A worker claims `chunk_size` pieces and executes them one after another; larger chunks pay off
/// for many small pieces. Cancellation lets started pieces finish, and starts no others. Zero
/// workers or a chunk size of zero count as one.
///
/// Same as client-go's `ParallelizeUntil`, for work that waits. The workers share the caller's
/// task, so the work can borrow, and need not be `Send`. Spawn CPU-bound work within it, with
/// `tokio::spawn` or `tokio::task::spawn_blocking`.
///
/// ```
/// use kube_informers::workqueue::parallelize_until;
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let names = ["a", "b", "c"];
/// let seen = std::cell::RefCell::new(Vec::new());
/// parallelize_until(&CancellationToken::new(), 2, names.len(), 1, async |piece| {
///     tokio::task::yield_now().await;
///     seen.borrow_mut().push(names[piece]);
/// })
/// .await;
/// assert_eq!(seen.into_inner(), names);
/// # }
/// ```
pub async fn parallelize_until<F: Future<Output = ()>>(
    stop: &CancellationToken,
    workers: usize,
    pieces: usize,
    chunk_size: usize,
    work: impl Fn(usize) -> F,
) {
    let chunk_size = chunk_size.max(1);
    let chunks = pieces.div_ceil(chunk_size);
    let claimed = AtomicUsize::new(0);
    let worker = async || {
        loop {
            let chunk = claimed.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks {
                return;
            }
            let start = chunk * chunk_size;
            for piece in start..start.saturating_add(chunk_size).min(pieces) {
                if stop.is_cancelled() {
                    return;
                }
                work(piece).await;
            }
        }
    };
    join_all((0..workers.clamp(1, chunks.max(1))).map(|_| worker())).await;
}

//! Independent pieces of work, some at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use tokio_util::sync::CancellationToken;

/// Does `pieces` independent pieces of work, numbered from 0, by so many workers at a time, until all are
/// done or `stop` is cancelled. Each piece is done at most once, and once if nothing is cancelled.
///
/// A worker claims `chunk_size` pieces at once, and does them one after the other; more than one pays off
/// where there are many small ones. A piece that has begun is finished; pieces that have not are not begun
/// any more. Zero workers or a chunk size of zero count as one.
///
/// Same as client-go's `ParallelizeUntil`, for work that waits: the workers share the caller's task, so the
/// work may borrow, and need not be `Send`. Work that computes should be given to `tokio::spawn` or
/// `tokio::task::spawn_blocking` in it.
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

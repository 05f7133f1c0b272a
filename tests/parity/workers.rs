//! Work on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Result;

/// Works on the items, each on the next free thread. `start` prepares a thread, for example by
/// starting a control plane. The results are in the order of the items.
pub(super) fn on_threads<T: Sync, W, R: Send>(
    threads: usize,
    items: &[T],
    start: impl Fn() -> Result<W> + Sync,
    work: impl Fn(&mut W, &T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let worker = || -> Result<Vec<(usize, R)>> {
        let (mut state, mut done) = (start()?, Vec::new());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return Ok(done) };
            done.push((number, work(&mut state, item)?));
        }
    };
    let done: Vec<Result<Vec<(usize, R)>>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(items.len())).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let done: Vec<Vec<(usize, R)>> = done.into_iter().collect::<Result<_>>()?;
    let mut done: Vec<(usize, R)> = done.into_iter().flatten().collect();
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

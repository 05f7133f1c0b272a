//! Seeks through a record: one at a time, and only to the newest time that is wanted.

use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use supercargo_client::api::full_text;
use supercargo_framework::Timestamp;

/// The time that is wanted next, and the last seek.
#[derive(Debug)]
pub(super) struct Seeks {
    wanted: Mutex<Option<Timestamp>>,
    last: tokio::sync::Mutex<Seek>,
}

#[derive(Debug)]
struct Seek {
    to: Timestamp,
    outcome: Result<(), String>,
}

impl Seeks {
    /// The state is at this time.
    pub(super) fn new(at: Timestamp) -> Arc<Self> {
        let last = tokio::sync::Mutex::new(Seek { to: at, outcome: Ok(()) });
        Arc::new(Self { wanted: Mutex::new(None), last })
    }

    /// Waits until `restore` has gone there, or to a newer time that was wanted meanwhile. It
    /// continues if nobody waits.
    pub(super) async fn go<F: Future<Output = Result<()>> + Send>(
        self: &Arc<Self>,
        to: Timestamp,
        restore: impl FnOnce(Timestamp) -> F + Send + 'static,
    ) -> Result<(), String> {
        *self.wanted.lock() = Some(to);
        let seeks = Arc::clone(self);
        let turn = tokio::spawn(async move {
            let mut last = seeks.last.lock().await;
            let wanted = seeks.wanted.lock().take();
            if let Some(to) = wanted.filter(|to| *to != last.to || last.outcome.is_err()) {
                let outcome = restore(to).await.map_err(|error| full_text(&*error));
                *last = Seek { to, outcome };
            }
            last.outcome.clone()
        });
        turn.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;
    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn seeks_go_on_without_a_reader_and_to_the_newest_time_only() {
        let (seeks, gone) = (Seeks::new(Timestamp(0)), Arc::new(Mutex::new(Vec::new())));
        let gate = Arc::new(Semaphore::new(0));
        let seek = |to: i64| {
            let (gone, gate, seeks) = (Arc::clone(&gone), Arc::clone(&gate), Arc::clone(&seeks));
            let restore = move |to: Timestamp| async move {
                gone.lock().push(to.0);
                gate.acquire().await?.forget();
                if to.0 == 9 {
                    bail!("no such time");
                }
                Ok(())
            };
            async move { seeks.go(Timestamp(to), restore).await }
        };
        let first = tokio::spawn(seek(1));
        while gone.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        // Its reader leaves.
        first.abort();
        let others = tokio::spawn(join_all([2, 3, 4].map(&seek)));
        while *seeks.wanted.lock() != Some(Timestamp(4)) {
            tokio::task::yield_now().await;
        }
        gate.add_permits(2);
        assert!(others.await.unwrap().iter().all(Result::is_ok));
        // It is there already.
        assert_eq!(seek(4).await, Ok(()));
        assert_eq!(*gone.lock(), [1, 4]);
        gate.add_permits(1);
        assert_eq!(seek(9).await, Err("no such time".to_owned()));
    }
}

//! An elector in a task.

use std::future::{Future, pending};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Elector, Leadership, Loss};

/// An elector in a task. Dropping it aborts the task and leaves the lease to expire.
pub struct Candidacy {
    leadership: watch::Receiver<Leadership>,
    begin: CancellationToken,
    resign: CancellationToken,
    task: JoinHandle<Option<Loss>>,
}

impl Candidacy {
    /// Starts the task, which waits for [`lead`](Self::lead).
    pub fn new(elector: Elector) -> Self {
        let leadership = elector.leadership();
        let (begin, resign) = (CancellationToken::new(), CancellationToken::new());
        let (begun, resigned) = (begin.clone(), resign.clone());
        let task = tokio::spawn(async move {
            resigned.run_until_cancelled(begun.cancelled()).await?;
            elector.run(resigned).await
        });
        Self { leadership, begin, resign, task }
    }

    /// The observed leader.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Starts the election when first polled, and resolves once this candidate leads.
    pub fn lead(&self) -> impl Future<Output = ()> + Send + use<> {
        let (begin, mut leadership) = (self.begin.clone(), self.leadership());
        async move {
            begin.cancel();
            if leadership.wait_for(|leadership| leadership.is_leader).await.is_err() {
                // The task has ended; [`lost`](Self::lost) reports it.
                pending::<()>().await;
            }
        }
    }

    /// Resolves when leadership is lost.
    pub async fn lost(&mut self) -> Loss {
        match (&mut self.task).await {
            Ok(Some(loss)) => loss,
            // Otherwise the task ends only when resigning.
            Ok(None) => pending().await,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down.
                Err(_) => pending().await,
            },
        }
    }

    /// Releases the lease and waits for the task.
    pub async fn release(mut self) {
        self.resign.cancel();
        if !self.task.is_finished() {
            // Failures are logged.
            let _ = (&mut self.task).await;
        }
    }
}

impl Drop for Candidacy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

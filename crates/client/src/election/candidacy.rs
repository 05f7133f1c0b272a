//! An elector at work.

use std::future::{Future, pending};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Elector, Leadership, Loss};

/// An elector in a task of its own. Dropping this ends it where it is: the lease ends by itself then.
pub struct Candidacy {
    leadership: watch::Receiver<Leadership>,
    begin: CancellationToken,
    resign: CancellationToken,
    task: JoinHandle<Option<Loss>>,
}

impl Candidacy {
    /// Has the elector wait until it is to [lead](Self::lead).
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

    /// Who leads.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Lets it run for leader, from when this is first polled, and resolves when it leads.
    pub fn lead(&self) -> impl Future<Output = ()> + Send + use<> {
        let (begin, mut leadership) = (self.begin.clone(), self.leadership());
        async move {
            begin.cancel();
            if leadership.wait_for(|leadership| leadership.is_leader).await.is_err() {
                // It has ended, and whoever waits for that hears of it.
                pending::<()>().await;
            }
        }
    }

    /// Resolves when it has led and lost.
    pub async fn lost(&mut self) -> Loss {
        match (&mut self.task).await {
            Ok(Some(loss)) => loss,
            // It does not end otherwise before it is told to.
            Ok(None) => pending().await,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is ending, and everything with it.
                Err(_) => pending().await,
            },
        }
    }

    /// Makes it give up the lease, and waits for that.
    pub async fn release(mut self) {
        self.resign.cancel();
        if !self.task.is_finished() {
            // Its failures are in the log.
            let _ = (&mut self.task).await;
        }
    }
}

impl Drop for Candidacy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

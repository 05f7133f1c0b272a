//! Waits for several conditions at once, and names those that are not met.

use std::error::Error;
use std::future::Future;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use thiserror::Error;

use crate::kind::Kind;
use crate::listener::Registration;
use crate::shared::SharedInformer;

/// A named condition to wait for; same as client-go's `DoneChecker`.
pub struct DoneChecker<'a> {
    name: String,
    done: BoxFuture<'a, ()>,
}

impl<'a> DoneChecker<'a> {
    /// A condition that is met when the future completes.
    pub fn new(name: impl Into<String>, done: impl Future<Output = ()> + Send + 'a) -> Self {
        Self { name: name.into(), done: Box::pin(done) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Met when the informer's store contains its first list. Never met if the informer stops
    /// before.
    pub fn informer<K: Kind>(informer: &'a SharedInformer<K>) -> Self {
        Self::new(informer.kind().gvr().to_string(), informer.synced())
    }

    /// Met when the handler has processed its initial objects.
    pub fn handler(registration: &'a Registration) -> Self {
        Self::new(registration.0.name.to_string(), registration.synced())
    }
}

/// Some conditions were not met.
#[derive(Debug, Error)]
#[error("gave up waiting for {what}: {}: {cause}", .unfinished.join(", "))]
#[non_exhaustive]
pub struct WaitError {
    /// The caller's description of what it waited for.
    pub what: String,
    /// The names of the unmet conditions, in alphabetical order.
    pub unfinished: Vec<String>,
    /// Why the wait ended.
    #[source]
    pub cause: Box<dyn Error + Send + Sync>,
}

/// Waits until all conditions are met, or `give_up` completes with a cause; same as client-go's
/// `WaitFor`.
///
/// `what` appears in the log and the error; if it is empty, nothing is logged. Conditions that are
/// met at that moment count as met. Nothing is polled on a timer.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use kube_informers::{DoneChecker, wait_for};
/// use tokio_util::sync::CancellationToken;
///
/// let stop = CancellationToken::new();
/// stop.cancel();
/// let give_up = async {
///     stop.cancelled().await;
///     "the program is ending"
/// };
/// let checkers = [DoneChecker::new("pods", std::future::pending()), DoneChecker::new("nodes", async {})];
/// let error = wait_for("caches", checkers, give_up).await.unwrap_err();
/// assert_eq!(error.to_string(), "gave up waiting for caches: pods: the program is ending");
/// # }
/// ```
pub async fn wait_for<C: Into<Box<dyn Error + Send + Sync>>>(
    what: &str,
    checkers: impl IntoIterator<Item = DoneChecker<'_>>,
    give_up: impl Future<Output = C>,
) -> Result<(), WaitError> {
    let logs = !what.is_empty();
    if logs {
        tracing::info!(what, "waiting");
    }
    let mut unfinished = Vec::new();
    let mut waits = FuturesUnordered::new();
    for (index, checker) in checkers.into_iter().enumerate() {
        unfinished.push(Some(checker.name));
        waits.push(async move {
            checker.done.await;
            index
        });
    }
    let mut give_up = std::pin::pin!(give_up);
    loop {
        let done = tokio::select! {
            // Conditions first, so that one that is already met does not count as given up.
            biased;
            done = waits.next() => done,
            cause = &mut give_up => {
                let mut unfinished: Vec<String> = unfinished.into_iter().flatten().collect();
                unfinished.sort_unstable();
                let error = WaitError { what: what.to_owned(), unfinished, cause: cause.into() };
                if logs {
                    tracing::info!(what, cause = %error.cause, instances = ?error.unfinished, "gave up waiting");
                }
                return Err(error);
            }
        };
        let Some(index) = done else { return Ok(()) };
        if let Some(instance) = unfinished[index].take()
            && logs
        {
            tracing::info!(what, instance, "done waiting");
        }
    }
}

#[cfg(test)]
mod tests;

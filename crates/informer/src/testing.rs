//! Fake sources and handlers for tests. Requires the feature `testing`.
//!
//! All of it is meant for a paused clock: `#[tokio::test(start_paused = true)]`.

mod event_log;
mod fake_source;
#[cfg(test)]
pub(crate) mod log;
mod scripted;

use std::fmt::Write as _;
use std::time::Duration;

use kube::core::Status;
use kube::core::response::StatusSummary;
use tokio::time::Instant;

pub use event_log::EventLog;
pub use fake_source::{FakeSource, WatchListSupport};
pub use scripted::{Script, Scripted};

use crate::list_watch::{ListOptions, ListWatchError};

/// Waits until every task is idle. A paused clock advances only then, here by a millisecond.
pub async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// A rejection by the server.
pub fn refusal(code: u16, reason: &str) -> Box<Status> {
    let status = Status {
        status: Some(StatusSummary::Failure),
        code,
        message: format!("test refusal {code}"),
        metadata: None,
        reason: reason.to_owned(),
        details: None,
    };
    Box::new(status)
}

/// A rejection as the error of a request.
pub fn refused(code: u16, reason: &str) -> ListWatchError {
    ListWatchError::Status(refusal(code, reason))
}

/// The error of a request when nothing listens.
pub fn connection_refused() -> ListWatchError {
    ListWatchError::Transport(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)))
}

/// A request that a source received.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The time since the source was created.
    pub at: Duration,
    /// Whether it is a watch.
    pub watch: bool,
    /// The options of the request.
    pub options: ListOptions,
}

impl Request {
    fn new(since: Instant, watch: bool, options: &ListOptions) -> Self {
        Self { at: since.elapsed(), watch, options: options.clone() }
    }

    /// The request in short: `list rv=0 limit=500`, `watch rv=10`, or `watch-list rv=`.
    pub fn summary(&self) -> String {
        let options = &self.options;
        let verb = match (self.watch, options.send_initial_events) {
            (false, _) => "list",
            (true, false) => "watch",
            (true, true) => "watch-list",
        };
        let mut text = format!("{verb} rv={}", options.resource_version);
        if let Some(limit) = options.limit {
            let _ = write!(text, " limit={limit}");
        }
        if let Some(token) = &options.continue_token {
            let _ = write!(text, " continue={token}");
        }
        text
    }
}

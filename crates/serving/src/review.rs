//! Token and access reviews by the API server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::Value;
use thiserror::Error;
use tokio::time::timeout;

use supercargo_client::api::{Api, Call, CallError, JSON};

/// Timeout of a review, as upstream, and of the wait for it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a review failed. Contains nothing of the request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum ReviewError {
    /// Timeout.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Late,
    /// Too many requests wait for reviews.
    #[error("too many requests wait for reviews")]
    Busy,
    /// The server rejected the review. Its message is not repeated, because it may contain the
    /// token.
    #[error("the API server answered {0}; see docs/security.md for the required permissions")]
    Refused(http::StatusCode),
    /// No response.
    #[error("{0}")]
    Unreachable(String),
}

impl From<CallError> for ReviewError {
    fn from(error: CallError) -> Self {
        match error.status {
            Some(status) => Self::Refused(status),
            None => Self::Unreachable(error.error.message),
        }
    }
}

/// Sends reviews by a separate client, so that reviews and bindings do not wait for each other.
pub(super) struct Reviewer {
    api: Api,
    /// The kind of the reviews, for logs.
    kind: &'static str,
    is_out: AtomicBool,
}

impl Reviewer {
    pub(super) fn new(api: Api, kind: &'static str) -> Self {
        Self { api, kind, is_out: AtomicBool::new(false) }
    }

    /// Sends a review and returns the response.
    pub(super) async fn review(&self, path: &str, review: &Value) -> Result<Value, ReviewError> {
        let result = self.call(Call { method: Method::POST, path, content_type: JSON, body: review }).await;
        self.log_outage(result.as_ref().err());
        result
    }

    /// Reads this path. The caller reports errors.
    pub(super) async fn read(&self, path: &str) -> Result<Value, ReviewError> {
        self.call(Call { method: Method::GET, path, content_type: JSON, body: &Value::Null }).await
    }

    async fn call(&self, call: Call<'_>) -> Result<Value, ReviewError> {
        match timeout(TIMEOUT, self.api.call(call)).await {
            Ok(answer) => answer.map_err(ReviewError::from),
            Err(_) => Err(ReviewError::Late),
        }
    }

    /// Logs the beginning and the end of an outage.
    fn log_outage(&self, error: Option<&ReviewError>) {
        let was_out = self.is_out.swap(error.is_some(), Ordering::Relaxed);
        match error {
            Some(error) if !was_out => {
                tracing::warn!(kind = self.kind, %error, "review failed; rejecting the caller");
            }
            None if was_out => tracing::info!(kind = self.kind, "reviews succeed again"),
            _ => {}
        }
    }
}

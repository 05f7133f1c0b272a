//! Asks the API server who somebody is, and what they may do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use supercargo_client::api::{Api, Call, CallError, JSON};

/// How long a client waits for a review at most, as upstream has it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// So many questions at most are under way: strangers with made-up tokens must not become load on the API server.
const AT_ONCE: usize = 16;

/// Why there is no answer. It has nothing of the question in it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum ReviewError {
    /// No answer in time.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Late,
    /// The server says no to the question itself. What it says is not repeated: it has seen a token.
    #[error("the API server answered {0}; see docs/security.md for what it must allow")]
    Refused(http::StatusCode),
    /// There was no answer.
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

/// Asks questions over a client of its own, so that they wait for no binding and no binding for them.
pub(super) struct Reviewer {
    api: Api,
    /// What logs call the questions.
    kind: &'static str,
    places: Semaphore,
    is_out: AtomicBool,
}

impl Reviewer {
    pub(super) fn new(api: Api, kind: &'static str) -> Self {
        Self { api, kind, places: Semaphore::new(AT_ONCE), is_out: AtomicBool::new(false) }
    }

    /// What the server says of a review that it is sent.
    pub(super) async fn review(&self, path: &str, review: &Value) -> Result<Value, ReviewError> {
        let result = self.call(Call { method: Method::POST, path, content_type: JSON, body: review }).await;
        self.tell(result.as_ref().err());
        result
    }

    /// What is at this path. What goes wrong is for whoever asks to say.
    pub(super) async fn read(&self, path: &str) -> Result<Value, ReviewError> {
        self.call(Call { method: Method::GET, path, content_type: JSON, body: &Value::Null }).await
    }

    async fn call(&self, call: Call<'_>) -> Result<Value, ReviewError> {
        let asked = async {
            // It is never closed; without a place the question is asked all the same.
            let _place = self.places.acquire().await;
            self.api.call(call).await
        };
        match timeout(TIMEOUT, asked).await {
            Ok(answer) => answer.map_err(ReviewError::from),
            Err(_) => Err(ReviewError::Late),
        }
    }

    /// Logs where an outage begins and where it ends, and nothing in between.
    fn tell(&self, error: Option<&ReviewError>) {
        let was_out = self.is_out.swap(error.is_some(), Ordering::Relaxed);
        match error {
            Some(error) if !was_out => {
                tracing::warn!(kind = self.kind, %error, "the API server does not answer: whoever needs that answer is turned away");
            }
            None if was_out => tracing::info!(kind = self.kind, "the API server answers again"),
            _ => {}
        }
    }
}

//! Logs outages of a server: when it stops answering, and when it answers again. Each is one line,
//! however many requests notice it.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{Layer, Service};

/// A failure so soon after an outage is not logged: some of several servers behind one address may
/// still be away.
const QUIET: Duration = Duration::from_secs(30);

/// Watches the answers of a server.
#[derive(Clone)]
pub struct OutageLog(Arc<Shared>);

struct Shared {
    server: String,
    describe: fn(&(dyn Error + 'static)) -> String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When the current outage began.
    since: Option<Instant>,
    quiet_until: Option<Instant>,
}

#[derive(Debug, PartialEq)]
enum OutageEvent {
    Began,
    Ended(Duration),
}

impl State {
    /// Notes whether a request has been answered.
    fn note(&mut self, is_answered: bool, now: Instant) -> Option<OutageEvent> {
        match (is_answered, self.since) {
            (false, None) if self.quiet_until.is_none_or(|until| until <= now) => {
                self.since = Some(now);
                Some(OutageEvent::Began)
            }
            (true, Some(since)) => {
                *self = Self { since: None, quiet_until: Some(now + QUIET) };
                Some(OutageEvent::Ended(now - since))
            }
            _ => None,
        }
    }
}

impl OutageLog {
    /// A log that names the server like this. `describe` is the text of an error with its causes.
    pub fn of(server: &str, describe: fn(&(dyn Error + 'static)) -> String) -> Self {
        Self(Arc::new(Shared { server: server.to_owned(), describe, state: Mutex::default() }))
    }

    fn note(&self, is_answered: bool) -> Option<OutageEvent> {
        self.0.state.lock().note(is_answered, Instant::now())
    }

    fn answered(&self) {
        if let Some(OutageEvent::Ended(after)) = self.note(true) {
            tracing::info!(server = %self.0.server, ?after, "the API server answers again");
        }
    }

    fn failed(&self, error: &(dyn Error + Send + Sync + 'static)) {
        if self.note(false) == Some(OutageEvent::Began) {
            let error = (self.0.describe)(error);
            tracing::warn!(server = %self.0.server, %error, "no response from the API server; retrying");
        }
    }
}

impl<S> Layer<S> for OutageLog {
    type Service = Watched<S>;

    fn layer(&self, inner: S) -> Watched<S> {
        Watched { inner, log: self.clone() }
    }
}

/// A service whose outages are logged.
#[derive(Clone)]
pub struct Watched<S> {
    inner: S,
    log: OutageLog,
}

impl<S, B> Service<Request<B>> for Watched<S>
where
    S: Service<Request<B>>,
    S::Error: AsRef<dyn Error + Send + Sync>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (log, answer) = (self.log.clone(), self.inner.call(request));
        Box::pin(async move {
            let answer = answer.await;
            match &answer {
                Ok(_) => log.answered(),
                Err(error) => log.failed(error.as_ref()),
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_is_noted_once_with_its_end() {
        let begin = Instant::now();
        let mut state = State::default();
        let mut note = |is_answered, second| state.note(is_answered, begin + Duration::from_secs(second));
        assert_eq!(note(true, 0), None);
        assert_eq!(note(false, 1), Some(OutageEvent::Began));
        assert_eq!((note(false, 2), note(false, 3)), (None, None));
        assert_eq!(note(true, 11), Some(OutageEvent::Ended(Duration::from_secs(10))));
        assert_eq!(note(true, 12), None);
        // One of several replicas fails.
        assert_eq!((note(false, 12), note(true, 12), note(false, 40)), (None, None, None));
        assert_eq!(note(false, 41), Some(OutageEvent::Began));
    }
}

//! The handlers of all requests: authentication, authorization, timeout. Panics in handlers do not
//! end the process.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures::FutureExt as _;
use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use supercargo_framework::panic_text;
use tokio::time::{Instant, timeout};
use tower::ServiceExt as _;

use super::activity::Activity;
use super::authenticator::Authenticator;
use super::authorizer::Authorizer;
use super::review::ReviewError;
use super::text::{forbidden, plain_line, too_many_requests, unauthorized};
use super::trust::Chain;
use super::user::User;

/// Timeout of a request. Reviews take up to 10 s each; the scheduler answers between two cycles.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Headers of every response: not cacheable, no content sniffing.
const HEADERS: [(HeaderName, HeaderValue); 2] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
];

/// Authenticates and authorizes requests.
pub(super) struct HandlerChain {
    pub(super) authenticator: Authenticator,
    pub(super) authorizer: Authorizer,
}

impl HandlerChain {
    /// Answers a request of a client with these certificates, and marks its connection if it may
    /// send the request.
    pub(super) async fn answer(
        &self,
        request: Request<Body>,
        chain: &Chain,
        activity: &Activity,
        routes: &Router,
    ) -> Response {
        let began = Instant::now();
        // Without the query, which may be confidential.
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let passing = AssertUnwindSafe(self.pass(request, chain, activity, routes)).catch_unwind();
        let mut response = match timeout(REQUEST_TIMEOUT, passing).await {
            Ok(Ok(response)) => response,
            Ok(Err(panic)) => {
                tracing::error!(%method, %path, panic = panic_text(&*panic), "request handler panicked");
                let text = "the handler of this request panicked; see the log".to_owned();
                plain_line(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
            Err(_) => {
                let text = format!("no answer within {} s", REQUEST_TIMEOUT.as_secs());
                plain_line(StatusCode::GATEWAY_TIMEOUT, text)
            }
        };
        for (name, value) in HEADERS {
            response.headers_mut().entry(name).or_insert(value);
        }
        tracing::debug!(%method, %path, status = response.status().as_u16(), took = ?began.elapsed(), "HTTP");
        response
    }

    async fn pass(
        &self,
        request: Request<Body>,
        chain: &Chain,
        activity: &Activity,
        routes: &Router,
    ) -> Response {
        let path = request.uri().path();
        if self.authorizer.is_open(path) {
            activity.probe();
        } else {
            match self.authenticator.user(chain, request.headers()).await {
                Ok(Some(user)) => {
                    let verb = request.method().as_str().to_ascii_lowercase();
                    if let Err(refusal) = self.may(&user, &verb, path).await {
                        return refusal;
                    }
                    activity.admit();
                }
                Ok(None) => return unauthorized(),
                Err(unknown) => {
                    tracing::debug!(path, %unknown, "authentication failed");
                    return if unknown.is_busy { too_many_requests() } else { unauthorized() };
                }
            }
        }
        match routes.clone().oneshot(request).await {
            Ok(response) => response,
            Err(impossible) => match impossible {},
        }
    }

    /// Authorizes the user, or returns the error response.
    async fn may(&self, user: &Arc<User>, verb: &str, path: &str) -> Result<(), Response> {
        match self.authorizer.review(user, verb, path).await {
            Ok(verdict) if verdict.is_allowed => Ok(()),
            Ok(verdict) => Err(forbidden(&user.name, verb, path, &verdict.reason)),
            Err(ReviewError::Busy) => Err(too_many_requests()),
            Err(error) => {
                let text = format!("Internal Server Error: {path:?}: {error}");
                Err(plain_line(StatusCode::INTERNAL_SERVER_ERROR, text))
            }
        }
    }
}

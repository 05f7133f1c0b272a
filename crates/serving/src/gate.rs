//! What every request passes: who asks, and whether they may. Nothing that goes wrong in here ends the process.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures::FutureExt as _;
use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use tokio::time::{Instant, timeout};
use tower::ServiceExt as _;

use super::authenticator::Authenticator;
use super::authorizer::Authorizer;
use super::text::{forbidden, plain_line, unauthorized};
use super::trust::Chain;
use super::user::User;

/// No request takes longer. Reviews take 10 s at most, each; a scheduler that is not asked between two cycles for so long has
/// other worries.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What every answer says: it is for whoever asked, now, and what it says it is.
const HEADERS: [(HeaderName, HeaderValue); 2] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
];

/// Lets requests through to what is served.
pub(super) struct Gate {
    pub(super) authenticator: Authenticator,
    pub(super) authorizer: Authorizer,
}

impl Gate {
    /// The answer to a request of a client that has shown these certificates.
    pub(super) async fn answer(&self, request: Request<Body>, chain: &Chain, routes: &Router) -> Response {
        let began = Instant::now();
        // Not the query: what is there is nobody's business.
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let passing = AssertUnwindSafe(self.pass(request, chain, routes)).catch_unwind();
        let mut response = match timeout(REQUEST_TIMEOUT, passing).await {
            Ok(Ok(response)) => response,
            Ok(Err(panic)) => {
                tracing::error!(%method, %path, panic = text_of(&*panic), "a request made a handler panic");
                let text = "the handler of this request panicked; the log says more".to_owned();
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

    async fn pass(&self, request: Request<Body>, chain: &Chain, routes: &Router) -> Response {
        let path = request.uri().path();
        if !self.authorizer.is_open(path) {
            match self.authenticator.user(chain, request.headers()).await {
                Ok(Some(user)) => {
                    let verb = request.method().as_str().to_ascii_lowercase();
                    if let Err(refusal) = self.may(&user, &verb, path).await {
                        return refusal;
                    }
                }
                Ok(None) => return unauthorized(),
                Err(unknown) => {
                    tracing::debug!(path, %unknown, "it is not known who asks");
                    return unauthorized();
                }
            }
        }
        match routes.clone().oneshot(request).await {
            Ok(response) => response,
            Err(impossible) => match impossible {},
        }
    }

    /// Whether this user may; else what they are told.
    async fn may(&self, user: &Arc<User>, verb: &str, path: &str) -> Result<(), Response> {
        match self.authorizer.review(user, verb, path).await {
            Ok(verdict) if verdict.is_allowed => Ok(()),
            Ok(verdict) => Err(forbidden(&user.name, verb, path, &verdict.reason)),
            Err(error) => {
                let text = format!("Internal Server Error: {path:?}: {error}");
                Err(plain_line(StatusCode::INTERNAL_SERVER_ERROR, text))
            }
        }
    }
}

/// What a panic says.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

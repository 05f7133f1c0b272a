//! Metrics of requests to the API server, as in client-go.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Method, Request, Response, StatusCode};
use tower::{Layer, Service};

use super::family::Family;
use super::spec;
use super::text::Text;
use super::value::{Counter, Histogram};

/// The code of a request without response, as in client-go.
const NO_ANSWER: &str = "<error>";

/// Metrics of the requests to one server, by all clients.
pub struct Requests {
    host: Box<str>,
    answers: Family<Counter>,
    duration: Family<Histogram>,
    waited: Family<Histogram>,
}

impl Requests {
    /// Metrics for the server at this host and port.
    pub fn to(host: &str) -> Arc<Self> {
        Arc::new(Self {
            host: host.into(),
            answers: Family::new(&spec::REST_REQUESTS),
            duration: Family::new(&spec::REST_DURATION),
            waited: Family::new(&spec::REST_RATE_LIMITER),
        })
    }

    /// Counts a request with the status of its response; `None` without one.
    pub fn answered(&self, method: &Method, status: Option<StatusCode>, took: Duration) {
        let code = status.as_ref().map_or(NO_ANSWER, StatusCode::as_str);
        self.answers.with(&[code, method.as_str(), &self.host]).increment();
        self.duration.with(&[method.as_str(), &self.host]).took(took);
    }

    /// Observes how long a request waited.
    pub fn waited(&self, method: &Method, took: Duration) {
        self.waited.with(&[method.as_str(), &self.host]).took(took);
    }

    /// Writes the request families.
    pub fn write(&self, text: &mut Text) {
        self.answers.write(text);
        self.duration.write(text);
        self.waited.write(text);
    }
}

/// A layer that counts the requests of a kube client.
#[derive(Clone)]
pub struct Counting(pub Arc<Requests>);

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, requests: Arc::clone(&self.0) }
    }
}

/// A service with counted requests.
#[derive(Clone)]
pub struct Counted<S> {
    inner: S,
    requests: Arc<Requests>,
}

impl<S, B, A> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (requests, method, began) =
            (Arc::clone(&self.requests), request.method().clone(), Instant::now());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            requests.answered(&method, answer.as_ref().ok().map(Response::status), began.elapsed());
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_code_method_and_host() {
        let requests = Requests::to("10.0.0.1:6443");
        let server = tower::service_fn(|request: Request<()>| async move {
            let status = if request.method() == Method::GET { 200 } else { 409 };
            Ok::<_, Infallible>(Response::builder().status(status).body(()).unwrap())
        });
        let client = Counting(Arc::clone(&requests)).layer(server);
        for method in [Method::GET, Method::GET, Method::POST] {
            client.clone().oneshot(Request::builder().method(method).body(()).unwrap()).await.unwrap();
        }
        requests.answered(&Method::POST, None, Duration::ZERO);
        let mut text = Text::default();
        requests.write(&mut text);
        let text = text.finish();
        for line in [
            r#"rest_client_requests_total{code="200",method="GET",host="10.0.0.1:6443"} 2"#,
            r#"rest_client_requests_total{code="409",method="POST",host="10.0.0.1:6443"} 1"#,
            r#"rest_client_requests_total{code="<error>",method="POST",host="10.0.0.1:6443"} 1"#,
            r#"rest_client_request_duration_seconds_count{verb="POST",host="10.0.0.1:6443"} 2"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}

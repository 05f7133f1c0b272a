//! Metrics of requests to the API server, as in client-go.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::{Body, Frame, SizeHint};
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
    sent: Family<Histogram>,
    received: Family<Histogram>,
}

impl Requests {
    /// Metrics for the server at this host and port.
    pub fn to(host: &str) -> Arc<Self> {
        Arc::new(Self {
            host: host.into(),
            answers: Family::new(&spec::REST_REQUESTS),
            duration: Family::new(&spec::REST_DURATION),
            waited: Family::new(&spec::REST_RATE_LIMITER),
            sent: Family::new(&spec::REST_REQUEST_SIZE),
            received: Family::new(&spec::REST_RESPONSE_SIZE),
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

    /// Observes the bytes of a request's body.
    pub fn sent(&self, method: &Method, bytes: u64) {
        self.sent.with(&[method.as_str(), &self.host]).observe(bytes as f64);
    }

    /// Observes the bytes of a response's body.
    pub fn received(&self, method: &Method, bytes: u64) {
        self.received.with(&[method.as_str(), &self.host]).observe(bytes as f64);
    }

    /// Writes the request families.
    pub fn write(&self, text: &mut Text) {
        self.answers.write(text);
        self.duration.write(text);
        self.waited.write(text);
        self.sent.write(text);
        self.received.write(text);
    }
}

/// A layer that counts the requests of a kube client, and their sizes. As in client-go, watches
/// have no size.
#[derive(Clone)]
pub struct Counting(pub Arc<Requests>);

impl<S> Layer<S> for Counting {
    type Service = CountingService<S>;

    fn layer(&self, inner: S) -> CountingService<S> {
        CountingService { inner, requests: Arc::clone(&self.0) }
    }
}

/// A service with counted requests.
#[derive(Clone)]
pub struct CountingService<S> {
    inner: S,
    requests: Arc<Requests>,
}

impl<S, B, A> Service<Request<B>> for CountingService<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
    B: Body,
{
    type Response = Response<CountedBody<A>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (requests, method, began) =
            (Arc::clone(&self.requests), request.method().clone(), Instant::now());
        let has_size = !is_watch(request.uri());
        let sent = request.body().size_hint().exact().filter(|_| has_size);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            requests.answered(&method, answer.as_ref().ok().map(Response::status), began.elapsed());
            if let Some(bytes) = sent {
                requests.sent(&method, bytes);
            }
            Ok(answer?.map(|body| CountedBody {
                body: Box::pin(body),
                tally: has_size.then(|| Tally { requests, method, bytes: 0 }),
            }))
        })
    }
}

fn is_watch(uri: &Uri) -> bool {
    uri.query()
        .is_some_and(|query| query.split('&').any(|part| matches!(part, "watch" | "watch=1" | "watch=true")))
}

/// The body of a response, whose size is observed once it is dropped.
pub struct CountedBody<A> {
    body: Pin<Box<A>>,
    tally: Option<Tally>,
}

/// The bytes of a response so far, which are observed when it is dropped.
struct Tally {
    requests: Arc<Requests>,
    method: Method,
    bytes: u64,
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.requests.received(&self.method, self.bytes);
    }
}

impl<A: Body<Data = Bytes>> Body for CountedBody<A> {
    type Data = Bytes;
    type Error = A::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, A::Error>>> {
        let polled = self.body.as_mut().poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(tally)) = (&polled, &mut self.tally) {
            tally.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt as _, Full};
    use tower::ServiceExt as _;

    use super::*;

    fn lines(requests: &Requests) -> Vec<String> {
        let mut text = Text::default();
        requests.write(&mut text);
        text.finish().lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn requests_are_counted_by_code_method_and_host() {
        let requests = Requests::to("10.0.0.1:6443");
        let server = tower::service_fn(|request: Request<Full<Bytes>>| async move {
            let status = if request.method() == Method::GET { 200 } else { 409 };
            Ok::<_, Infallible>(Response::builder().status(status).body(Full::<Bytes>::default()).unwrap())
        });
        let client = Counting(Arc::clone(&requests)).layer(server);
        for method in [Method::GET, Method::GET, Method::POST] {
            let request = Request::builder().method(method).body(Full::default()).unwrap();
            client.clone().oneshot(request).await.unwrap();
        }
        requests.answered(&Method::POST, None, Duration::ZERO);
        let text = lines(&requests);
        for line in [
            r#"rest_client_requests_total{code="200",method="GET",host="10.0.0.1:6443"} 2"#,
            r#"rest_client_requests_total{code="409",method="POST",host="10.0.0.1:6443"} 1"#,
            r#"rest_client_requests_total{code="<error>",method="POST",host="10.0.0.1:6443"} 1"#,
            r#"rest_client_request_duration_seconds_count{verb="POST",host="10.0.0.1:6443"} 2"#,
        ] {
            assert!(text.iter().any(|it| it == line), "{line}\n{text:#?}");
        }
    }

    #[tokio::test]
    async fn sizes_of_bodies_are_observed_except_those_of_watches() {
        let requests = Requests::to("h");
        let server = tower::service_fn(|_: Request<Full<Bytes>>| async move {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(&[0; 300]))))
        });
        let client = Counting(Arc::clone(&requests)).layer(server);
        for uri in ["/pods?watch=true&limit=1", "/pods?watch=1", "/pods?limit=500"] {
            let request = Request::builder().uri(uri).body(Full::new(Bytes::from_static(b"12345"))).unwrap();
            let answer = client.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 300);
        }
        let text = lines(&requests);
        for line in [
            r#"rest_client_request_size_bytes_sum{verb="GET",host="h"} 5"#,
            r#"rest_client_request_size_bytes_count{verb="GET",host="h"} 1"#,
            r#"rest_client_response_size_bytes_bucket{verb="GET",host="h",le="256"} 0"#,
            r#"rest_client_response_size_bytes_bucket{verb="GET",host="h",le="512"} 1"#,
            r#"rest_client_response_size_bytes_sum{verb="GET",host="h"} 300"#,
        ] {
            assert!(text.iter().any(|it| it == line), "{line}\n{text:#?}");
        }
    }
}

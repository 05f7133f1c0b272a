//! Connections to the API server: HTTP/2, or HTTP/1.1 if the server does not support it.
//!
//! Over HTTP/2 one connection carries all requests of a client; hyper respects the server's limit
//! of streams and queues other requests. Pings detect dead connections. Credentials and TLS are
//! kube's.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, ResolveServerName};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt as _;
use kube::{Client, Config};
use tokio::sync::Mutex;
use tower::util::{BoxCloneSyncService, ServiceExt as _};
use tower::{Service, ServiceBuilder};

/// Idle time before a connection is pinged, as in client-go.
const PING_AFTER: Duration = Duration::from_secs(30);
/// Timeout of a ping. It ends the connection and all its requests.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

type Sending<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Observes the requests of a transport, to count them.
pub trait RequestObserver: Send + Sync {
    /// A request waited this long for the rate limit and for a permit.
    fn waited(&self, method: &Method, took: Duration);

    /// The server responded with this status, or not at all.
    fn answered(&self, method: &Method, status: Option<StatusCode>, took: Duration);
}

/// Sends requests. Callers set path and query; the transport adds the server and credentials.
#[derive(Clone)]
pub struct Transport {
    backend: Backend,
    observer: Option<Arc<dyn RequestObserver>>,
}

#[derive(Clone)]
enum Backend {
    Kube(Client),
    Http(BoxCloneSyncService<Request<Full<Bytes>>, Response<hyper::body::Incoming>, BoxError>),
}

impl Transport {
    /// Connects to this server, over HTTP/2 if it supports it.
    pub fn connect(config: &Config) -> Result<Self, kube::Error> {
        // kube's client supports proxies.
        if config.proxy_url.is_some() {
            return Ok(Self::from(Client::try_from(config.clone())?));
        }
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service(Wire::new(config)?);
        let backend = Backend::Http(BoxCloneSyncService::new(service.map_err(BoxError::from)));
        Ok(Self { backend, observer: None })
    }

    /// The same transport, with its requests observed.
    pub fn observed(self, observer: Arc<dyn RequestObserver>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Reports how long a request has waited.
    pub(crate) fn waited(&self, method: &Method, took: Duration) {
        if let Some(observer) = &self.observer {
            observer.waited(method, took);
        }
    }

    /// Sends a request and reads the whole response.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, BoxError> {
        let Some(observer) = &self.observer else {
            return self.send_unobserved(request).await;
        };
        let (method, began) = (request.method().clone(), Instant::now());
        let answer = self.send_unobserved(request).await;
        observer.answered(&method, answer.as_ref().ok().map(Response::status), began.elapsed());
        answer
    }

    async fn send_unobserved(&self, request: Request<Bytes>) -> Result<Response<Bytes>, BoxError> {
        match &self.backend {
            Backend::Kube(client) => {
                let request = request.map(|body| kube::client::Body::from(Vec::from(body)));
                let (head, body) = client.send(request).await?.into_parts();
                Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
            }
            Backend::Http(service) => {
                let request = request.map(Full::new);
                let (head, body) = service.clone().oneshot(request).await?.into_parts();
                Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
            }
        }
    }
}

impl From<Client> for Transport {
    fn from(client: Client) -> Self {
        Self { backend: Backend::Kube(client), observer: None }
    }
}

type Pool = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The way to one server.
#[derive(Clone)]
struct Wire(Arc<Connections>);

struct Connections {
    pool: Pool,
    /// Whether the server responded to the last request. If not, one request goes first and
    /// establishes the connection that the others share.
    is_connected: AtomicBool,
    first: Mutex<()>,
}

impl Wire {
    fn new(config: &Config) -> Result<Self, kube::Error> {
        let (is_connected, first) = (AtomicBool::new(false), Mutex::new(()));
        Ok(Self(Arc::new(Connections { pool: pool(config)?, is_connected, first })))
    }
}

/// The connection pool; ALPN selects the protocol.
fn pool(config: &Config) -> Result<Pool, kube::Error> {
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = [b"h2".as_slice(), b"http/1.1"].map(<[u8]>::to_vec).into();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(config.connect_timeout);
    // Requests are small and complete, so there is nothing to coalesce.
    tcp.set_nodelay(true);
    let connector = HttpsConnector::new(tcp, tls, false, server_name(config));
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // A binding after an idle hour must not wait for a handshake.
        .pool_idle_timeout(None)
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true);
    Ok(builder.build(connector))
}

/// The expected name in the server's certificate.
fn server_name(config: &Config) -> Arc<dyn ResolveServerName + Send + Sync> {
    match config.tls_server_name.clone() {
        Some(name) => Arc::new(move |_: &Uri| name.clone().try_into()),
        None => Arc::new(hyper_rustls::DefaultServerNameResolver::default()),
    }
}

impl Connections {
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<hyper::body::Incoming>, legacy::Error> {
        if self.is_connected.load(Ordering::Relaxed) {
            return self.send_now(request).await;
        }
        let first = self.first.lock().await;
        if self.is_connected.load(Ordering::Relaxed) {
            drop(first);
            return self.send_now(request).await;
        }
        self.send_now(request).await
    }

    async fn send_now(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<hyper::body::Incoming>, legacy::Error> {
        let result = self.pool.request(request).await;
        match &result {
            Ok(_) => self.is_connected.store(true, Ordering::Relaxed),
            // The server responded with a stream error, so the connection works.
            Err(error) if h2_error(error).is_some_and(h2::Error::is_remote) => {}
            Err(_) => self.is_connected.store(false, Ordering::Relaxed),
        }
        result
    }
}

impl Service<Request<Full<Bytes>>> for Wire {
    type Response = Response<hyper::body::Incoming>;
    type Error = legacy::Error;
    type Future = Sending<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let connections = Arc::clone(&self.0);
        Box::pin(async move { connections.send(request).await })
    }
}

/// What is known about a request without response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Not sent: there was no connection, or no credentials.
    NotSent,
    /// Not processed, according to the server: safe to retry.
    Unprocessed,
    /// The request may have taken effect.
    Unknown,
}

/// Classifies an error of a request.
pub(crate) fn fate(error: &(dyn StdError + 'static)) -> Fate {
    let has_no_credentials = find(error, |_: &kube::client::AuthError| true);
    if has_no_credentials || is_connection_refused(error) || find(error, legacy::Error::is_connect) {
        return Fate::NotSent;
    }
    // GOAWAY fails only streams after the last one that it names.
    let is_left_out = |error: &h2::Error| {
        error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    };
    if h2_error(error).is_some_and(is_left_out) { Fate::Unprocessed } else { Fate::Unknown }
}

/// Whether the server refused the connection.
pub fn is_connection_refused(error: &(dyn StdError + 'static)) -> bool {
    find(error, |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The HTTP/2 error among the causes.
fn h2_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a h2::Error> {
    chain(error).find_map(|error| error.downcast_ref())
}

fn find<E: StdError + 'static>(error: &(dyn StdError + 'static), is_it: impl Fn(&E) -> bool) -> bool {
    chain(error).filter_map(|error| error.downcast_ref()).any(is_it)
}

/// An error and its causes.
fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> + use<'a> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests;

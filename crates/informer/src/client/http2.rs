//! Connections over HTTP/2, whose pings notice a server that has died or become unreachable.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Uri};
use http_body_util::BodyExt;
use hyper_rustls::{DefaultServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::time::timeout;
use tower::{ServiceBuilder, ServiceExt};

/// The maximum number of requests per connection, below the limit of API servers. A watch is a
/// request for as long as it lasts, and waits forever if the connection has no room.
const REQUESTS_PER_CONNECTION: usize = 50;
/// The maximum time until a connection is established, with TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// When a silent connection counts as dead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The silence before a ping.
    pub(super) silence: Duration,
    /// The time for its answer.
    pub(super) answer: Duration,
}

impl Default for Patience {
    /// 25 s in total. client-go takes 45 s.
    fn default() -> Self {
        Self { silence: Duration::from_secs(15), answer: Duration::from_secs(10) }
    }
}

/// A client that uses HTTP/2 if the server supports it, and else HTTP/1.1.
pub(super) fn connect(config: Config, patience: Patience) -> Result<Client, kube::Error> {
    // Proxies are left to kube's client.
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let connections = Arc::new(Connections::new(connector(&config, patience)?, patience));
    let send = tower::service_fn(move |request: Request<Body>| {
        let (connection, place) = connections.place();
        async move {
            let response = connection.request(request).await?;
            // The request keeps its place until its response has been read.
            Ok::<_, legacy::Error>(response.map(|body| body.map_frame(move |frame| (frame, &place).0)))
        }
    });
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(send);
    Ok(Client::new(service, config.default_namespace))
}

fn connector(config: &Config, patience: Patience) -> Result<impl Connect + Clone + use<>, kube::Error> {
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // HTTP/1.1 has no pings.
    tcp.set_keepalive(Some(patience.silence));
    tcp.set_keepalive_interval(Some(patience.answer / 2));
    tcp.set_keepalive_retries(Some(2));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(patience.silence + patience.answer));
    let https = HttpsConnector::new(tcp, tls, false, server_name(config));
    Ok(https.map_future(|connecting| -> Connecting<_> {
        Box::pin(async move { timeout(CONNECT_TIMEOUT, connecting).await? })
    }))
}

/// The expected name in the server's certificate.
fn server_name(config: &Config) -> Arc<dyn ResolveServerName + Send + Sync> {
    match config.tls_server_name.clone() {
        Some(name) => Arc::new(move |_: &Uri| name.clone().try_into()),
        None => Arc::new(DefaultServerNameResolver::default()),
    }
}

/// A connection with its places: every clone of the `Arc` but the first is taken.
type Connection<C> = (legacy::Client<C, Body>, Arc<()>);

/// As many connections as the requests in progress need.
struct Connections<C> {
    builder: legacy::Builder,
    connector: C,
    open: Mutex<Vec<Connection<C>>>,
}

impl<C: Connect + Clone> Connections<C> {
    fn new(connector: C, patience: Patience) -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(patience.silence)
            .http2_keep_alive_timeout(patience.answer);
        Self { builder, connector, open: Mutex::default() }
    }

    /// A connection with a free place.
    fn place(&self) -> Connection<C> {
        let mut open = self.open.lock();
        let has_room = |(_, places): &&Connection<C>| Arc::strong_count(places) <= REQUESTS_PER_CONNECTION;
        if let Some(found) = open.iter().find(has_room) {
            return found.clone();
        }
        let new = (self.builder.build(self.connector.clone()), Arc::default());
        open.push(new.clone());
        new
    }
}

#[cfg(test)]
mod tests;

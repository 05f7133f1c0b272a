//! Connections over HTTP/2, whose pings notice a server that has died or become unreachable. For
//! clients of your own: [`informer_client`](crate::informer_client) uses them by itself.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Uri};
use http_body_util::BodyExt;
use hyper_rustls::{DefaultServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use parking_lot::Mutex;
use tower::ServiceBuilder;

/// The maximum number of requests per connection, below the limit of API servers. A watch is a
/// request for as long as it lasts, and waits forever if the connection has no room.
const REQUESTS_PER_CONNECTION: usize = 50;
/// The maximum time until a connection is established, with TLS. kube's default is 30 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The kernel counts keepalive in seconds.
const SECOND: Duration = Duration::from_secs(1);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// When a silent connection counts as dead.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Patience {
    /// The silence before a ping.
    pub silence: Duration,
    /// The time for its answer. Without one, the connection ends with all its requests.
    pub answer: Duration,
}

impl Default for Patience {
    /// 25 s in total. client-go takes 45 s.
    fn default() -> Self {
        Self { silence: Duration::from_secs(15), answer: Duration::from_secs(10) }
    }
}

impl Patience {
    /// A connection that is silent for `silence` has `answer` left.
    pub const fn new(silence: Duration, answer: Duration) -> Self {
        Self { silence, answer }
    }

    /// A builder of clients that ping over HTTP/2.
    pub fn client_builder(self) -> legacy::Builder {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(self.silence)
            .http2_keep_alive_timeout(self.answer);
        builder
    }
}

/// A client that uses HTTP/2 if the server supports it, and else HTTP/1.1.
pub(crate) fn connect(config: Config, patience: Patience) -> Result<Client, kube::Error> {
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

/// Opens connections to the server of this configuration: HTTP/2 if the server supports it, and
/// else HTTP/1.1, which has no pings. There, the kernel ends connections whose peer is gone.
/// Connections that are silent for the configuration's `read_timeout` end, too.
///
/// Connecting takes 10 s at most, or the configuration's `connect_timeout` if that is shorter;
/// without one, there is no limit. Proxies of the configuration are ignored.
pub fn connector(
    config: &Config,
    patience: Patience,
) -> Result<impl Connect + Clone + Send + Sync + use<>, kube::Error> {
    let mut tls = config.rustls_client_config()?;
    // ALPN selects the protocol.
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // Idle connections: two probes within the time for the answer.
    tcp.set_keepalive(Some(patience.silence.max(SECOND)));
    tcp.set_keepalive_interval(Some((patience.answer / 2).max(SECOND)));
    tcp.set_keepalive_retries(Some(2));
    // Connections with unacknowledged data.
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(patience.silence + patience.answer));
    let mut connector = TimeoutConnector::new(HttpsConnector::new(tcp, tls, false, server_name(config)));
    connector.set_connect_timeout(config.connect_timeout.map(|limit| limit.min(CONNECT_TIMEOUT)));
    connector.set_read_timeout(config.read_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    Ok(connector)
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
        Self { builder: patience.client_builder(), connector, open: Mutex::default() }
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

//! The connections of one client: HTTP/2, or HTTP/1.1 if the server does not support it.
//!
//! Over HTTP/2 one connection carries all requests of a client; hyper respects the server's limit
//! of streams and queues other requests. Pings detect connections that are silently dead, even
//! behind a proxy that still acknowledges packets; over HTTP/1.1 the kernel detects dead peers.
//! Credentials and TLS are kube's.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::Connect;
use jiff::Timestamp;
use kube::Config;
use kube::client::{Body, ConfigExt as _};
use kube_informers::http2::{Patience, connector};
use parking_lot::Mutex;
use thiserror::Error;
use tower::ServiceBuilder;
use tower::util::{BoxCloneSyncService, ServiceExt as _};

use crate::connection::{Access, Connection};
use crate::host::machine_time;
use crate::outgoing_body::{OutgoingBody, Unread};
use crate::transport::BoxError;

/// client-go takes 45 s.
pub(crate) const PATIENCE: Patience = Patience::new(Duration::from_secs(10), Duration::from_secs(10));
/// Flow control windows of a stream and a connection. A watch that is read slowly fills its own
/// window and leaves room for the others.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

type Backend = BoxCloneSyncService<Request<OutgoingBody>, Response<Incoming>, BoxError>;

/// Why nothing can be sent.
#[derive(Debug, Error)]
pub(crate) enum NoAccess {
    /// The exec plugin gave no others.
    #[error("the credentials of the exec plugin expired at {0}")]
    Expired(Timestamp),
    /// The server's address or the credentials cannot be used.
    #[error(transparent)]
    Unusable(#[from] kube::Error),
}

/// The connections of one client.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Inner>);

struct Inner {
    connection: Connection,
    patience: Patience,
    /// What the last request was sent by, and the access for which it was made.
    current: Mutex<Option<(Arc<Access>, Backend)>>,
}

impl Wire {
    pub(crate) fn new(connection: Connection, patience: Patience) -> Result<Self, kube::Error> {
        let access = connection.access();
        let current = Mutex::new(Some((Arc::clone(&access), backend(&access.config, patience)?)));
        Ok(Self(Arc::new(Inner { connection, patience, current })))
    }

    /// The same server and credentials, over other connections.
    pub(crate) fn with_patience(&self, patience: Patience) -> Self {
        let connection = self.0.connection.clone();
        Self(Arc::new(Inner { connection, patience, current: Mutex::default() }))
    }

    /// Sends later requests over a new connection. Requests in flight stay on theirs.
    pub(crate) fn reconnect(&self) {
        *self.0.current.lock() = None;
    }

    /// Sends a request. The error is [`Unread`] if the request has a body and none of it was sent.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let (access, backend) = self.backend()?;
        let (head, body) = request.into_parts();
        let (body, progress) = OutgoingBody::new(body);
        let sent = backend.oneshot(Request::from_parts(head, body)).await;
        let response = sent.map_err(|error| if progress.is_unread() { Unread::of(error) } else { error })?;
        if response.status() == StatusCode::UNAUTHORIZED {
            access.rejected.notify_one();
        }
        Ok(response)
    }

    /// The current access and its backend, or a new one if the access has changed.
    fn backend(&self) -> Result<(Arc<Access>, Backend), NoAccess> {
        let Inner { connection, patience, current } = &*self.0;
        let access = connection.access();
        if let Some(expired) = access.expires.filter(|at| *at <= machine_time()) {
            return Err(NoAccess::Expired(expired));
        }
        let mut current = current.lock();
        if let Some((of, backend)) = &*current
            && Arc::ptr_eq(of, &access)
        {
            return Ok((access, backend.clone()));
        }
        let backend = backend(&access.config, *patience)?;
        *current = Some((Arc::clone(&access), backend.clone()));
        Ok((access, backend))
    }
}

/// New connections, with credentials for each request.
fn backend(config: &Config, patience: Patience) -> Result<Backend, kube::Error> {
    // Let kube report proxies, for which it is built without support.
    if config.proxy_url.is_some() {
        kube::Client::try_from(config.clone())?;
    }
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(pool(config, patience)?);
    Ok(BoxCloneSyncService::new(service.map_err(BoxError::from)))
}

/// The connections to one server.
fn pool(
    config: &Config,
    patience: Patience,
) -> Result<legacy::Client<impl Connect + Clone + Send + Sync + use<>, OutgoingBody>, kube::Error> {
    let mut builder = patience.client_builder();
    builder
        // A binding after an idle hour must not wait for a handshake.
        .pool_idle_timeout(None)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_while_idle(true);
    Ok(builder.build(connector(config, patience)?))
}

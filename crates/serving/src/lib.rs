//! HTTPS endpoints for health, metrics and debugging, as in kube-scheduler. Clients authenticate by
//! certificate or token, and the API server authorizes them. Only health paths are public.
//!
//! ```text
//! connections (TLS, limits) ──> handlers ──> routes ──> Endpoints: content from the scheduler
//!                                │
//!                                ├── authenticator ── trust, answers, review ──> TokenReview
//!                                └── authorizer ── answers, review ──> SubjectAccessReview
//! ```
//!
//! | module | content |
//! |---|---|
//! | `connections`, `connection_limit`, `activity` | HTTP connections, their number and idle time |
//! | `tls`, `certificate`, `sni` | TLS settings and serving certificates |
//! | `handler_chain` | authentication, authorization and timeout of each request |
//! | `authenticator`, `trust`, `user` | the user of a request; trusted CAs |
//! | `authorizer` | whether the user may send the request |
//! | `review`, `answers` | reviews by the API server, and their cache |
//! | `routes`, `text` | paths and responses |
//! | `loopback` | plain HTTP for a browser of this machine |
//! | `health`, `slis`, `statusz` | health checks, their metrics, and `/statusz` |
//!
//! The scheduler never waits for this crate. Only requests that query the scheduler wait for it.

mod activity;
mod answers;
mod authenticator;
mod authorizer;
mod certificate;
mod connection_limit;
mod connections;
mod error;
mod handler_chain;
mod health;
mod loopback;
mod origin;
mod review;
mod routes;
mod slis;
mod sni;
mod statusz;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
mod tls;
mod trust;
mod user;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use tokio::net::TcpListener;
use tokio::time::interval;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use self::activity::Activity;
pub use self::authenticator::AUDIENCE;
use self::authenticator::Authenticator;
use self::authorizer::Authorizer;
use self::connection_limit::ConnectionLimit;
use self::connections::{AnswerRequest, Connections};
pub use self::error::{LookupError, ServeError};
use self::handler_chain::HandlerChain;
pub use self::health::{Check, Checks, Probe};
pub use self::loopback::{Loopback, NextLink, SESSION, Site};
use self::review::Reviewer;
pub use self::routes::{Endpoints, JsonPage, Parts, QueryPage, QueryResponse, TextPage};
use self::sni::Certificates;
use self::trust::Trust;
use supercargo_client::api::Api;
use supercargo_client::connection::{ConnectError, Connection};
use supercargo_client::rate_limit::RateLimiter;
use supercargo_client::transport::Transport;
use supercargo_config::flags::{AuthenticationOptions, AuthorizationOptions, ServingOptions};

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 1000;
/// How often files are checked for changes.
const FILES_PERIOD: Duration = Duration::from_secs(5);
/// How often client CAs are looked up in the cluster. The kubelet takes as long to update a mounted
/// Secret.
const LOOKUP_PERIOD: Duration = Duration::from_mins(1);
/// Reviews per second, and their burst, as upstream.
const REVIEWS: (f32, u32) = (200.0, 400);

/// The settings of a server.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Address and TLS settings.
    pub serving: &'a ServingOptions,
    /// Authentication settings.
    pub authentication: &'a AuthenticationOptions,
    /// Authorization settings.
    pub authorization: &'a AuthorizationOptions,
    /// The default connection to the API server.
    pub connection: &'a Connection,
    /// The host name for a generated certificate.
    pub hostname: &'a str,
}

/// A server that listens. It answers once [`serve`](Self::serve) is called.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    streams: u32,
    certificates: Arc<Certificates>,
    trust: Arc<Trust>,
    identities: Arc<Reviewer>,
    handlers: HandlerChain,
}

impl Server {
    /// Listens on the configured address; `None` if serving is disabled.
    pub async fn bind(setup: Setup<'_>) -> Result<Option<Self>, ServeError> {
        if setup.serving.secure_port == 0 {
            return Ok(None);
        }
        let address = SocketAddr::new(setup.serving.bind_address, setup.serving.secure_port);
        let listener =
            TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })?;
        Self::on(listener, setup).await.map(Some)
    }

    /// Uses an open listener, for a port chosen by the system.
    pub async fn on(listener: TcpListener, setup: Setup<'_>) -> Result<Self, ServeError> {
        let Setup { authentication, authorization, connection, .. } = setup;
        let identities =
            api(connection, authentication.kubeconfig.as_deref(), "--authentication-kubeconfig").await?;
        let permissions =
            api(connection, authorization.kubeconfig.as_deref(), "--authorization-kubeconfig").await?;
        Self::with_apis(identities, permissions, listener, setup).await
    }

    /// Like [`on`](Self::on), with clients for both kinds of reviews.
    async fn with_apis(
        identities: Api,
        permissions: Api,
        listener: TcpListener,
        setup: Setup<'_>,
    ) -> Result<Self, ServeError> {
        let Setup { serving, authentication, authorization, hostname, .. } = setup;
        let configured = SocketAddr::new(serving.bind_address, serving.secure_port);
        let address =
            listener.local_addr().map_err(|source| ServeError::Listen { address: configured, source })?;
        let certificates = Arc::new(Certificates::new(serving, hostname)?);
        let tls = Arc::new(tls::config(serving, Arc::clone(&certificates)).map_err(ServeError::Tls)?);
        let identities = Arc::new(Reviewer::new(identities, "authentication"));
        let trust = Arc::new(Trust::new(authentication)?);
        if trust.needs_lookup() && !authentication.tolerate_lookup_failure {
            trust.lookup(&identities).await.map_err(ServeError::Lookup)?;
        }
        let time_to_live = authentication.token_cache_ttl;
        let handlers = HandlerChain {
            authenticator: Authenticator::new(Arc::clone(&trust), Arc::clone(&identities), time_to_live),
            authorizer: Authorizer::new(authorization, Reviewer::new(permissions, "authorization")),
        };
        let streams = serving.http2_max_streams_per_connection;
        Ok(Self { listener, address, tls, streams, certificates, trust, identities, handlers })
    }

    /// The address of the listener.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled, and then completes requests in flight.
    pub async fn serve(self, endpoints: Endpoints, stop: CancellationToken) {
        tracing::info!(address = %self.address, "serving HTTPS");
        let answer = Arc::new(Served { handlers: self.handlers, routes: endpoints.into_routes() });
        let limit = ConnectionLimit::new(MAX_CONNECTIONS);
        let connections = Connections { tls: self.tls, streams: self.streams, limit, answer };
        let current = keep_current(&self.certificates, &self.trust, &self.identities);
        let serving = connections.serve(self.listener, stop);
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            never = current => match never {},
        }
        tracing::info!(address = %self.address, "stopped serving HTTPS");
    }
}

/// A client for reviews, from this kubeconfig or the scheduler's connection. It is separate, so
/// that reviews and bindings do not wait for each other.
async fn api(
    connection: &Connection,
    kubeconfig: Option<&Path>,
    flag: &'static str,
) -> Result<Api, ServeError> {
    let error = |source| ServeError::Connect { flag, source };
    let connection = match kubeconfig {
        Some(path) => Connection::open(None, Some(path)).await.map_err(error)?,
        None => connection.clone(),
    };
    let transport =
        Transport::connect(connection).map_err(|source| error(ConnectError::Client(Box::new(source))))?;
    Ok(Api::over(transport, RateLimiter::new(REVIEWS.0, REVIEWS.1), false))
}

/// Reloads the files, and looks up client CAs in the cluster.
async fn keep_current(
    certificates: &Certificates,
    trust: &Trust,
    reviewer: &Reviewer,
) -> std::convert::Infallible {
    let (mut files, mut lookups) = (interval(FILES_PERIOD), interval(LOOKUP_PERIOD));
    let [mut on_certificate, mut on_authorities, mut on_lookup] = [(); 3].map(|()| WarnOnChange::default());
    loop {
        tokio::select! {
            _ = files.tick() => {
                // Files may be renewed independently: an invalid one must not block the others.
                on_certificate.report(certificates.reload(), "cannot reload the serving certificate; keeping the current one");
                on_authorities.report(trust.read_files(), "cannot reload client CAs; keeping the current ones");
            }
            _ = lookups.tick(), if trust.needs_lookup() => {
                let result = trust.lookup(reviewer).await;
                on_lookup.report(result, "cannot look up client CAs in kube-system/extension-apiserver-authentication; client certificates may be rejected");
            }
        }
    }
}

/// Logs a repeated error only once.
#[derive(Default)]
struct WarnOnChange(Option<String>);

impl WarnOnChange {
    fn report(&mut self, result: Result<(), impl std::fmt::Display>, what: &str) {
        let now = result.err().map(|error| error.to_string());
        if now != self.0
            && let Some(error) = &now
        {
            tracing::warn!(error, "{what}");
        }
        self.0 = now;
    }
}

/// The handlers and the routes behind it.
struct Served {
    handlers: HandlerChain,
    routes: Router,
}

impl AnswerRequest for Served {
    async fn answer(
        &self,
        request: Request<Body>,
        chain: &[CertificateDer<'static>],
        activity: &Activity,
    ) -> Response {
        self.handlers.answer(request, chain, activity, &self.routes).await
    }
}

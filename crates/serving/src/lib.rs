//! HTTPS: health, metrics, and what people look at who look for a fault. As kube-scheduler serves it: who asks is found out by
//! certificate or token, and whether they may by asking the API server; only the health paths are open to everybody.
//!
//! ```text
//! connections (TLS, limits) ──> gate ──> routes ──> what the scheduler gives: Endpoints
//!                                │
//!                                ├── authenticator ── trust (client CAs), answers, review ──> TokenReview
//!                                └── authorizer ── answers, review ──> SubjectAccessReview
//! ```
//!
//! Nothing here waits for the scheduler but what asks it something, and nothing of the scheduler waits for anything here.

mod activity;
mod answers;
mod authenticator;
mod authorizer;
mod certificate;
mod connections;
mod gate;
mod health;
mod places;
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

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::time::interval;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use self::authenticator::Authenticator;
use self::authorizer::Authorizer;
use self::connections::{Answer, Connections};
use self::gate::Gate;
pub use self::health::{Check, Checks, Probe};
use self::places::Places;
use self::review::Reviewer;
pub use self::routes::{Endpoints, JsonPage, TextPage};
use self::sni::Certificates;
pub use self::trust::LookupError;
use self::trust::Trust;
use supercargo_client::api::{Api, ConnectError, connect};
use supercargo_client::rate_limit::RateLimiter;
use supercargo_client::transport::Transport;
use supercargo_config::flags::{AuthenticationOptions, AuthorizationOptions, ServingOptions};

/// So many connections at most.
const MOST_CONNECTIONS: usize = 1000;
/// How often files are looked at.
const FILES_PERIOD: Duration = Duration::from_secs(5);
/// How often the cluster is asked whose certificates it believes. The kubelet takes as long to bring a changed Secret.
const LOOKUP_PERIOD: Duration = Duration::from_mins(1);
/// Reviews a second, and at once, as upstream has it.
const REVIEWS: (f32, u32) = (200.0, 400);

/// Why nothing is served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address cannot be had.
    #[error(
        "cannot listen on {address}: {source}; say another --bind-address or --secure-port, or --secure-port=0 for none"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A certificate to serve with, or its key, cannot be read, made or used.
    #[error("certificate to serve with: {path}: {problem}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate to serve with: {0}")]
    Generate(#[source] rcgen::Error),
    /// The options of TLS do not fit each other.
    #[error("--tls-cipher-suites and --tls-min-version: {0}")]
    Tls(#[source] tokio_rustls::rustls::Error),
    /// The certificates of authorities that clients are known by cannot be used.
    #[error("authorities of clients: {path}: {problem}")]
    ClientAuthority {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The cluster did not say whose certificates it believes.
    #[error(
        "ConfigMap kube-system/extension-apiserver-authentication: {0}; \
         to go on without it, say --authentication-tolerate-lookup-failure=true"
    )]
    Lookup(#[source] LookupError),
    /// There is no way to the API server that says who somebody is, or what they may.
    #[error("{flag}: {source}")]
    Connect {
        /// The flag that names the way.
        flag: &'static str,
        /// Why.
        source: ConnectError,
    },
}

/// What a server is made of.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Where and how to listen.
    pub serving: &'a ServingOptions,
    /// How it is found out who asks.
    pub authentication: &'a AuthenticationOptions,
    /// How it is found out who may.
    pub authorization: &'a AuthorizationOptions,
    /// The way to the API server where the options name no other.
    pub connection: &'a kube::Config,
    /// The name of this machine, for a certificate that is made.
    pub hostname: &'a str,
}

/// A server that listens, and answers once it is told with what.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    streams: u32,
    certificates: Arc<Certificates>,
    trust: Arc<Trust>,
    identities: Arc<Reviewer>,
    gate: Gate,
}

impl Server {
    /// Listens where the options say; `None` where they say that nothing is to be served.
    pub async fn bind(setup: Setup<'_>) -> Result<Option<Self>, ServeError> {
        if setup.serving.secure_port == 0 {
            return Ok(None);
        }
        let address = SocketAddr::new(setup.serving.bind_address, setup.serving.secure_port);
        let listener =
            TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })?;
        Self::on(listener, setup).await.map(Some)
    }

    /// Listens on what listens already, for a port that the system has given.
    pub async fn on(listener: TcpListener, setup: Setup<'_>) -> Result<Self, ServeError> {
        let Setup { authentication, authorization, connection, .. } = setup;
        let identities =
            way(connection, authentication.kubeconfig.as_deref(), "--authentication-kubeconfig").await?;
        let permissions =
            way(connection, authorization.kubeconfig.as_deref(), "--authorization-kubeconfig").await?;
        Self::asking(identities, permissions, listener, setup).await
    }

    /// The same, with the ways to the API server that says who somebody is, and what they may.
    async fn asking(
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
        let gate = Gate {
            authenticator: Authenticator::new(Arc::clone(&trust), Arc::clone(&identities), time_to_live),
            authorizer: Authorizer::new(authorization, Reviewer::new(permissions, "authorization")),
        };
        let streams = serving.http2_max_streams_per_connection;
        Ok(Self { listener, address, tls, streams, certificates, trust, identities, gate })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled, and then for as long as what is under way takes.
    pub async fn serve(self, endpoints: Endpoints, stop: CancellationToken) {
        tracing::info!(address = %self.address, "serving securely");
        let answer = Arc::new(Served { gate: self.gate, routes: endpoints.into_routes() });
        let places = Places::new(MOST_CONNECTIONS);
        let connections = Connections { tls: self.tls, streams: self.streams, places, answer };
        let current = keep_current(&self.certificates, &self.trust, &self.identities);
        let serving = connections.serve(self.listener, stop);
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            never = current => match never {},
        }
        tracing::info!(address = %self.address, "no longer serving");
    }
}

/// The API server that this kubeconfig leads to, or else the scheduler's. A client of its own: reviews and bindings do not wait
/// for each other.
async fn way(
    connection: &kube::Config,
    kubeconfig: Option<&Path>,
    flag: &'static str,
) -> Result<Api, ServeError> {
    let error = |source| ServeError::Connect { flag, source };
    let config = match kubeconfig {
        Some(path) => connect(Some(path)).await.map_err(error)?,
        None => connection.clone(),
    };
    let transport =
        Transport::connect(&config).map_err(|source| error(ConnectError::Client(Box::new(source))))?;
    Ok(Api::over(transport, RateLimiter::new(REVIEWS.0, REVIEWS.1), false))
}

/// Follows the files, and what the cluster says of its authorities.
async fn keep_current(
    certificates: &Certificates,
    trust: &Trust,
    reviewer: &Reviewer,
) -> std::convert::Infallible {
    let (mut files, mut lookups) = (interval(FILES_PERIOD), interval(LOOKUP_PERIOD));
    let [mut on_certificate, mut on_authorities, mut on_lookup] = [(); 3].map(|()| Complaint::default());
    loop {
        tokio::select! {
            _ = files.tick() => {
                // Who renews them may be another for each: one that is broken keeps none of the others.
                on_certificate.about(certificates.reload(), "cannot take over what has changed; serving as before");
                on_authorities.about(trust.read_files(), "cannot take over what has changed; believing as before");
            }
            _ = lookups.tick(), if trust.needs_lookup() => {
                let result = trust.lookup(reviewer).await;
                on_lookup.about(result, "cannot look up kube-system/extension-apiserver-authentication; clients may be unknown by certificate");
            }
        }
    }
}

/// Says once what goes wrong again and again.
#[derive(Default)]
struct Complaint(Option<String>);

impl Complaint {
    fn about(&mut self, result: Result<(), impl std::fmt::Display>, what: &str) {
        let now = result.err().map(|error| error.to_string());
        if now != self.0
            && let Some(error) = &now
        {
            tracing::warn!(error, "{what}");
        }
        self.0 = now;
    }
}

/// The gate, and what is behind it.
struct Served {
    gate: Gate,
    routes: Router,
}

impl Answer for Served {
    async fn answer(&self, request: Request<Body>, chain: &[CertificateDer<'static>]) -> Response {
        self.gate.answer(request, chain, &self.routes).await
    }
}

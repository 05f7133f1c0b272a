//! Serves on loopback, over HTTP or HTTPS, to callers with a token.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Body as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

use crate::encode::value_bytes;
use crate::media::Encoding;
use crate::request::Caller;
use crate::response::{Body, Disconnect, answer};
use crate::server::ApiServer;
use crate::status::Status;

/// The authentication scheme that precedes the token.
const SCHEME: &[u8] = b"Bearer ";

/// Maximum number of concurrent requests per connection.
const STREAMS: u32 = 1000;

/// The port, TLS and token of a listener.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The port on loopback; 0 selects a free one.
    pub port: u16,
    /// Whether to use TLS, with a generated certificate.
    pub tls: bool,
    /// The bearer token that callers must present; `None` generates one.
    pub token: Option<String>,
}

impl Default for Listen {
    fn default() -> Self {
        Self { port: 0, tls: true, token: None }
    }
}

/// A listening server. Dropping it closes the port and every connection.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    ca_pem: Option<String>,
    token: String,
    accepting: JoinHandle<()>,
    connections: Arc<AtomicUsize>,
    leaving: watch::Sender<()>,
}

impl ApiServer {
    /// Listens on loopback. Must be called within a tokio runtime.
    pub async fn listen(&self, options: Listen) -> io::Result<Endpoint> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await?;
        let address = listener.local_addr()?;
        let (acceptor, ca_pem) = if options.tls {
            let (acceptor, ca_pem) = acceptor().map_err(io::Error::other)?;
            (Some(acceptor), Some(ca_pem))
        } else {
            (None, None)
        };
        let token = options.token.unwrap_or_else(random_token);
        let gate = Arc::new(Gate { server: self.clone(), token: token.as_str().into() });
        let (connections, (leaving, left)) = (Arc::<AtomicUsize>::default(), watch::channel(()));
        let accepting = tokio::spawn(accept(listener, acceptor, gate, Arc::clone(&connections), left));
        Ok(Endpoint { address, ca_pem, token, accepting, connections, leaving })
    }
}

impl Endpoint {
    /// For example `https://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        let scheme = if self.ca_pem.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate authority, as PEM; `None` without TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// The bearer token that callers must present.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Ends the connections of this moment gracefully, HTTP/2 by GOAWAY: they accept no further
    /// requests, and those that have begun are served, watches included.
    pub fn go_away(&self) {
        self.leaving.send_replace(());
    }

    /// A kubeconfig for this server, as JSON, which is valid YAML.
    pub fn kubeconfig(&self) -> String {
        let mut cluster = json!({"server": self.url()});
        if let Some(ca) = &self.ca_pem {
            cluster["certificate-authority-data"] = STANDARD.encode(ca).into();
        }
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "supercargo",
            "clusters": [{"name": "supercargo", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "supercargo", "context": {"cluster": "supercargo", "user": "admin"}}],
        });
        format!("{config:#}\n")
    }

    /// Writes the kubeconfig. It contains the token, so only its owner may read it.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        use std::io::Write as _;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        // The file may have existed with wider permissions.
        #[cfg(unix)]
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        file.write_all(self.kubeconfig().as_bytes())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Authenticates callers.
#[derive(Debug)]
struct Gate {
    server: ApiServer,
    /// The token that callers must present.
    token: Arc<str>,
}

impl Gate {
    async fn pass(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Disconnect> {
        let is_head = request.method() == Method::HEAD;
        let response = self.answer(request).await?;
        Ok(if is_head { without_body(response) } else { response })
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Disconnect> {
        if !is_open(request.uri().path()) && !self.knows(request.headers()) {
            let status = Status::unauthorized();
            let body = value_bytes(&status.to_json(), Encoding::Json);
            return Ok(answer(status.code, Encoding::Json.name(), body));
        }
        let shared = Arc::clone(&self.server.shared);
        let token = Some(Arc::clone(&self.token));
        shared.respond(request, Caller { token, ..Caller::default() }).await
    }

    fn knows(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let Some((scheme, token)) = shown.split_at_checked(SCHEME.len()) else { return false };
        scheme.eq_ignore_ascii_case(SCHEME) && is_same(token.trim_ascii(), self.token.as_bytes())
    }
}

/// Strips the body from a response to HEAD. Over HTTP/2 hyper would send it, and the client would
/// break the connection.
fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Response::from_parts(head, Body::new(Empty::new().map_err(|never| match never {})))
}

/// Compares in constant time.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && differences == 0
}

/// Paths that need no token.
fn is_open(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz", "/version"].contains(&path)
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    gate: Arc<Gate>,
    count: Arc<AtomicUsize>,
    left: watch::Receiver<()>,
) {
    // Dropping the set with this task closes every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    count.fetch_add(1, Ordering::Relaxed);
                    let mut left = left.clone();
                    left.mark_unchanged();
                    connections.spawn(connection(stream, acceptor.clone(), Arc::clone(&gate), left));
                }
                // For example too many open files: other connections may close theirs.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    gate: Arc<Gate>,
    left: watch::Receiver<()>,
) {
    // Sends small responses at once.
    let _ = stream.set_nodelay(true);
    let served = match acceptor {
        None => serve(stream, gate, left).await,
        Some(acceptor) => match acceptor.accept(stream).await {
            Ok(stream) => serve(stream, gate, left).await,
            Err(error) => Err(error.into()),
        },
    };
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended");
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn serve<S>(stream: S, gate: Arc<Gate>, mut left: watch::Receiver<()>) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| Arc::clone(&gate).pass(request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(STREAMS);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        served = connection.as_mut() => return served,
        _ = left.changed() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

fn acceptor() -> Result<(TlsAcceptor, String), Failure> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.distinguished_name.push(DnType::CommonName, "supercargo API server in memory");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let key = KeyPair::generate()?;
    let mut serving = CertificateParams::new(["localhost", "127.0.0.1"].map(String::from))?;
    serving.distinguished_name.push(DnType::CommonName, "localhost");
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = serving.signed_by(&key, &Issuer::new(ca, ca_key))?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), ca_pem))
}

/// An unguessable token: the keys of the standard library's hasher come from the system's random
/// source.
fn random_token() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    let parts = [0, 1, 2].map(|part| RandomState::new().hash_one(part));
    format!("{:016x}{:016x}{:016x}", parts[0], parts[1], parts[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_the_token_are_rejected() {
        let gate = Gate { server: ApiServer::default(), token: "secret".into() };
        let knows = |shown: &'static str| {
            gate.knows(&HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(shown))]))
        };
        assert!(knows("Bearer secret"));
        assert!(knows("bearer secret"));
        for wrong in ["", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret", "secret"] {
            assert!(!knows(wrong), "{wrong:?}");
        }
        assert!(!gate.knows(&HeaderMap::new()));
    }

    #[test]
    fn head_response_has_the_length_and_no_body() {
        let whole = answer(http::StatusCode::OK, "text/plain", "ok".into());
        let head = without_body(whole);
        assert_eq!(head.headers()[header::CONTENT_LENGTH], "2");
        assert!(head.body().is_end_stream());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn kubeconfig_is_private_even_if_the_file_existed() {
        use std::os::unix::fs::PermissionsExt;
        let endpoint = ApiServer::default().listen(Listen { tls: false, ..Listen::default() }).await.unwrap();
        let path = std::env::temp_dir().join(format!("supercargo-kubeconfig-{}", endpoint.address.port()));
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        endpoint.write_kubeconfig(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(mode & 0o777, 0o600);
    }
}

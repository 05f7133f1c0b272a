//! A client for every server: one request at a time per connection, in process or over HTTPS.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use supercargo_apiserver::{ApiServer, Service};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use tower_service::Service as _;

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A server and its transport.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    backend: Backend,
}

#[derive(Clone)]
enum Backend {
    InProcess(ApiServer),
    Wire { address: SocketAddr, tls: TlsConnector, authorization: HeaderValue },
}

/// A request.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) body: String,
}

/// A response body as a stream.
pub(crate) type Frames = UnsyncBoxBody<Bytes, anyhow::Error>;

/// A connection that carries one request at a time.
pub(crate) enum Connection {
    InProcess(Service),
    Wire(SendRequest<Full<Bytes>>, HeaderValue),
}

impl Call {
    pub(crate) fn get(path: impl Into<String>, accept: &'static str) -> Self {
        Self { method: Method::GET, path: path.into(), content_type: JSON, accept, body: String::new() }
    }

    pub(crate) fn post(path: impl Into<String>, body: String) -> Self {
        Self { method: Method::POST, path: path.into(), content_type: JSON, accept: JSON, body }
    }

    pub(crate) fn patch(path: impl Into<String>, content_type: &'static str, body: String) -> Self {
        Self { method: Method::PATCH, path: path.into(), content_type, accept: JSON, body }
    }
}

impl Target {
    pub(crate) fn in_process(server: ApiServer) -> Self {
        Self { name: "in process", backend: Backend::InProcess(server) }
    }

    /// A server on loopback over HTTPS.
    pub(crate) fn https(name: &'static str, url: &str, ca_pem: &str, token: &str) -> Result<Self> {
        let address = url.strip_prefix("https://").context("the server has no HTTPS")?.parse()?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes())?)?;
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let authorization = HeaderValue::try_from(format!("Bearer {token}"))?;
        Ok(Self {
            name,
            backend: Backend::Wire { address, tls: TlsConnector::from(Arc::new(config)), authorization },
        })
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        match &self.backend {
            Backend::InProcess(server) => Ok(Connection::InProcess(server.service())),
            Backend::Wire { address, tls, authorization } => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                let stream = tls.connect(ServerName::from(address.ip()), stream).await?;
                let (sender, connection) = handshake(TokioIo::new(stream)).await?;
                // The task ends with its sender, which also sees its errors.
                tokio::spawn(connection);
                Ok(Connection::Wire(sender, authorization.clone()))
            }
        }
    }
}

impl Connection {
    /// Sends a request and reads the whole response, which must be successful.
    pub(crate) async fn send(&mut self, call: Call) -> Result<Bytes> {
        let answer = self.open(call).await?.collect().await?.to_bytes();
        // In process nothing ever waits, so let other tasks run.
        if matches!(self, Self::InProcess(_)) {
            tokio::task::yield_now().await;
        }
        Ok(answer)
    }

    /// Sends a request and returns its successful response as a stream.
    pub(crate) async fn open(&mut self, call: Call) -> Result<Frames> {
        let what = format!("{} {}", call.method, call.path);
        let mut request = Request::new(Full::new(Bytes::from(call.body)));
        *request.method_mut() = call.method;
        *request.uri_mut() = call.path.parse()?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(call.accept));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type));
        let (status, frames) = match self {
            Self::InProcess(service) => {
                let (head, body) = service.call(request).await?.into_parts();
                (head.status, body.map_err(anyhow::Error::from).boxed_unsync())
            }
            Self::Wire(sender, authorization) => {
                headers.insert(AUTHORIZATION, authorization.clone());
                headers.insert(HOST, HeaderValue::from_static("localhost"));
                sender.ready().await?;
                let (head, body) = sender.send_request(request).await?.into_parts();
                (head.status, body.map_err(anyhow::Error::from).boxed_unsync())
            }
        };
        if !status.is_success() {
            let body = frames.collect().await?.to_bytes();
            bail!("{what}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(frames)
    }
}

//! A fast client of the API server over HTTP/1.1, where a connection carries one request at a time,
//! or HTTP/2, where it carries many.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";
pub(crate) const MERGE: &str = "application/merge-patch+json";
/// The patch type for a status.
pub(crate) const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";

/// The concurrent requests that the API server allows on one connection.
const STREAMS: usize = 100;
/// The delay before a retry on a busy server.
const PAUSE: Duration = Duration::from_millis(20);

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Http1,
    Http2,
}

/// The API server with the credentials of one user.
#[derive(Clone)]
pub(crate) struct Server {
    address: SocketAddr,
    roots: Arc<RootCertStore>,
    authorization: HeaderValue,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) body: Bytes,
}

/// A connection. Clones of an HTTP/2 connection share it.
pub(crate) enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>, HeaderValue),
    Http2(http2::SendRequest<Full<Bytes>>, HeaderValue),
}

impl Call {
    pub(crate) fn get(path: impl Into<String>, accept: &'static str) -> Self {
        Self { method: Method::GET, path: path.into(), content_type: JSON, accept, body: Bytes::new() }
    }

    /// A creation whose response is not read.
    pub(crate) fn post(path: impl Into<String>, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, path: path.into(), content_type, accept: PROTOBUF, body: body.into() }
    }

    pub(crate) fn put(path: impl Into<String>, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { method: Method::PUT, path: path.into(), content_type, accept: PROTOBUF, body: body.into() }
    }

    pub(crate) fn patch(path: impl Into<String>, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { method: Method::PATCH, path: path.into(), content_type, accept: PROTOBUF, body: body.into() }
    }

    /// A deletion without a grace period. The response is not read.
    pub(crate) fn delete(path: impl Into<String>) -> Self {
        let body = Bytes::from_static(br#"{"gracePeriodSeconds":0}"#);
        Self { method: Method::DELETE, path: path.into(), content_type: JSON, accept: PROTOBUF, body }
    }

    fn what(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl Server {
    pub(crate) fn new(url: &str, ca_pem: &str, token: &str) -> Result<Self> {
        let address = url.strip_prefix("https://").context("the server has no HTTPS")?.parse()?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes())?)?;
        let authorization = HeaderValue::try_from(format!("Bearer {token}"))?;
        Ok(Self { address, roots: Arc::new(roots), authorization })
    }

    pub(crate) async fn connect(&self, wire: Wire) -> Result<Connection> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        if wire == Wire::Http2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let stream = TokioIo::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?);
        // A connection's task ends with its sender, which also sees its errors.
        Ok(match wire {
            Wire::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                Connection::Http1(sender, self.authorization.clone())
            }
            Wire::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tokio::spawn(connection);
                Connection::Http2(sender, self.authorization.clone())
            }
        })
    }

    /// Reads an object as JSON.
    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let mut connection = self.connect(Wire::Http1).await?;
        connection.read(path).await
    }

    /// Sends sequences of calls as fast as possible with a limit of concurrent requests. The calls
    /// of a sequence are sent one after another. All must succeed. `done` gets the number of
    /// started sequences.
    pub(crate) async fn send_all(
        &self,
        wire: Wire,
        in_flight: usize,
        sequences: Vec<Vec<Call>>,
        done: impl Fn(usize, usize) + Send + Sync + 'static,
    ) -> Result<()> {
        let senders = in_flight.min(sequences.len());
        let mut connections = Vec::with_capacity(senders);
        let carried = if wire == Wire::Http2 { STREAMS } else { 1 };
        for sender in 0..senders {
            let shared =
                if sender % carried == 0 { None } else { connections.last().and_then(Connection::share) };
            connections.push(match shared {
                Some(shared) => shared,
                None => self.connect(wire).await?,
            });
        }
        let (sequences, next, done) = (Arc::new(sequences), Arc::new(AtomicUsize::new(0)), Arc::new(done));
        let mut tasks: JoinSet<Result<()>> = JoinSet::new();
        for mut connection in connections {
            let (sequences, next, done) = (Arc::clone(&sequences), Arc::clone(&next), Arc::clone(&done));
            tasks.spawn(async move {
                while let Some(calls) = sequences.get(next.fetch_add(1, Ordering::Relaxed)) {
                    done(next.load(Ordering::Relaxed).min(sequences.len()), sequences.len());
                    for call in calls {
                        connection.send(call).await?;
                    }
                }
                Ok(())
            });
        }
        while let Some(sent) = tasks.join_next().await {
            sent.context("a sender")??;
        }
        Ok(())
    }
}

impl Connection {
    /// Another sender of the same connection, if it can carry several requests.
    fn share(&self) -> Option<Self> {
        match self {
            Self::Http1(..) => None,
            Self::Http2(sender, authorization) => Some(Self::Http2(sender.clone(), authorization.clone())),
        }
    }

    /// Sends a request and reads the whole response, which must be successful. A busy server is
    /// retried.
    pub(crate) async fn send(&mut self, call: &Call) -> Result<Bytes> {
        loop {
            let answer = self.open(call).await?;
            let status = answer.status();
            let body = answer.into_body().collect().await?.to_bytes();
            if status == StatusCode::TOO_MANY_REQUESTS {
                tokio::time::sleep(PAUSE).await;
            } else if status.is_success() {
                return Ok(body);
            } else {
                bail!("{}: {status}: {}", call.what(), String::from_utf8_lossy(&body));
            }
        }
    }

    /// Reads an object as JSON.
    pub(crate) async fn read<T: DeserializeOwned>(&mut self, path: &str) -> Result<T> {
        let body = self.send(&Call::get(path, JSON)).await?;
        serde_json::from_slice(&body).with_context(|| format!("read the answer to GET {path}"))
    }

    /// Sends a request and returns any response as a stream.
    pub(crate) async fn open(&mut self, call: &Call) -> Result<http::Response<Incoming>> {
        let authority = "localhost";
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(call.accept));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type));
        let answer = match self {
            Self::Http1(sender, authorization) => {
                headers.insert(AUTHORIZATION, authorization.clone());
                headers.insert(HOST, HeaderValue::from_static(authority));
                *request.uri_mut() = call.path.parse()?;
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender, authorization) => {
                headers.insert(AUTHORIZATION, authorization.clone());
                let uri = Uri::builder().scheme("https").authority(authority);
                *request.uri_mut() = uri.path_and_query(call.path.as_str()).build()?;
                sender.ready().await?;
                sender.send_request(request).await
            }
        };
        answer.with_context(|| call.what())
    }
}

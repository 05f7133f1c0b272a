//! Connections: TLS, HTTP/1.1 and HTTP/2, and when each of them ends.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use super::places::Places;

/// How long a client may take to agree on TLS, or to answer a ping.
const PEER_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection on which nothing happens is closed, after as long as Go leaves it. It is also what the head of a request may take:
/// over HTTP/1.1 that begins when the last answer ends, and scrapers like to keep their connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a client may take to close a connection that it is asked to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest head of a request, in bytes.
const MOST_HEAD: u32 = 64 * 1024;
/// Requests at once on a connection, where nobody says how many.
const STREAMS: u32 = 100;
/// A connection that has been silent for so long is pinged.
const PING_AFTER: Duration = Duration::from_secs(30);
/// How long to wait when the system gives no more connections.
const EXHAUSTED: Duration = Duration::from_secs(1);

/// Answers the requests of a client that has shown these certificates.
pub(super) trait Answer: Send + Sync + 'static {
    fn answer(
        &self,
        request: Request<Body>,
        chain: &[CertificateDer<'static>],
    ) -> impl Future<Output = Response> + Send;
}

/// How connections are served.
pub(super) struct Connections<A> {
    pub(super) tls: Arc<ServerConfig>,
    /// Requests at once on an HTTP/2 connection; 0 for the default.
    pub(super) streams: u32,
    pub(super) places: Places,
    pub(super) answer: Arc<A>,
}

impl<A: Answer> Connections<A> {
    /// Serves until `stop`, and then what is under way.
    pub(super) async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let connections = Arc::new(self);
        let mut open = JoinSet::new();
        let accept = async || {
            let room = connections.places.room().await;
            (listener.accept().await, room)
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = open.join_next() => {}
                (accepted, room) = accept() => match accepted {
                    Ok((stream, _)) => {
                        let (connections, stop) = (Arc::clone(&connections), stop.clone());
                        let place = connections.places.take(room);
                        open.spawn(async move {
                            let serving = connections.serve_one(stream, &place.activity, stop);
                            place.leave.run_until_cancelled(serving).await;
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(EXHAUSTED).await;
                    }
                },
            }
        }
        drop(listener);
        while open.join_next().await.is_some() {}
    }

    async fn serve_one(&self, stream: TcpStream, activity: &Activity, stop: CancellationToken) {
        let Ok(Ok(stream)) = timeout(PEER_TIMEOUT, self.handshake(stream)).await else {
            // Probes by TCP, scanners, and clients that do not believe the certificate. Of the last the server is told.
            tracing::debug!("a client did not agree on TLS");
            return;
        };
        let session = stream.get_ref().1;
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let chain: Arc<[CertificateDer<'static>]> = session
            .peer_certificates()
            .unwrap_or_default()
            .iter()
            .map(|one| one.clone().into_owned())
            .collect();
        let service = service_fn(|request: Request<hyper::body::Incoming>| {
            let (answer, chain, busy) = (Arc::clone(&self.answer), Arc::clone(&chain), activity.begin());
            async move {
                let response = answer.answer(request.map(Body::new), &chain).await;
                drop(busy);
                Ok::<_, Infallible>(response)
            }
        });
        let builder = self.builder(is_http2);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let is_over = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = activity.idle(IDLE_TIMEOUT) => {}
            }
        };
        tokio::select! {
            _ = connection.as_mut() => return,
            () = is_over => connection.as_mut().graceful_shutdown(),
        }
        // Requests that are under way are answered; then it is up to the client.
        tokio::select! {
            _ = connection => {}
            () = async {
                activity.done().await;
                sleep(CLOSE_TIMEOUT).await;
            } => {}
        }
    }

    async fn handshake(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        // An answer is small and complete: nothing is gained by waiting for more to send.
        stream.set_nodelay(true)?;
        TlsAcceptor::from(Arc::clone(&self.tls)).accept(stream).await
    }

    fn builder(&self, is_http2: bool) -> auto::Builder<TokioExecutor> {
        let builder = auto::Builder::new(TokioExecutor::new());
        let mut builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_TIMEOUT)
            .max_buf_size(MOST_HEAD as usize);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PEER_TIMEOUT)
            .max_header_list_size(MOST_HEAD)
            .max_concurrent_streams(if self.streams == 0 { STREAMS } else { self.streams });
        builder
    }
}

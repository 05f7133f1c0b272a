//! Connections: TLS, HTTP/1.1 and HTTP/2, timeouts and shutdown.
//!
//! hyper-util's `GracefulShutdown` would not replace the code here: it has no idle timeout and
//! cannot close single connections to make room.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures::StreamExt as _;
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

use super::activity::{Activity, Busy};
use super::connection_limit::ConnectionLimit;
use super::routes::Streamed;

/// Timeout of TLS handshakes and ping responses.
const PEER_TIMEOUT: Duration = Duration::from_secs(15);
/// Idle timeout of a connection, as in Go. Also the timeout for request headers, because over
/// HTTP/1.1 these are awaited from the end of the last response, and scrapers keep their
/// connections.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a client may take to close its connection during shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of request headers in bytes.
const MAX_HEADER_BYTES: u32 = 16 * 1024;
/// Flow control window of a connection: how much a client can make the server hold. Requests are
/// small.
const WINDOW: u32 = 64 * 1024;
/// Default limit of concurrent requests on a connection.
const DEFAULT_STREAMS: u32 = 16;
/// Idle time before a connection is pinged.
const PING_AFTER: Duration = Duration::from_secs(30);
/// How long to wait after a failed accept.
pub(super) const ACCEPT_RETRY_PERIOD: Duration = Duration::from_secs(1);

/// Answers requests of a client with these certificates, whose connection has this activity.
pub(super) trait AnswerRequest: Send + Sync + 'static {
    fn answer(
        &self,
        request: Request<Body>,
        chain: &[CertificateDer<'static>],
        activity: &Activity,
    ) -> impl Future<Output = Response> + Send;
}

/// A body that lasts: until it ends the connection is busy, and it ends with the server.
fn lasting(body: Body, busy: Busy, stop: CancellationToken) -> Body {
    let chunks = body.into_data_stream().take_until(stop.cancelled_owned());
    Body::from_stream(chunks.inspect(move |_| _ = &busy))
}

/// Serves connections.
pub(super) struct Connections<A> {
    pub(super) tls: Arc<ServerConfig>,
    /// Limit of concurrent requests on an HTTP/2 connection; 0 for the default.
    pub(super) streams: u32,
    pub(super) limit: ConnectionLimit,
    pub(super) answer: Arc<A>,
}

impl<A: AnswerRequest> Connections<A> {
    /// Serves until `stop`, and then completes requests in flight.
    pub(super) async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let connections = Arc::new(self);
        let mut open = JoinSet::new();
        let accept = async || {
            let reservation = connections.limit.reserve().await;
            (listener.accept().await, reservation)
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = open.join_next() => {}
                (accepted, reservation) = accept() => match accepted {
                    Ok((stream, peer)) => {
                        let (connections, stop) = (Arc::clone(&connections), stop.clone());
                        let slot = connections.limit.take(reservation, peer.ip());
                        open.spawn(async move {
                            let serving = connections.serve_one(stream, &slot.activity, stop);
                            slot.leave.run_until_cancelled(serving).await;
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(ACCEPT_RETRY_PERIOD).await;
                    }
                },
            }
        }
        drop(listener);
        while open.join_next().await.is_some() {}
    }

    async fn serve_one(&self, stream: TcpStream, activity: &Activity, stop: CancellationToken) {
        let Ok(Ok(stream)) = timeout(PEER_TIMEOUT, self.handshake(stream)).await else {
            // TCP probes, scanners, and clients that do not trust the certificate.
            tracing::debug!("TLS handshake failed");
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
            let (answer, chain) = (Arc::clone(&self.answer), Arc::clone(&chain));
            let (activity, busy, stop) = (activity.clone(), activity.begin(), stop.clone());
            async move {
                let mut response = answer.answer(request.map(Body::new), &chain, &activity).await;
                if response.extensions_mut().remove::<Streamed>().is_some() {
                    return Ok(response.map(|body| lasting(body, busy, stop)));
                }
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
        // Requests in flight are answered; then the client may close the connection.
        tokio::select! {
            _ = connection => {}
            () = async {
                activity.done().await;
                sleep(CLOSE_TIMEOUT).await;
            } => {}
        }
    }

    async fn handshake(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        // Responses are small and complete, so there is nothing to coalesce.
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
            .max_buf_size(MAX_HEADER_BYTES as usize);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PEER_TIMEOUT)
            .max_header_list_size(MAX_HEADER_BYTES)
            .initial_connection_window_size(WINDOW)
            .initial_stream_window_size(WINDOW)
            .max_concurrent_streams(if self.streams == 0 { DEFAULT_STREAMS } else { self.streams });
        builder
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_connection_is_busy_until_a_lasting_body_ends() {
        let parts = || Body::from_stream(futures::stream::pending::<Result<&str, Infallible>>());
        let (activity, stop) = (Activity::default(), CancellationToken::new());
        let body = lasting(parts(), activity.begin(), stop.clone());
        assert!(activity.done().now_or_never().is_none());
        // The client leaves.
        drop(body);
        activity.done().await;
        let body = lasting(parts(), activity.begin(), stop.clone());
        stop.cancel();
        assert!(body.into_data_stream().next().await.is_none());
        activity.done().await;
    }
}

//! Sends requests to the API server, and classifies requests without response.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use kube::Client;
use kube::client::Body;
use kube_informers::http2::Patience;
use thiserror::Error;
use tokio::sync::Mutex;

use crate::connection::Connection;
use crate::outgoing_body::Unread;
use crate::wire::{NoAccess, PATIENCE, Wire};

/// Maximum size of an answer in bytes. Objects are at most 1.5 MiB.
const MAX_ANSWER: usize = 64 << 20;

/// Any error.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Observes the requests of a transport, to count them.
pub trait RequestObserver: Send + Sync {
    /// A request waited this long for the rate limit and for a permit.
    fn waited(&self, method: &Method, took: Duration);

    /// The server responded with this status, or not at all.
    fn answered(&self, method: &Method, status: Option<StatusCode>, took: Duration);

    /// The bodies of a request and, if the server responded, of its response had these sizes in
    /// bytes.
    fn transferred(&self, method: &Method, sent: u64, received: Option<u64>);
}

/// Sends requests. Callers set path and query; the transport adds the server and credentials.
#[derive(Clone)]
pub struct Transport {
    backend: Backend,
    observer: Option<Arc<dyn RequestObserver>>,
}

#[derive(Clone)]
enum Backend {
    Kube(Client),
    Wire(Shared),
}

/// A wire whose requests share one HTTP/2 connection.
#[derive(Clone)]
struct Shared {
    wire: Wire,
    /// Whether the server responded to the last request. If not, one request goes first and
    /// establishes the connection that the others share.
    is_connected: Arc<AtomicBool>,
    first: Arc<Mutex<()>>,
}

/// An answer is larger than 64 MiB.
#[derive(Debug, Error)]
#[error("answer exceeds {} MiB", MAX_ANSWER >> 20)]
struct TooLarge;

impl Transport {
    /// Connects to this server, over HTTP/2 if it supports it.
    pub fn connect(connection: impl Into<Connection>) -> Result<Self, kube::Error> {
        let wire = Wire::new(connection.into(), PATIENCE)?;
        Ok(Self { backend: Backend::Wire(Shared::new(wire)), observer: None })
    }

    /// A transport to the same server over connections of its own, which are pinged after this much
    /// silence and may take as long to answer.
    pub fn pinged_every(self, period: Duration) -> Self {
        let Backend::Wire(Shared { wire, .. }) = &self.backend else { return self };
        let wire = wire.with_patience(Patience::new(period, period));
        Self { backend: Backend::Wire(Shared::new(wire)), ..self }
    }

    /// Sends later requests over a new connection.
    pub(crate) fn reconnect(&self) {
        if let Backend::Wire(Shared { wire, is_connected, .. }) = &self.backend {
            is_connected.store(false, Ordering::Relaxed);
            wire.reconnect();
        }
    }

    /// The same transport, with its requests observed.
    pub fn observed(self, observer: Arc<dyn RequestObserver>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Reports how long a request has waited.
    pub(crate) fn waited(&self, method: &Method, took: Duration) {
        if let Some(observer) = &self.observer {
            observer.waited(method, took);
        }
    }

    /// Sends a request and reads the whole response.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, BoxError> {
        let Some(observer) = &self.observer else {
            return self.send_unobserved(request).await;
        };
        let (method, began) = (request.method().clone(), tokio::time::Instant::now());
        let sent = request.body().len() as u64;
        let answer = self.send_unobserved(request).await;
        let response = answer.as_ref().ok();
        observer.answered(&method, response.map(Response::status), began.elapsed());
        observer.transferred(&method, sent, response.map(|response| response.body().len() as u64));
        answer
    }

    async fn send_unobserved(&self, request: Request<Bytes>) -> Result<Response<Bytes>, BoxError> {
        let request = request.map(Body::from);
        match &self.backend {
            Backend::Kube(client) => {
                let (head, body) = client.send(request).await?.into_parts();
                Ok(Response::from_parts(head, read_answer(body).await?))
            }
            Backend::Wire(shared) => {
                let (head, body) = shared.send(request).await?.into_parts();
                Ok(Response::from_parts(head, read_answer(body).await?))
            }
        }
    }
}

impl Shared {
    fn new(wire: Wire) -> Self {
        Self { wire, is_connected: Arc::default(), first: Arc::default() }
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        if self.is_connected.load(Ordering::Relaxed) {
            return self.send_now(request).await;
        }
        let first = self.first.lock().await;
        if self.is_connected.load(Ordering::Relaxed) {
            drop(first);
            return self.send_now(request).await;
        }
        self.send_now(request).await
    }

    async fn send_now(&self, request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let result = self.wire.send(request).await;
        match &result {
            Ok(_) => self.is_connected.store(true, Ordering::Relaxed),
            // The server responded with a stream error, so the connection works.
            Err(error) if h2_error(&**error).is_some_and(h2::Error::is_remote) => {}
            Err(_) => self.is_connected.store(false, Ordering::Relaxed),
        }
        result
    }
}

/// Reads an answer of bounded size.
pub async fn read_answer<B>(body: B) -> Result<Bytes, BoxError>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>>,
{
    match Limited::new(body, MAX_ANSWER).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(TooLarge.into()),
        Err(error) => Err(error),
    }
}

impl From<Client> for Transport {
    fn from(client: Client) -> Self {
        Self { backend: Backend::Kube(client), observer: None }
    }
}

/// What is known about a request without response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Not sent: there was no connection, or no credentials.
    NotSent,
    /// Not processed, according to the server, or because none of its body was sent: safe to retry.
    Unprocessed,
    /// The request may have taken effect.
    Unknown,
}

/// Classifies an error of a request.
pub(crate) fn fate(error: &(dyn StdError + 'static)) -> Fate {
    let has_no_access = find(error, |_: &NoAccess| true) || find(error, |_: &kube::client::AuthError| true);
    if has_no_access || is_connection_refused(error) || find(error, legacy::Error::is_connect) {
        return Fate::NotSent;
    }
    // GOAWAY fails only streams after the last one that it names.
    let is_left_out = |error: &h2::Error| {
        error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    };
    let is_unprocessed = find(error, |_: &Unread| true) || h2_error(error).is_some_and(is_left_out);
    if is_unprocessed { Fate::Unprocessed } else { Fate::Unknown }
}

/// Whether the server refused the connection.
pub fn is_connection_refused(error: &(dyn StdError + 'static)) -> bool {
    find(error, |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The HTTP/2 error among the causes.
fn h2_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a h2::Error> {
    chain(error).find_map(|error| error.downcast_ref())
}

fn find<E: StdError + 'static>(error: &(dyn StdError + 'static), is_it: impl Fn(&E) -> bool) -> bool {
    chain(error).filter_map(|error| error.downcast_ref()).any(is_it)
}

/// An error and its causes.
fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> + use<'a> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests;

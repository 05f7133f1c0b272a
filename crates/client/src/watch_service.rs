//! Connections for watches, as a service of kube's clients.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use kube::client::Body;
use tokio::time::timeout;
use tower::Service;
use tower_http::timeout::TimeoutBody;

use crate::connection::Connection;
use crate::transport::BoxError;
use crate::wire::{PATIENCE, Wire};

/// A watch that receives nothing for this long has lost its server, even if the connection works:
/// bookmarks arrive about once a minute.
const SILENCE: Duration = Duration::from_mins(3);

/// Sends lists and watches. They fail if nothing is received for a while.
#[derive(Clone)]
pub struct WatchService(Wire);

impl WatchService {
    /// Connects to this server.
    pub fn connect(connection: impl Into<Connection>) -> Result<Self, kube::Error> {
        Wire::new(connection.into(), PATIENCE).map(Self)
    }
}

impl Service<Request<Body>> for WatchService {
    type Response = Response<TimeoutBody<Incoming>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let wire = self.0.clone();
        Box::pin(async move {
            let response = timeout(SILENCE, wire.send(request)).await??;
            Ok(response.map(|body| TimeoutBody::new(SILENCE, body)))
        })
    }
}

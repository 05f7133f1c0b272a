//! The server in process, as a tower service: `kube::Client::new(server.service(), "default")`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};

use crate::server::{ApiServer, Body, Caller, Disconnect, Shared};

/// The server as a tower service. Callers need no token.
#[derive(Clone, Debug)]
pub struct Service {
    shared: Arc<Shared>,
    caller: Caller,
}

impl ApiServer {
    /// The server for clients in this process.
    pub fn service(&self) -> Service {
        self.service_for(Caller::default())
    }

    pub(crate) fn service_for(&self, caller: Caller) -> Service {
        Service { shared: Arc::clone(&self.shared), caller }
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Disconnect>> + Send>>;

impl<B> tower_service::Service<Request<B>> for Service
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Disconnect;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Disconnect>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answer {
        Box::pin(Arc::clone(&self.shared).respond(request, self.caller.clone()))
    }
}

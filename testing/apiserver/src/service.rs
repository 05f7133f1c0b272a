//! The server as an in-process tower service: `kube::Client::new(server.service(), "default")`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};

use crate::faults::Fault;
use crate::handle::handle;
use crate::media::Encoding;
use crate::request::{ApiRequest, Caller};
use crate::response::{Body, Disconnect, error_response};
use crate::server::{ApiServer, Shared};
use crate::status::Status;

/// The server as a tower service. Callers need no token.
#[derive(Clone, Debug)]
pub struct Service {
    shared: Arc<Shared>,
    caller: Caller,
}

impl ApiServer {
    /// The service for clients in this process.
    pub fn service(&self) -> Service {
        self.service_for(Caller::default())
    }

    pub(crate) fn service_for(&self, caller: Caller) -> Service {
        Service { shared: Arc::clone(&self.shared), caller }
    }
}

/// The maximum size of a request body, as upstream.
const LARGEST_BODY: usize = 3 << 20;

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

impl Shared {
    /// Waits, but disconnects at a restart.
    async fn unless_restarted(&self, wait: impl Future<Output = ()>) -> Result<(), Disconnect> {
        let mut run = self.restarts();
        tokio::select! {
            () = wait => Ok(()),
            _ = run.changed() => Err(Disconnect),
        }
    }

    /// Responds to a request, and applies the faults that match it.
    pub(crate) async fn respond<B>(
        self: Arc<Self>,
        request: Request<B>,
        caller: Caller,
    ) -> Result<Response<Body>, Disconnect>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let body = match Limited::new(body, LARGEST_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return Ok(error_response(&too_large_body(), Encoding::Json));
            }
            Err(_) => return Err(Disconnect),
        };
        let request = ApiRequest::new(head, body, caller);
        let faults = self.faults.take(&request.info);
        for fault in &faults {
            match fault {
                Fault::Delay(time) => self.unless_restarted(tokio::time::sleep(*time)).await?,
                Fault::Drop => self.unless_restarted(std::future::pending()).await?,
                Fault::Reset => return Err(Disconnect),
                Fault::Answer(status) => return Ok(error_response(status, request.error_encoding())),
                _ => {}
            }
        }
        let answer = handle(&self, &request, &faults);
        for fault in &faults {
            match fault {
                Fault::ResetAfter => return Err(Disconnect),
                Fault::AnswerAfter(status) => return Ok(error_response(status, request.error_encoding())),
                _ => {}
            }
        }
        Ok(answer.unwrap_or_else(|status| error_response(&status, request.error_encoding())))
    }
}

fn too_large_body() -> Status {
    let mut status = Status::bad_request(format!("Request entity too large: limit is {LARGEST_BODY}"));
    status.code = StatusCode::PAYLOAD_TOO_LARGE;
    status.reason = "RequestEntityTooLarge";
    status
}

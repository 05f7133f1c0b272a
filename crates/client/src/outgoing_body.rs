//! Bodies of requests that tell whether any of them was sent.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use kube::client::Body;
use thiserror::Error;

use crate::transport::BoxError;

/// A body that notes when it is read.
///
/// hyper reads a body once its request has a stream. When a connection closes, hyper drops requests
/// that still wait for a stream. Its error does not distinguish them from requests that were sent.
pub(crate) struct OutgoingBody {
    body: Body,
    was_read: Arc<AtomicBool>,
}

/// What is known of a body that was handed over.
pub(crate) struct Progress {
    /// `None` if the body is empty.
    was_read: Option<Arc<AtomicBool>>,
}

/// A request failed before any of its body was sent. The API server acts on no request whose body
/// is shorter than announced.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct Unread(#[source] BoxError);

impl OutgoingBody {
    pub(crate) fn new(body: Body) -> (Self, Progress) {
        let was_read = Arc::new(AtomicBool::new(false));
        let progress = Progress { was_read: (!body.is_end_stream()).then(|| Arc::clone(&was_read)) };
        (Self { body, was_read }, progress)
    }
}

impl Progress {
    /// Whether there is a body and none of it was read.
    pub(crate) fn is_unread(&self) -> bool {
        self.was_read.as_ref().is_some_and(|was_read| !was_read.load(Ordering::SeqCst))
    }
}

impl Unread {
    pub(crate) fn of(error: BoxError) -> BoxError {
        Box::new(Self(error))
    }
}

impl hyper::body::Body for OutgoingBody {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, kube::Error>>> {
        self.was_read.store(true, Ordering::SeqCst);
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! Changes as a stream, for consumers that await.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::listener::{Message, Registration, Shown};
use crate::notification::Notification;

/// The changes of one registration as a stream; see
/// [`SharedInformer::add_event_stream`](crate::SharedInformer::add_event_stream).
///
/// It is told the same as a handler, in the same order. What has not been read yet waits without a bound, unless
/// [`HandlerOptions::max_pending`](crate::HandlerOptions::max_pending) is one; [`Registration::pending`] says how
/// much. The registration becomes synced when the reader asks for more after the last change that was there to
/// begin with, so somebody has to read. The stream ends at once when it is removed, and after what had been read
/// from the server when the informer stops. Dropping it removes it.
pub struct EventStream<T> {
    inbox: UnboundedReceiver<Message<T>>,
    /// What is left of the message before.
    shown: Option<Shown<T>>,
    registration: Registration,
}

impl<T> EventStream<T> {
    pub(crate) fn new(inbox: UnboundedReceiver<Message<T>>, registration: Registration) -> Self {
        Self { inbox, shown: None, registration }
    }

    /// The registration: says how far the reader is, and names the stream for removal.
    pub fn registration(&self) -> &Registration {
        &self.registration
    }

    fn end(&mut self) {
        self.inbox.close();
        self.shown = None;
        let progress = &self.registration.0;
        progress.removed.cancel();
        progress.forget_pending();
        progress.stopped.set();
    }
}

impl<T> Stream for EventStream<T> {
    type Item = Notification<T>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = self.get_mut();
        // A removal also drops the sender, which wakes a reader that waits for more.
        while !stream.registration.0.removed.is_cancelled() {
            if let Some(change) = stream.shown.as_mut().and_then(Shown::next) {
                stream.registration.0.note_processed();
                return Poll::Ready(Some(change.clone()));
            }
            stream.shown = None;
            match ready!(stream.inbox.poll_recv(context)) {
                Some(Message::Synced) => stream.registration.0.synced.set(),
                Some(Message::Changes { changes, syncing }) => {
                    stream.shown = Some(Shown::new(changes, syncing));
                }
                None => break,
            }
        }
        stream.end();
        Poll::Ready(None)
    }
}

impl<T> Drop for EventStream<T> {
    fn drop(&mut self) {
        self.end();
    }
}

//! Changes as a stream, for asynchronous consumers.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::listener::{Message, Registration, Shown};
use crate::notification::Notification;

/// The changes of one registration as a stream; see
/// [`SharedInformer::add_event_stream`](crate::SharedInformer::add_event_stream).
///
/// A stream receives the same changes as a handler, in the same order. Unread changes wait without
/// a limit unless [`HandlerOptions::max_pending`](field@crate::HandlerOptions::max_pending) sets
/// one; [`Registration::pending`] counts them. The registration becomes synced when the reader
/// polls again after the last initial object. The stream ends immediately when it is removed. When
/// the informer stops, it ends after what the informer has read. Dropping the stream removes it.
pub struct EventStream<T> {
    inbox: UnboundedReceiver<Message<T>>,
    /// The rest of the previous message.
    shown: Option<Shown<T>>,
    registration: Registration,
}

/// What a stream receives.
pub(crate) enum StreamItem<T> {
    Change(Notification<T>),
    /// The initial objects end here.
    Synced,
}

impl<T> EventStream<T> {
    pub(crate) fn new(inbox: UnboundedReceiver<Message<T>>, registration: Registration) -> Self {
        Self { inbox, shown: None, registration }
    }

    /// The stream's registration: reports progress, and identifies the stream for removal.
    pub fn registration(&self) -> &Registration {
        &self.registration
    }

    /// The next change, or the end of the initial objects, which the public stream leaves out.
    pub(crate) fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Option<StreamItem<T>>> {
        // Removal also drops the sender, which wakes a waiting reader.
        while !self.registration.0.removed.is_cancelled() {
            if let Some(change) = self.shown.as_mut().and_then(Shown::next) {
                self.registration.0.note_processed();
                return Poll::Ready(Some(StreamItem::Change(change.clone())));
            }
            self.shown = None;
            match ready!(self.inbox.poll_recv(context)) {
                Some(Message::Synced) => {
                    self.registration.0.synced.set();
                    return Poll::Ready(Some(StreamItem::Synced));
                }
                Some(Message::Changes { changes, syncing }) => {
                    self.shown = Some(Shown::new(changes, syncing));
                }
                None => break,
            }
        }
        self.end();
        Poll::Ready(None)
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
        loop {
            match ready!(stream.poll_step(context)) {
                Some(StreamItem::Change(change)) => return Poll::Ready(Some(change)),
                Some(StreamItem::Synced) => {}
                None => return Poll::Ready(None),
            }
        }
    }
}

impl<T> Drop for EventStream<T> {
    fn drop(&mut self) {
        self.end();
    }
}

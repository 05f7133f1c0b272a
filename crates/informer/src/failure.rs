//! Why an informer failed, and how others learn of it.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;

use crate::kind::GroupVersionResource;
use crate::latch::Latch;

pub(crate) type Panic = Box<dyn Any + Send>;

/// Why an informer has failed. It reads nothing more, and its store and handlers become stale.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InformerFailure {
    /// A handler panicked whose policy propagates panics.
    #[error("event handler {handler:?} panicked: {message}")]
    HandlerPanicked {
        /// The handler's name.
        handler: String,
        /// The panic's message.
        message: String,
    },
    /// A handler exceeded
    /// [`HandlerOptions::max_pending`](field@crate::HandlerOptions::max_pending).
    #[error("event handler {handler:?} exceeds its limit of {limit} pending changes")]
    HandlerBehind {
        /// The handler's name.
        handler: String,
        /// The limit.
        limit: usize,
    },
    /// The system refused a handler its own thread.
    #[error("cannot start the thread of event handler {handler:?}: {message}")]
    HandlerThread {
        /// The handler's name.
        handler: String,
        /// The system's message.
        message: String,
    },
    /// A transform, an index function or the descriptor panicked.
    #[error("panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
}

impl InformerFailure {
    pub(crate) fn panicked(panic: &Panic) -> Self {
        Self::Panicked { message: panic_message(panic).to_owned() }
    }
}

/// An informer of a factory that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the informer of {resource} failed: {failure}")]
#[non_exhaustive]
pub struct FailedInformer {
    /// The informer's resource.
    pub resource: GroupVersionResource,
    /// Why it failed.
    #[source]
    pub failure: InformerFailure,
}

impl FailedInformer {
    pub(crate) fn new(resource: GroupVersionResource, failure: InformerFailure) -> Self {
        Self { resource, failure }
    }
}

/// The first failure of an informer. Known to others as soon as it happens, long before the
/// informer has stopped.
pub(crate) struct FirstFailure {
    /// The informer's name in the log.
    informer: Arc<str>,
    happened: Latch,
    first: Mutex<First>,
}

#[derive(Default)]
struct First {
    failure: Option<InformerFailure>,
    /// What `run` panics with.
    panic: Option<Panic>,
}

impl FirstFailure {
    pub(crate) fn new(informer: Arc<str>) -> Self {
        Self { informer, happened: Latch::default(), first: Mutex::default() }
    }

    /// Notes a failure without a panic of its own.
    pub(crate) fn note(&self, failure: InformerFailure) {
        let panic = format!("the informer of {} failed: {failure}", self.informer);
        self.note_panic(failure, Box::new(panic));
    }

    /// Notes a failure and its panic. Later failures are only logged.
    pub(crate) fn note_panic(&self, failure: InformerFailure, panic: Panic) {
        tracing::error!(informer = %self.informer, %failure, "informer failed");
        let mut first = self.first.lock();
        if first.failure.is_none() {
            *first = First { failure: Some(failure), panic: Some(panic) };
            drop(first);
            self.happened.set();
        }
    }

    pub(crate) fn get(&self) -> Option<InformerFailure> {
        self.first.lock().failure.clone()
    }

    /// Waits for the failure.
    pub(crate) async fn wait(&self) -> InformerFailure {
        self.happened.wait().await;
        self.get().expect("the latch is set after the failure")
    }

    pub(crate) fn take_panic(&self) -> Option<Panic> {
        self.first.lock().panic.take()
    }
}

/// The message of a panic, if it is a string. This crate depends on no other of the workspace, so
/// `framework::panic_text` is alike.
pub(crate) fn panic_message(panic: &Panic) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

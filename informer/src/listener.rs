//! One handler's side of an informer: its queue, its task, and the registration that names it.

use std::any::Any;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::handler::EventHandler;
use crate::key::Deleted;
use crate::latch::Latch;

/// A handler with this much before it that takes longer than [`SLOW_CALL`] for one call is reported.
const DEEP_BACKLOG: usize = 1024;
const SLOW_CALL: Duration = Duration::from_millis(100);
/// One report per handler and this time, or a slow handler would also flood the log.
const REPORT_EVERY: Duration = Duration::from_secs(10);

pub(crate) type Panic = Box<dyn Any + Send>;

/// What happens when a handler panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PanicPolicy {
    /// The informer stops, and its `run` panics with the handler's panic.
    #[default]
    Propagate,
    /// The change that caused the panic is lost, and delivery goes on after this pause. The registration
    /// still becomes synced, even if the change was part of the initial list.
    SkipAfter(Duration),
}

/// How a handler is to be served.
#[derive(Clone, Debug, Default)]
pub struct HandlerOptions {
    /// How often to show the handler everything again; zero is never, `None` is the informer's own period.
    pub resync: Option<Duration>,
    /// What happens when the handler panics.
    pub panic_policy: PanicPolicy,
    /// The handler's name in the log.
    pub name: Cow<'static, str>,
}

impl HandlerOptions {
    /// The defaults, with a name for the log.
    pub fn named(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// A handler's registration: says how far it is, and names it for removal.
///
/// Dropping it does not remove the handler.
#[derive(Clone)]
pub struct Registration(pub(crate) Arc<Progress>);

impl Registration {
    /// Whether the handler has processed everything that was there to begin with.
    pub fn has_synced(&self) -> bool {
        self.0.synced.is_set()
    }

    /// Waits until the handler has processed everything that was there to begin with.
    ///
    /// Waits for ever if the handler is removed or the informer stopped before that; see [`Self::stopped`].
    pub async fn synced(&self) {
        self.0.synced.wait().await;
    }

    /// Waits until the handler will not be called again: it was removed, or the informer stopped, and a call
    /// that was running has returned.
    pub async fn stopped(&self) {
        self.0.stopped.wait().await;
    }

    /// How many changes wait for the handler, the one in its hands included.
    pub fn pending(&self) -> usize {
        self.0.pending.load(Ordering::Relaxed)
    }
}

/// What the informer, the listener's task and the registration share.
pub(crate) struct Progress {
    pub(crate) name: Cow<'static, str>,
    pub(crate) synced: Latch,
    pub(crate) stopped: Latch,
    pub(crate) removed: CancellationToken,
    pending: AtomicUsize,
}

impl Progress {
    pub(crate) fn new(name: Cow<'static, str>) -> Self {
        Self {
            name,
            synced: Latch::default(),
            stopped: Latch::default(),
            removed: CancellationToken::new(),
            pending: AtomicUsize::new(0),
        }
    }
}

/// One change, as a listener's queue holds it.
pub(crate) enum Notification<T> {
    Add(Arc<T>, bool),
    Update(Arc<T>, Arc<T>),
    Delete(Deleted<T>),
}

impl<T> Clone for Notification<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Add(object, initial) => Self::Add(Arc::clone(object), *initial),
            Self::Update(old, new) => Self::Update(Arc::clone(old), Arc::clone(new)),
            Self::Delete(deleted) => Self::Delete(deleted.clone()),
        }
    }
}

pub(crate) enum Message<T> {
    Change(Notification<T>),
    /// Everything that was there to begin with lies before this in the queue.
    Synced,
}

/// The sending half. The queue is unbounded: a bound would let one slow handler hold up the others, or lose
/// changes. [`Registration::pending`] makes the depth visible instead.
pub(crate) struct Outbox<T> {
    pub(crate) progress: Arc<Progress>,
    pub(crate) sender: UnboundedSender<Message<T>>,
}

impl<T> Outbox<T> {
    pub(crate) fn send(&self, change: Notification<T>) {
        self.progress.pending.fetch_add(1, Ordering::Relaxed);
        // A closed queue is that of a handler which panicked or was removed; it wants nothing more.
        let _ = self.sender.send(Message::Change(change));
    }

    pub(crate) fn mark_synced(&self) {
        let _ = self.sender.send(Message::Synced);
    }
}

/// The receiving half: owns the handler, and is the only one to call it.
pub(crate) struct Listener<T, H> {
    pub(crate) handler: H,
    pub(crate) inbox: UnboundedReceiver<Message<T>>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) policy: PanicPolicy,
    pub(crate) panics: UnboundedSender<Panic>,
    pub(crate) last_report: Option<Instant>,
}

impl<T, H> Listener<T, H>
where
    T: Send + Sync + 'static,
    H: EventHandler<T>,
{
    /// Serves the handler until the informer has stopped and the queue is empty, or the handler is removed.
    pub(crate) async fn run(mut self) {
        let progress = Arc::clone(&self.progress);
        let _stopped = progress.stopped.set_on_drop();
        while let Some(Some(message)) = progress.removed.run_until_cancelled(self.inbox.recv()).await {
            match message {
                Message::Synced => progress.synced.set(),
                Message::Change(change) => {
                    let flow = self.deliver(change).await;
                    progress.pending.fetch_sub(1, Ordering::Relaxed);
                    if flow.is_break() {
                        break;
                    }
                }
            }
        }
        progress.pending.store(0, Ordering::Relaxed);
    }

    async fn deliver(&mut self, change: Notification<T>) -> ControlFlow<()> {
        let backlog = self.progress.pending.load(Ordering::Relaxed);
        let started = (backlog > DEEP_BACKLOG).then(Instant::now);
        let handler = &mut self.handler;
        // The handler is not used again after a panic unless its owner chose so with `SkipAfter`.
        let outcome = catch_unwind(AssertUnwindSafe(|| match &change {
            Notification::Add(object, initial) => handler.on_add(object, *initial),
            Notification::Update(old, new) => handler.on_update(old, new),
            Notification::Delete(deleted) => handler.on_delete(deleted),
        }));
        if let Some(started) = started {
            self.report_if_slow(started, backlog);
        }
        match (outcome, self.policy) {
            (Ok(()), _) => ControlFlow::Continue(()),
            (Err(panic), PanicPolicy::Propagate) => {
                // Nobody listens only when `run` is gone too.
                let _ = self.panics.send(panic);
                ControlFlow::Break(())
            }
            (Err(panic), PanicPolicy::SkipAfter(pause)) => {
                tracing::error!(handler = %self.progress.name, panic = panic_message(&panic),
                    "event handler panicked; skipping the change");
                // The loop finds out about a removal by itself.
                let _ = self.progress.removed.run_until_cancelled(tokio::time::sleep(pause)).await;
                ControlFlow::Continue(())
            }
        }
    }

    fn report_if_slow(&mut self, started: Instant, backlog: usize) {
        let now = Instant::now();
        let recent = self.last_report.is_some_and(|last| now - last < REPORT_EVERY);
        if now - started > SLOW_CALL && !recent {
            self.last_report = Some(now);
            tracing::warn!(handler = %self.progress.name, pending = backlog, took = ?(now - started),
                "slow event handler with a long backlog");
        }
    }
}

/// The text of a panic, as far as it has one.
pub(crate) fn panic_message(panic: &Panic) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

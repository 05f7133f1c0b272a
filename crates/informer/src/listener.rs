//! One handler's side of an informer: its queue, its task, and the registration that names it.

use std::any::Any;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::coop;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::handler::EventHandler;
use crate::latch::Latch;
use crate::notification::Notification;

/// A handler with this much before it that takes longer than [`SLOW_CALL`] for one call is reported.
const DEEP_BACKLOG: usize = 1024;
const SLOW_CALL: Duration = Duration::from_millis(100);
/// One report per handler and this time, or a slow handler would also flood the log.
const REPORT_EVERY: Duration = Duration::from_secs(10);

pub(crate) type Panic = Box<dyn Any + Send>;

/// What happens when a handler panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PanicPolicy {
    /// The informer stops, and its `run` panics with the handler's panic. client-go's default too, where the
    /// process dies.
    #[default]
    Propagate,
    /// The change that caused the panic is lost, and delivery goes on after this pause. The registration
    /// still becomes synced, even if the change was part of the initial list; in client-go it never does.
    /// client-go's pause is a second.
    SkipAfter(Duration),
}

/// How a handler is to be served.
#[derive(Clone, Debug, Default)]
pub struct HandlerOptions {
    /// How often to show the handler everything again; zero is never, `None` is the informer's own period.
    pub resync: Option<Duration>,
    /// What happens when the handler panics.
    pub panic_policy: PanicPolicy,
    /// The handler's name in the log and in metrics.
    pub name: Cow<'static, str>,
    /// How many changes may wait for the handler, objects that were there to begin with included. A handler
    /// that falls further behind is removed, and the informer stops: its `run` panics with a message that names
    /// the handler, and does not wait for the call that the handler is in. `None`, the default, is no limit, same
    /// as client-go: then a handler that is stuck costs memory: 40 bytes per change, shared by all handlers, another
    /// 40 for a change that came alone, and what it keeps alive of old objects.
    pub max_pending: Option<usize>,
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
    /// The handler's name, as its options gave it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

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

    /// Whether the handler will not be called again.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.is_set()
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

    /// How many changes the handler has been given, those that it panicked at included.
    pub fn processed(&self) -> u64 {
        self.0.processed.load(Ordering::Relaxed)
    }

    /// How often the handler has panicked.
    pub fn panics(&self) -> u64 {
        self.0.panics.load(Ordering::Relaxed)
    }

    /// How many of the handler's calls took longer than 100 ms while more than 1024 changes waited for it. The log
    /// tells of one of them every ten seconds.
    pub fn slow_calls(&self) -> u64 {
        self.0.slow_calls.load(Ordering::Relaxed)
    }
}

/// What the informer, the listener's task and the registration share.
pub(crate) struct Progress {
    pub(crate) name: Cow<'static, str>,
    /// The informer's identity, and its resource for the log.
    pub(crate) informer: Arc<str>,
    pub(crate) synced: Latch,
    pub(crate) stopped: Latch,
    pub(crate) removed: CancellationToken,
    /// As long as the informer is to wait for the listener's task.
    awaited: Mutex<Option<TaskTrackerToken>>,
    pending: AtomicUsize,
    processed: AtomicU64,
    panics: AtomicU64,
    slow_calls: AtomicU64,
}

impl Progress {
    pub(crate) fn new(name: Cow<'static, str>, informer: Arc<str>) -> Self {
        Self {
            name,
            informer,
            synced: Latch::default(),
            stopped: Latch::default(),
            removed: CancellationToken::new(),
            awaited: Mutex::default(),
            pending: AtomicUsize::new(0),
            processed: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            slow_calls: AtomicU64::new(0),
        }
    }

    /// The listener's task begins: the tracker is not done before it has ended.
    pub(crate) fn await_by(&self, tasks: &TaskTracker) {
        *self.awaited.lock() = Some(tasks.token());
    }

    pub(crate) fn note_processed(&self) {
        self.processed.fetch_add(1, Ordering::Relaxed);
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn forget_pending(&self) {
        self.pending.store(0, Ordering::Relaxed);
    }
}

/// One change of a batch, and whether it is no news: then it concerns only those who are being resynced.
pub(crate) struct Told<T> {
    pub(crate) change: Notification<T>,
    pub(crate) sync: bool,
}

/// What became of a batch, or a part of it. All listeners are sent the same: a change costs them nothing until they look at it.
pub(crate) type Changes<T> = Arc<[Told<T>]>;

pub(crate) enum Message<T> {
    Changes {
        changes: Changes<T>,
        /// Whether the listener is shown what is no news as well.
        syncing: bool,
    },
    /// Everything that was there to begin with lies before this in the queue.
    Synced,
}

/// The changes of a message that a listener is shown.
pub(crate) struct Shown<T> {
    changes: Changes<T>,
    syncing: bool,
    next: usize,
}

impl<T> Shown<T> {
    pub(crate) fn new(changes: Changes<T>, syncing: bool) -> Self {
        Self { changes, syncing, next: 0 }
    }

    pub(crate) fn next(&mut self) -> Option<&Notification<T>> {
        let skipped = self.changes.get(self.next..)?.iter().position(|told| self.syncing || !told.sync)?;
        self.next += skipped + 1;
        self.changes.get(self.next - 1).map(|told| &told.change)
    }
}

/// The sending half. The queue is unbounded: a bound would let one slow handler hold up the others, or lose
/// changes. [`Registration::pending`] makes the depth visible instead.
pub(crate) struct Outbox<T> {
    pub(crate) progress: Arc<Progress>,
    pub(crate) sender: UnboundedSender<Message<T>>,
    pub(crate) max_pending: usize,
    pub(crate) panics: UnboundedSender<Panic>,
}

impl<T> Outbox<T> {
    /// `count` is how many of the changes the listener is shown.
    pub(crate) fn send(&self, changes: Changes<T>, syncing: bool, count: usize) {
        if count == 0 {
            return;
        }
        let pending = self.progress.pending.fetch_add(count, Ordering::Relaxed) + count;
        if pending > self.max_pending {
            self.give_up();
        } else if self.sender.send(Message::Changes { changes, syncing }).is_err() {
            // A closed queue is that of a handler which panicked or was removed; it wants nothing more.
            self.progress.forget_pending();
        }
    }

    pub(crate) fn mark_synced(&self) {
        let _ = self.sender.send(Message::Synced);
    }

    /// Whether nobody will ever receive anything again.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// The handler is not going to catch up, and to wait for it at the end would be in vain as well: the call
    /// that it is in may never return.
    fn give_up(&self) {
        let Progress { name, informer, removed, awaited, .. } = &*self.progress;
        if removed.is_cancelled() {
            return;
        }
        removed.cancel();
        let text = format!(
            "event handler {name:?} of {informer} is more than {} changes behind, its limit",
            self.max_pending
        );
        tracing::error!("{text}");
        // Nobody listens only when `run` is gone too.
        let _ = self.panics.send(Box::new(text));
        *awaited.lock() = None;
    }
}

/// However the listener's task ends, be it before it began.
struct EndOnDrop(Arc<Progress>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.stopped.set();
        *self.0.awaited.lock() = None;
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
    pub(crate) fn run(self) -> impl Future<Output = ()> + Send {
        // Not only once the task runs: it may be dropped before.
        let ended = EndOnDrop(Arc::clone(&self.progress));
        async move {
            let _ended = ended;
            self.serve().await;
        }
    }

    async fn serve(mut self) {
        let progress = Arc::clone(&self.progress);
        while let Some(message) = self.next().await {
            // It may have come true while this task waited.
            if progress.removed.is_cancelled() {
                break;
            }
            match message {
                Message::Synced => progress.synced.set(),
                Message::Changes { changes, syncing } => {
                    if self.deliver_all(Shown::new(changes, syncing)).await.is_break() {
                        break;
                    }
                }
            }
        }
        progress.forget_pending();
    }

    async fn deliver_all(&mut self, mut shown: Shown<T>) -> ControlFlow<()> {
        while let Some(change) = shown.next() {
            if self.progress.removed.is_cancelled() {
                return ControlFlow::Break(());
            }
            let flow = self.deliver(change).await;
            self.progress.note_processed();
            flow?;
            coop::consume_budget().await;
        }
        ControlFlow::Continue(())
    }

    /// The next message, unless the handler is removed while there is none.
    async fn next(&mut self) -> Option<Message<T>> {
        // To wait for a removal as well costs more than most calls: only where there is nothing to do.
        match self.inbox.try_recv() {
            Ok(message) => Some(message),
            Err(TryRecvError::Empty) => {
                self.progress.removed.run_until_cancelled(self.inbox.recv()).await.flatten()
            }
            Err(TryRecvError::Disconnected) => None,
        }
    }

    async fn deliver(&mut self, change: &Notification<T>) -> ControlFlow<()> {
        let backlog = self.progress.pending.load(Ordering::Relaxed);
        let started = (backlog > DEEP_BACKLOG).then(Instant::now);
        let handler = &mut self.handler;
        // The handler is not used again after a panic unless its owner chose so with `SkipAfter`.
        let outcome = catch_unwind(AssertUnwindSafe(|| change.deliver_to(handler)));
        if let Some(started) = started {
            self.report_if_slow(started, backlog);
        }
        let Err(panic) = outcome else {
            return ControlFlow::Continue(());
        };
        self.progress.panics.fetch_add(1, Ordering::Relaxed);
        match self.policy {
            PanicPolicy::Propagate => {
                // Nobody listens only when `run` is gone too.
                let _ = self.panics.send(panic);
                ControlFlow::Break(())
            }
            PanicPolicy::SkipAfter(pause) => {
                tracing::error!(handler = %self.progress.name, informer = %self.progress.informer, panic = panic_message(&panic),
                    "event handler panicked; skipping the change");
                // The loop finds out about a removal by itself.
                let _ = self.progress.removed.run_until_cancelled(tokio::time::sleep(pause)).await;
                ControlFlow::Continue(())
            }
        }
    }

    fn report_if_slow(&mut self, started: Instant, backlog: usize) {
        let now = Instant::now();
        if now - started <= SLOW_CALL {
            return;
        }
        self.progress.slow_calls.fetch_add(1, Ordering::Relaxed);
        if self.last_report.is_none_or(|last| now - last >= REPORT_EVERY) {
            self.last_report = Some(now);
            tracing::warn!(handler = %self.progress.name, informer = %self.progress.informer, pending = backlog, took = ?(now - started),
                "slow event handler with a long backlog");
        }
    }
}

/// The text of a panic, as far as it has one.
pub(crate) fn panic_message(panic: &Panic) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests;

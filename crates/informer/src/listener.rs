//! One handler of an informer: its queue, its task, and its registration.

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

use crate::failure::{FirstFailure, InformerFailure, panic_message};
use crate::handler::EventHandler;
use crate::latch::Latch;
use crate::notification::Notification;

/// A call that takes longer than [`SLOW_CALL`] is reported if the backlog exceeds this.
const DEEP_BACKLOG: usize = 1024;
const SLOW_CALL: Duration = Duration::from_millis(100);
/// Reports per handler are limited to one in this time, to protect the log.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// What happens when a handler panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PanicPolicy {
    /// The informer stops, and its `run` panics with the handler's panic. This is client-go's
    /// default, too, where the process exits.
    #[default]
    Propagate,
    /// Skips the change that caused the panic, and continues after this pause. client-go pauses for
    /// a second. The registration still syncs if the change was part of the initial list; in
    /// client-go it never does.
    SkipAfter(Duration),
}

/// Options of a handler.
///
/// ```
/// use std::time::Duration;
///
/// use kube_informers::{HandlerOptions, PanicPolicy};
///
/// let options = HandlerOptions::named("cache")
///     .resync(Duration::from_mins(10))
///     .panic_policy(PanicPolicy::SkipAfter(Duration::from_secs(1)));
/// assert_eq!(options.name, "cache");
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// The resync period. Zero disables resyncs; `None` uses the informer's period.
    pub resync: Option<Duration>,
    /// What happens when the handler panics.
    pub panic_policy: PanicPolicy,
    /// The handler's name in the log and in metrics.
    pub name: Cow<'static, str>,
    /// The maximum number of changes that wait for the handler, initial objects excluded. A handler
    /// that exceeds it is removed, and the informer stops. Its `run` panics with a message that
    /// names the handler, without waiting for the current call.
    ///
    /// A relist can repeat all objects to the handler, so a limit should exceed their number.
    ///
    /// `None`, the default, is no limit, same as client-go. A stuck handler then costs 40 bytes per
    /// change, shared by all handlers, 40 more for a change that arrives alone, and the old objects
    /// that the changes keep alive.
    pub max_pending: Option<usize>,
    /// Whether the handler runs on a thread of its own, instead of a worker of the runtime. For
    /// handlers that block. Streams ignore it.
    pub own_thread: bool,
}

impl HandlerOptions {
    /// The defaults, with a name for logs and metrics.
    pub fn named(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets [`resync`](field@Self::resync).
    pub fn resync(self, period: Duration) -> Self {
        Self { resync: Some(period), ..self }
    }

    /// Sets [`panic_policy`](field@Self::panic_policy).
    pub fn panic_policy(self, panic_policy: PanicPolicy) -> Self {
        Self { panic_policy, ..self }
    }

    /// Sets [`max_pending`](field@Self::max_pending).
    pub fn max_pending(self, limit: usize) -> Self {
        Self { max_pending: Some(limit), ..self }
    }

    /// Sets [`own_thread`](field@Self::own_thread).
    pub fn own_thread(self) -> Self {
        Self { own_thread: true, ..self }
    }
}

/// A handler's registration. Reports progress, and identifies the handler for removal.
///
/// Dropping it does not remove the handler.
#[derive(Clone)]
pub struct Registration(pub(crate) Arc<Progress>);

impl Registration {
    /// The handler's name from its options.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether the handler has processed its initial objects.
    pub fn has_synced(&self) -> bool {
        self.0.synced.is_set()
    }

    /// Waits until the handler has processed its initial objects.
    ///
    /// Never returns if the handler is removed or the informer stops before; see [`Self::stopped`].
    pub async fn synced(&self) {
        self.0.synced.wait().await;
    }

    /// Whether the handler has received its last call.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.is_set()
    }

    /// Waits until the handler has received its last call: it was removed or the informer has
    /// stopped, and any call in progress has returned.
    pub async fn stopped(&self) {
        self.0.stopped.wait().await;
    }

    /// The number of changes that wait for the handler, including the one in progress.
    pub fn pending(&self) -> usize {
        self.0.pending.load(Ordering::Relaxed)
    }

    /// The number of changes that the handler has received, including those that caused a panic.
    pub fn processed(&self) -> u64 {
        self.0.processed.load(Ordering::Relaxed)
    }

    /// The number of panics of the handler.
    pub fn panics(&self) -> u64 {
        self.0.panics.load(Ordering::Relaxed)
    }

    /// The number of calls that took longer than 100 ms while more than 1024 changes waited. The
    /// log reports at most one every ten seconds.
    pub fn slow_calls(&self) -> u64 {
        self.0.slow_calls.load(Ordering::Relaxed)
    }
}

/// State shared by the informer, the listener's task and the registration.
pub(crate) struct Progress {
    pub(crate) name: Cow<'static, str>,
    /// The informer's identity and resource in the log.
    pub(crate) informer: Arc<str>,
    pub(crate) synced: Latch,
    pub(crate) stopped: Latch,
    pub(crate) removed: CancellationToken,
    /// Held while the informer waits for the listener's task.
    awaited: Mutex<Option<TaskTrackerToken>>,
    /// The number of initial objects. The handler receives them before all other changes.
    initial: AtomicU64,
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
            initial: AtomicU64::new(0),
            pending: AtomicUsize::new(0),
            processed: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            slow_calls: AtomicU64::new(0),
        }
    }

    /// Makes the tracker wait for the listener's task.
    pub(crate) fn await_by(&self, tasks: &TaskTracker) {
        *self.awaited.lock() = Some(tasks.token());
    }

    pub(crate) fn note_processed(&self) {
        self.processed.fetch_add(1, Ordering::Relaxed);
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    /// The number of initial objects that wait for the handler.
    fn initial_pending(&self) -> usize {
        let processed = self.processed.load(Ordering::Relaxed);
        let left = self.initial.load(Ordering::Relaxed).saturating_sub(processed);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    pub(crate) fn forget_pending(&self) {
        self.pending.store(0, Ordering::Relaxed);
    }
}

/// One change of a batch. If `sync`, only handlers that take part in a resync receive it.
pub(crate) struct Notice<T> {
    pub(crate) change: Notification<T>,
    pub(crate) sync: bool,
}

/// The changes of a batch, or a part of it. All listeners share them, so an unread change costs a
/// listener nothing.
pub(crate) type Changes<T> = Arc<[Notice<T>]>;

pub(crate) enum Message<T> {
    Changes {
        changes: Changes<T>,
        /// Whether the listener receives changes marked `sync`, too.
        syncing: bool,
    },
    /// The initial objects end here.
    Synced,
}

/// The changes of a message that the listener receives.
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
        let skipped =
            self.changes.get(self.next..)?.iter().position(|notice| self.syncing || !notice.sync)?;
        self.next += skipped + 1;
        self.changes.get(self.next - 1).map(|notice| &notice.change)
    }
}

/// The sending half. The queue is unbounded: with a bound, a slow handler would delay the others or
/// lose changes. [`Registration::pending`] exposes the length instead.
pub(crate) struct Outbox<T> {
    pub(crate) progress: Arc<Progress>,
    pub(crate) sender: UnboundedSender<Message<T>>,
    pub(crate) max_pending: usize,
    pub(crate) failure: Arc<FirstFailure>,
}

impl<T> Outbox<T> {
    /// Sends changes of which the listener receives `count`. The limit leaves initial objects out.
    pub(crate) fn send(&self, changes: Changes<T>, syncing: bool, count: usize, is_initial: bool) {
        if count == 0 {
            return;
        }
        if is_initial {
            self.progress.initial.fetch_add(count as u64, Ordering::Relaxed);
        }
        // Read before `pending`: a call that ends in between must not count against the limit.
        let initial = self.progress.initial_pending();
        let pending = self.progress.pending.fetch_add(count, Ordering::Relaxed) + count;
        if pending.saturating_sub(initial) > self.max_pending {
            self.give_up();
        } else if self.sender.send(Message::Changes { changes, syncing }).is_err() {
            // The handler panicked or was removed. It receives nothing more.
            self.progress.forget_pending();
        }
    }

    pub(crate) fn mark_synced(&self) {
        let _ = self.sender.send(Message::Synced);
    }

    /// Whether the receiver is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Removes a handler that will not catch up. The informer does not wait for it, because its
    /// current call may never return.
    fn give_up(&self) {
        let Progress { name, removed, awaited, .. } = &*self.progress;
        if removed.is_cancelled() {
            return;
        }
        removed.cancel();
        self.failure.note(InformerFailure::HandlerBehind {
            handler: name.clone().into_owned(),
            limit: self.max_pending,
        });
        *awaited.lock() = None;
    }
}

/// Ends the registration however the listener's task ends, even before it starts.
struct EndOnDrop(Arc<Progress>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.stopped.set();
        *self.0.awaited.lock() = None;
    }
}

/// The receiving half. It owns the handler and is its only caller.
pub(crate) struct Listener<T, H> {
    pub(crate) handler: H,
    pub(crate) inbox: UnboundedReceiver<Message<T>>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) policy: PanicPolicy,
    pub(crate) failure: Arc<FirstFailure>,
    pub(crate) last_report: Option<Instant>,
}

impl<T, H> Listener<T, H>
where
    T: Send + Sync + 'static,
    H: EventHandler<T>,
{
    /// Calls the handler until it is removed, or the informer has stopped and the queue is empty.
    pub(crate) fn run(self) -> impl Future<Output = ()> + Send {
        // Created before the task runs, because the task may be dropped before.
        let ended = EndOnDrop(Arc::clone(&self.progress));
        async move {
            let _ended = ended;
            self.serve().await;
        }
    }

    async fn serve(mut self) {
        let progress = Arc::clone(&self.progress);
        while let Some(message) = self.next().await {
            // The handler may have been removed while this task waited.
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

    /// The next message. Waiting for one ends when the handler is removed.
    async fn next(&mut self) -> Option<Message<T>> {
        // Waiting for removal as well costs more than most calls, so it happens only on an empty
        // queue.
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
        // After a panic, the handler is used again only if its owner chose `SkipAfter`.
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
                let handler = self.progress.name.clone().into_owned();
                let message = panic_message(&panic).to_owned();
                self.failure.note_panic(InformerFailure::HandlerPanicked { handler, message }, panic);
                ControlFlow::Break(())
            }
            PanicPolicy::SkipAfter(pause) => {
                tracing::error!(handler = %self.progress.name, informer = %self.progress.informer, panic = panic_message(&panic),
                    "event handler panicked; skipping the change");
                // The caller's loop checks for removal.
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

#[cfg(test)]
mod tests;

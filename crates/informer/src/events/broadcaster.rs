//! Passes events from recorders to sinks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::delivery::Delivery;
use super::sink::{EventSink, LogSink, Record};
use super::{Event, ObjectReference, Reporter};
use crate::backoff::random;

/// Options of a broadcaster. The defaults are client-go's, which has no time limit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EventOptions {
    /// The maximum number of queued events per sink; further ones are dropped. The default is 1000.
    pub queue: usize,
    /// The maximum number of attempts per event. The default is 12.
    pub tries: u32,
    /// The pause between attempts, extended by up to a quarter. The default is 10 s.
    pub pause: Duration,
    /// The maximum duration of an attempt. An attempt that times out may have succeeded, which can
    /// duplicate an event. The default is 30 s.
    pub try_timeout: Duration,
    /// The seed of the random pauses.
    pub seed: Option<u64>,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self {
            queue: 1000,
            tries: 12,
            pause: Duration::from_secs(10),
            try_timeout: Duration::from_secs(30),
            seed: None,
        }
    }
}

impl EventOptions {
    /// Sets [`queue`](field@Self::queue).
    pub fn queue(self, events: usize) -> Self {
        Self { queue: events, ..self }
    }

    /// Sets [`tries`](field@Self::tries).
    pub fn tries(self, tries: u32) -> Self {
        Self { tries, ..self }
    }

    /// Sets [`pause`](field@Self::pause).
    pub fn pause(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Sets [`try_timeout`](field@Self::try_timeout).
    pub fn try_timeout(self, timeout: Duration) -> Self {
        Self { try_timeout: timeout, ..self }
    }

    /// Sets [`seed`](field@Self::seed).
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }
}

/// Passes events from its recorders to its sinks. Clones share the broadcaster.
///
/// After the last handle and recorder are dropped, queued events are still written, with all
/// attempts.
#[derive(Clone)]
pub struct EventBroadcaster(Arc<Shared>);

struct Shared {
    options: EventOptions,
    /// A queue per sink; `None` after the shutdown.
    outlets: Mutex<Option<Vec<mpsc::Sender<Arc<Record>>>>>,
    dropped: AtomicU64,
    failed: Arc<AtomicU64>,
    tasks: TaskTracker,
    closing: CancellationToken,
    /// Ends the tasks immediately.
    abort: CancellationToken,
}

impl fmt::Debug for EventBroadcaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_struct("EventBroadcaster");
        it.field("dropped", &self.dropped()).field("failed", &self.failed()).finish_non_exhaustive()
    }
}

impl Default for EventBroadcaster {
    fn default() -> Self {
        Self::new()
    }
}

impl EventBroadcaster {
    /// A broadcaster without sinks, which discards all events.
    pub fn new() -> Self {
        Self::with_options(EventOptions::default())
    }

    /// A broadcaster with these options.
    pub fn with_options(options: EventOptions) -> Self {
        Self(Arc::new(Shared {
            options,
            outlets: Mutex::new(Some(Vec::new())),
            dropped: AtomicU64::new(0),
            failed: Arc::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            abort: CancellationToken::new(),
        }))
    }

    /// Writes events recorded from now on to this sink, in its own task. Does nothing after a
    /// shutdown.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn start_recording_to_sink(&self, sink: impl EventSink) {
        let shared = &self.0;
        let mut outlets = shared.outlets.lock();
        let Some(outlets) = &mut *outlets else { return };
        // Channels require a capacity of at least one.
        let (sender, inbox) = mpsc::channel(shared.options.queue.max(1));
        let delivery = Delivery {
            sink,
            inbox,
            options: shared.options.clone(),
            failed: Arc::clone(&shared.failed),
            closing: shared.closing.clone(),
            random: random(shared.options.seed),
        };
        let abort = shared.abort.clone();
        shared.tasks.spawn(async move { abort.run_until_cancelled(delivery.run()).await });
        outlets.push(sender);
    }

    /// Writes events recorded from now on to the log.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn start_logging(&self) {
        self.start_recording_to_sink(LogSink);
    }

    /// A recorder for this reporter: a name, or a [`Reporter`].
    pub fn new_recorder(&self, reporter: impl Into<Reporter>) -> EventRecorder {
        EventRecorder { broadcaster: self.clone(), reporter: Arc::new(reporter.into()) }
    }

    fn send(&self, record: Record) {
        let record = Arc::new(record);
        let refused = self.0.outlets.lock().as_ref().map_or(1, |outlets| {
            // A queue is full, or its sink has panicked.
            outlets.iter().filter(|outlet| outlet.try_send(Arc::clone(&record)).is_err()).count() as u64
        });
        let before = self.0.dropped.fetch_add(refused, Ordering::Relaxed);
        let dropped = before + refused;
        // Logs only at powers of two, to protect the log.
        if dropped.leading_zeros() < before.leading_zeros() {
            tracing::error!(
                dropped,
                name = record.regarding.name,
                reason = record.event.reason,
                "event dropped: the queue is full, or events are shut down"
            );
        }
    }

    /// The number of events dropped because a sink's queue was full or events were shut down;
    /// counted per sink.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// The number of events that sinks rejected or that failed in all attempts; counted per sink.
    pub fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// Rejects further events, and writes the queued ones with one attempt each. Returns whether
    /// that finished in time; otherwise the rest is lost.
    pub async fn shutdown(&self, within: Duration) -> bool {
        let shared = &self.0;
        *shared.outlets.lock() = None;
        shared.closing.cancel();
        shared.tasks.close();
        let flushed = timeout(within, shared.tasks.wait()).await.is_ok();
        shared.abort.cancel();
        flushed
    }
}

/// Records events of one reporter. Clones are cheap.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    broadcaster: EventBroadcaster,
    reporter: Arc<Reporter>,
}

impl EventRecorder {
    /// Queues an event about an object, in the object's namespace. Never blocks or fails, and can
    /// be called from any thread. Events that do not fit are [dropped](EventBroadcaster::dropped).
    ///
    /// Obtain the reference from `object_ref` of [`kube::Resource`]. The server accepts notes of up
    /// to 1 kB.
    pub fn record(&self, regarding: ObjectReference, event: Event) {
        self.broadcaster.send(Record { reporter: Arc::clone(&self.reporter), regarding, event });
    }
}

//! Takes events from recorders to sinks.

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
use crate::backoff::SplitMix;

/// How a broadcaster treats its sinks. The defaults are client-go's, which has no time limit.
#[derive(Clone, Debug, PartialEq)]
pub struct EventOptions {
    /// How many events may wait for each sink; further ones are dropped. 1000.
    pub queue: usize,
    /// How often an event is tried before it is given up. 12.
    pub tries: u32,
    /// How long to wait between two tries; up to a quarter more. 10 s.
    pub pause: Duration,
    /// How long a try may take before it counts as failed. It may have had its effect, so that an event is
    /// there twice. 30 s.
    pub try_timeout: Duration,
    /// Makes the pauses repeatable.
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

/// Takes events from its recorders and hands them to its sinks. Clones are handles to the same one.
///
/// When the last handle and recorder are dropped, what is queued is still written, with all tries.
#[derive(Clone)]
pub struct EventBroadcaster(Arc<Shared>);

struct Shared {
    options: EventOptions,
    /// A queue per sink; `None` after shutting down.
    outlets: Mutex<Option<Vec<mpsc::Sender<Arc<Record>>>>>,
    dropped: AtomicU64,
    failed: Arc<AtomicU64>,
    tasks: TaskTracker,
    closing: CancellationToken,
    /// Ends the tasks whatever they are at.
    abort: CancellationToken,
}

impl Default for EventBroadcaster {
    fn default() -> Self {
        Self::new()
    }
}

impl EventBroadcaster {
    /// A broadcaster without sinks, which discards everything.
    pub fn new() -> Self {
        Self::with_options(EventOptions::default())
    }

    /// The same with settings of your own.
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

    /// Hands what is recorded from now on to this sink, in a task of its own. Does nothing after a shutdown.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start_recording_to_sink(&self, sink: impl EventSink) {
        let shared = &self.0;
        let mut outlets = shared.outlets.lock();
        let Some(outlets) = &mut *outlets else { return };
        // A channel for nothing at all does not exist.
        let (sender, inbox) = mpsc::channel(shared.options.queue.max(1));
        let delivery = Delivery {
            sink,
            inbox,
            options: shared.options.clone(),
            failed: Arc::clone(&shared.failed),
            closing: shared.closing.clone(),
            random: SplitMix::new(shared.options.seed),
        };
        let abort = shared.abort.clone();
        shared.tasks.spawn(async move { abort.run_until_cancelled(delivery.run()).await });
        outlets.push(sender);
    }

    /// Writes what is recorded from now on to the log.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start_logging(&self) {
        self.start_recording_to_sink(LogSink);
    }

    /// A recorder for what this reporter has to say: a name, or a [`Reporter`].
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
        // At each power of two, or the log would be the next thing to overflow.
        if dropped.leading_zeros() < before.leading_zeros() {
            tracing::error!(
                dropped,
                name = record.regarding.name,
                reason = record.event.reason,
                "event dropped: too many are queued, or events are shut down"
            );
        }
    }

    /// How many events found a sink's queue full, or came after shutting down; each counts once per sink.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// How many events sinks have rejected, or were given up after failures; each counts once per sink.
    pub fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// Takes no more events, and writes those that are queued, each with one try. Whether that was done in
    /// time; if not, the rest is lost.
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
#[derive(Clone)]
pub struct EventRecorder {
    broadcaster: EventBroadcaster,
    reporter: Arc<Reporter>,
}

impl EventRecorder {
    /// Queues an event about an object, in the object's namespace. Neither blocks nor fails, and may be
    /// called from any thread: what there is no room for is [dropped](EventBroadcaster::dropped).
    ///
    /// The reference is what `object_ref` of [`kube::Resource`] makes. The server takes a note of up to 1 kB.
    pub fn record(&self, regarding: ObjectReference, event: Event) {
        self.broadcaster.send(Record { reporter: Arc::clone(&self.reporter), regarding, event });
    }
}

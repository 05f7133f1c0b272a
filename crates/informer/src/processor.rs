//! The processor: applies batches to the store and passes the changes to all listeners.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::backoff::FOR_EVER;
use crate::delta::Batch;
use crate::event_stream::EventStream;
use crate::failure::{FirstFailure, InformerFailure};
use crate::handler::EventHandler;
use crate::kind::Kind;
use crate::latch::Latch;
use crate::listener::{Changes, HandlerOptions, Listener, Message, Notice, Outbox, Progress, Registration};
use crate::metrics::Meters;
use crate::notification::Notification;
use crate::store::{Store, StoreChange};

/// The minimum resync period. A resync costs time in proportion to the size of the store.
const MINIMUM_RESYNC: Duration = Duration::from_secs(1);

/// The maximum number of changes per message, large enough to amortize its cost.
const MAX_PART: usize = 256;

/// Why a handler could not be added.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddHandlerError {
    /// The informer has stopped, so the handler would never be called.
    #[error("cannot add a handler: the informer has stopped")]
    Stopped,
}

/// Owns the listeners. The mutex orders batches and registrations: a new handler receives the store
/// and is enrolled in one critical section, so it misses nothing and sees nothing twice. The lock
/// is never held while waiting, because the queues of listeners are unbounded.
pub(crate) struct Processor<T> {
    store: Store<T>,
    state: Mutex<State<T>>,
    tasks: TaskTracker,
    failure: Arc<FirstFailure>,
    /// Whether the store contains the first list.
    synced: Latch,
    /// The informer's name in the log. Its address also identifies the informer's registrations.
    name: Arc<str>,
    meters: Meters,
}

struct State<T> {
    phase: Phase,
    enrolled: Vec<Enrolled<T>>,
    /// The interval of `should_resync` calls; zero disables them.
    check_period: Duration,
    default_resync: Duration,
    /// The times of the checks.
    #[cfg(test)]
    checks: Vec<Instant>,
}

enum Phase {
    Idle,
    Running(Handle),
    Stopped,
}

struct Enrolled<T> {
    /// Dropping it closes the listener's queue.
    outbox: Outbox<T>,
    /// The listener's task, until the informer runs.
    task: Option<BoxFuture<'static, ()>>,
    own_thread: bool,
    schedule: Schedule,
}

/// The resync schedule of a listener.
struct Schedule {
    requested: Duration,
    period: Duration,
    next: Instant,
    /// Whether the listener takes part in the current resync. All do until the first check. Without
    /// resyncs, a relist therefore shows even unchanged objects to everyone.
    syncing: bool,
}

impl<T: Send + Sync + 'static> Processor<T> {
    pub(crate) fn new(name: &str, store: Store<T>, default_resync: Duration) -> Self {
        let state = State {
            phase: Phase::Idle,
            enrolled: Vec::new(),
            check_period: default_resync,
            default_resync,
            #[cfg(test)]
            checks: Vec::new(),
        };
        let name: Arc<str> = name.into();
        Self {
            store,
            state: Mutex::new(state),
            tasks: TaskTracker::new(),
            failure: Arc::new(FirstFailure::new(Arc::clone(&name))),
            synced: Latch::default(),
            name,
            meters: Meters::default(),
        }
    }

    pub(crate) fn add(
        &self,
        handler: impl EventHandler<T>,
        options: HandlerOptions,
    ) -> Result<Registration, AddHandlerError> {
        let policy = options.panic_policy;
        let listen = |inbox, progress: Arc<Progress>| {
            let failure = Arc::clone(&self.failure);
            let listener = Listener { handler, inbox, progress, policy, failure, last_report: None };
            (Some(Box::pin(listener.run()) as BoxFuture<'static, ()>), ())
        };
        self.enrol(options, listen).map(|(registration, ())| registration)
    }

    pub(crate) fn add_stream(&self, options: HandlerOptions) -> Result<EventStream<T>, AddHandlerError> {
        let (registration, inbox) = self.enrol(options, |inbox, _| (None, inbox))?;
        Ok(EventStream::new(inbox, registration))
    }

    /// Adds a listener. `listen` builds its task, if it has one, and its result.
    fn enrol<R>(
        &self,
        options: HandlerOptions,
        listen: impl FnOnce(UnboundedReceiver<Message<T>>, Arc<Progress>) -> (Option<BoxFuture<'static, ()>>, R),
    ) -> Result<(Registration, R), AddHandlerError> {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Stopped) {
            return Err(AddHandlerError::Stopped);
        }
        // Otherwise streams would pile up if they come and go while nothing changes.
        state.forget_closed();
        let schedule = state.schedule(options.resync);
        let (sender, inbox) = mpsc::unbounded_channel();
        let progress = Arc::new(Progress::new(options.name, Arc::clone(&self.name)));
        let (task, made) = listen(inbox, Arc::clone(&progress));
        let outbox = Outbox {
            progress: Arc::clone(&progress),
            sender,
            max_pending: options.max_pending.unwrap_or(usize::MAX),
            failure: Arc::clone(&self.failure),
        };
        let adds = self.store.list().into_iter().map(|object| Notice {
            change: Notification::Add { object, is_in_initial_list: true },
            sync: false,
        });
        for (changes, news) in parts(adds) {
            outbox.send(changes, true, news, true);
        }
        if self.synced.is_set() {
            outbox.mark_synced();
        }
        let mut enrolled = Enrolled { outbox, task, own_thread: options.own_thread, schedule };
        if let Phase::Running(runtime) = &state.phase {
            enrolled.start(&self.tasks, runtime);
        }
        state.enrolled.push(enrolled);
        Ok((Registration(progress), made))
    }

    /// Removes a listener, which receives nothing more. Returns whether the listener belongs to
    /// this informer; otherwise does nothing.
    pub(crate) fn remove(&self, registration: &Registration) -> bool {
        let mut state = self.state.lock();
        let is_it = |enrolled: &Enrolled<T>| Arc::ptr_eq(&enrolled.outbox.progress, &registration.0);
        let position = state.enrolled.iter().position(is_it);
        let removed = position.map(|position| state.enrolled.remove(position));
        // Unlock first: dropping the task of a listener that never ran drops its handler, which may
        // use the informer.
        drop(state);
        drop(removed);
        let is_ours = Arc::ptr_eq(&registration.0.informer, &self.name);
        if is_ours {
            registration.0.removed.cancel();
        }
        is_ours
    }

    /// Starts the listeners added so far. Returns `false` if already started.
    pub(crate) fn start(&self, runtime: Handle) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Idle) {
            return false;
        }
        for enrolled in &mut state.enrolled {
            enrolled.start(&self.tasks, &runtime);
        }
        state.phase = Phase::Running(runtime);
        true
    }

    /// Applies a batch to the store and passes the changes to the listeners.
    pub(crate) fn apply<K: Kind<Object = T>>(&self, kind: &K, batch: Batch<T>) {
        let started = Instant::now();
        let mut state = self.state.lock();
        state.forget_closed();
        let is_in_initial_list = batch.in_initial_list;
        let received = self.store.apply(kind, batch.deltas).into_iter().map(|change| {
            let sync = is_sync(kind, &change);
            self.meters.count(&change, sync);
            let change = match change {
                StoreChange::Added(object) => Notification::Add { object, is_in_initial_list },
                StoreChange::Updated(old, new) => Notification::Update { old, new },
                StoreChange::Deleted(deleted) => Notification::Delete(deleted),
            };
            Notice { change, sync }
        });
        for (changes, news) in parts(received) {
            for Enrolled { outbox, schedule, .. } in &state.enrolled {
                let count = if schedule.syncing { changes.len() } else { news };
                outbox.send(Arc::clone(&changes), schedule.syncing, count, is_in_initial_list);
            }
        }
        if batch.synced && !self.synced.is_set() {
            // Before any handler's: one that has synced must find the informer synced.
            self.synced.set();
            for enrolled in &state.enrolled {
                enrolled.outbox.mark_synced();
            }
        }
        drop(state);
        self.meters.processed(started.elapsed());
    }

    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    /// The first failure of the informer or a handler.
    pub(crate) fn failure(&self) -> &FirstFailure {
        &self.failure
    }

    /// Set once the store contains the first list.
    pub(crate) fn synced(&self) -> &Latch {
        &self.synced
    }

    /// Selects the listeners that take part in a resync. Returns `false` if there are none.
    pub(crate) fn should_resync(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        #[cfg(test)]
        state.checks.push(now);
        // Check every listener, without stopping at the first that is due.
        state.enrolled.iter_mut().fold(false, |any, enrolled| enrolled.schedule.check(now) | any)
    }

    #[cfg(test)]
    pub(crate) fn first_check_after(&self, time: Instant) -> Option<Instant> {
        self.state.lock().checks.iter().copied().find(|check| *check > time)
    }

    /// The interval of `should_resync` calls; zero disables them.
    pub(crate) fn check_period(&self) -> Duration {
        self.state.lock().check_period
    }

    pub(crate) fn registrations(&self) -> Vec<Registration> {
        let mut state = self.state.lock();
        state.forget_closed();
        state.enrolled.iter().map(|enrolled| Registration(Arc::clone(&enrolled.outbox.progress))).collect()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Stopped)
    }

    /// Closes the queues. Listeners end once they have processed what is in them.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Stopped;
        let ended = std::mem::take(&mut state.enrolled);
        self.tasks.close();
        drop(state);
        drop(ended);
    }

    /// Waits until every listener has ended, except those that exceeded their limit.
    pub(crate) async fn stopped(&self) {
        self.tasks.wait().await;
    }
}

/// Splits changes into messages, each with its number of changes that are not `sync`. A slow
/// handler keeps a part alive, instead of a whole list.
fn parts<T>(mut received: impl Iterator<Item = Notice<T>>) -> impl Iterator<Item = (Changes<T>, usize)> {
    std::iter::from_fn(move || {
        let part: Changes<T> = received.by_ref().take(MAX_PART).collect();
        let news = part.iter().filter(|received| !received.sync).count();
        (!part.is_empty()).then_some((part, news))
    })
}

/// Whether an update has no new version, and so goes only to listeners that take part in a resync.
fn is_sync<K: Kind>(kind: &K, change: &StoreChange<K::Object>) -> bool {
    let StoreChange::Updated(old, new) = change else {
        return false;
    };
    let (old_version, new_version) = (kind.resource_version(old), kind.resource_version(new));
    // Objects without metadata, because of a transform, all have the version "".
    Arc::ptr_eq(old, new) || (old_version == new_version && !new_version.is_empty())
}

impl<T> State<T> {
    /// Readers drop their streams without notice.
    fn forget_closed(&mut self) {
        self.enrolled.retain(|enrolled| !enrolled.outbox.is_closed());
    }

    fn schedule(&mut self, requested: Option<Duration>) -> Schedule {
        let mut requested = requested.unwrap_or(self.default_resync);
        if !requested.is_zero() && requested < MINIMUM_RESYNC {
            tracing::warn!(?requested, minimum = ?MINIMUM_RESYNC, "resync period raised to the minimum");
            requested = MINIMUM_RESYNC;
        }
        if !requested.is_zero() && requested < self.check_period {
            if matches!(self.phase, Phase::Idle) {
                self.check_period = requested;
                for enrolled in &mut self.enrolled {
                    enrolled.schedule.align(requested);
                }
            } else {
                // The timer is running already.
                tracing::warn!(?requested, raised = ?self.check_period,
                    "resync period raised to the running informer's");
                requested = self.check_period;
            }
        }
        let mut schedule =
            Schedule { requested, period: Duration::ZERO, next: Instant::now(), syncing: true };
        schedule.align(self.check_period);
        schedule.next += schedule.period;
        schedule
    }
}

impl Schedule {
    /// Derives the period. A listener cannot be resynced more often than it is checked.
    fn align(&mut self, check_period: Duration) {
        self.period = match (self.requested, check_period) {
            (Duration::ZERO, _) => Duration::ZERO,
            (requested, Duration::ZERO) => {
                tracing::warn!(?requested, "no resyncs: the informer was created without them");
                Duration::ZERO
            }
            (requested, check_period) => requested.max(check_period).min(FOR_EVER),
        };
    }

    fn check(&mut self, now: Instant) -> bool {
        self.syncing = !self.period.is_zero() && now >= self.next;
        if self.syncing {
            self.next = now + self.period;
        }
        self.syncing
    }
}

impl<T> Enrolled<T> {
    fn start(&mut self, tasks: &TaskTracker, runtime: &Handle) {
        let Some(task) = self.task.take() else { return };
        self.outbox.progress.await_by(tasks);
        if self.own_thread {
            self.start_thread(task, runtime.clone());
        } else {
            runtime.spawn(task);
        }
    }

    fn start_thread(&self, task: BoxFuture<'static, ()>, runtime: Handle) {
        let handler = self.outbox.progress.name.clone().into_owned();
        // The system's names of threads end at a zero byte.
        let thread = std::thread::Builder::new().name(handler.replace('\0', ""));
        if let Err(error) = thread.spawn(move || runtime.block_on(task)) {
            let message = error.to_string();
            self.outbox.failure.note(InformerFailure::HandlerThread { handler, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Wake, Waker};

    use futures::StreamExt;

    use super::*;
    use crate::handler::HandlerFuncs;
    use crate::queue::tests::{Thing, Things, delta};
    use crate::store::Indexers;
    use crate::testing::settle;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn processor(default_resync: Duration) -> Processor<Thing> {
        let store = Store::new(Arc::new(Things::new()), Indexers::new());
        Processor::new("pods", store, default_resync)
    }

    fn add(processor: &Processor<Thing>, resync: Duration) {
        let options = HandlerOptions { resync: Some(resync), ..HandlerOptions::default() };
        processor.add(HandlerFuncs::new(), options).unwrap();
    }

    fn periods(processor: &Processor<Thing>) -> Vec<u64> {
        let state = processor.state.lock();
        state.enrolled.iter().map(|enrolled| enrolled.schedule.period.as_secs()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn before_the_start_the_shortest_period_is_the_check_period() {
        let processor = processor(secs(12 * 3600));
        let table = [
            (0, 43200, vec![0]),
            (60, 60, vec![0, 60]),
            (55, 55, vec![0, 60, 55]),
            (5, 5, vec![0, 60, 55, 5]),
        ];
        for (resync, check, expected) in table {
            add(&processor, secs(resync));
            assert_eq!(processor.check_period(), secs(check));
            assert_eq!(periods(&processor), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_start_shorter_periods_are_raised() {
        let processor = processor(secs(60));
        assert!(processor.start(Handle::current()));
        for resync in [5, 60, 90, 0] {
            add(&processor, secs(resync));
        }
        assert_eq!(periods(&processor), [60, 60, 90, 0]);
        assert_eq!(processor.check_period(), secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn resync_periods_below_a_second_are_raised() {
        let with = processor(secs(60));
        add(&with, Duration::from_millis(200));
        assert_eq!(periods(&with), [1]);
        let without = processor(Duration::ZERO);
        add(&without, secs(60));
        assert_eq!(periods(&without), [0]);
        assert!(without.check_period().is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn starting_twice_and_adding_after_stop_are_rejected() {
        let processor = processor(Duration::ZERO);
        assert!(processor.start(Handle::current()) && !processor.start(Handle::current()));
        processor.stop();
        let refused = processor.add(HandlerFuncs::new(), HandlerOptions::default());
        assert_eq!(refused.err(), Some(AddHandlerError::Stopped));
        assert!(AddHandlerError::Stopped.to_string().ends_with("has stopped"));
        processor.stopped().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_removed_before_the_start_has_stopped() {
        let processor = processor(Duration::ZERO);
        let registration = processor.add(HandlerFuncs::new(), HandlerOptions::default()).unwrap();
        assert!(processor.remove(&registration) && processor.remove(&registration));
        registration.stopped().await;
        assert!(processor.registrations().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_list_of_several_batches_syncs_after_the_last() {
        let store = Store::new(Arc::new(Things::new()), Indexers::new());
        let processor = Processor::new("things", store, Duration::ZERO);
        let registration = processor.add(HandlerFuncs::new(), HandlerOptions::default()).unwrap();
        processor.start(Handle::current());
        for (change, synced) in [("+a1", false), ("+b1", true)] {
            let batch = Batch { deltas: vec![delta(change)], in_initial_list: true, synced };
            processor.apply(&Things::new(), batch);
            settle().await;
            assert_eq!(registration.has_synced(), synced, "{change}");
        }
    }

    /// Notes what it finds when a stream wakes its reader.
    struct Reader(Arc<Processor<Thing>>, Mutex<Vec<bool>>);

    impl Wake for Reader {
        fn wake(self: Arc<Self>) {
            self.1.lock().push(self.0.synced().is_set());
        }
    }

    #[test]
    fn a_handler_that_has_synced_finds_the_informer_synced() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _within = runtime.enter();
        let processor = Arc::new(processor(Duration::ZERO));
        let mut stream = processor.add_stream(HandlerOptions::default()).unwrap();
        let reader = Arc::new(Reader(Arc::clone(&processor), Mutex::default()));
        let waker = Waker::from(Arc::clone(&reader));
        assert!(stream.poll_next_unpin(&mut Context::from_waker(&waker)).is_pending());
        // An empty list: the only message says that it is complete.
        processor.apply(&Things::new(), Batch { deltas: vec![], in_initial_list: true, synced: true });
        assert_eq!(*reader.1.lock(), [true]);
    }
}

//! The shared informer: one reflector, one store, any number of handlers.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::task::coop;
use tokio::time::{Instant, Interval};
use tokio_util::sync::CancellationToken;

use crate::backoff::FOR_EVER;
use crate::delta::{Delta, Queue};
use crate::event_stream::EventStream;
use crate::failure::{InformerFailure, Panic};
use crate::handler::EventHandler;
use crate::informer_name::InformerIdentity;
use crate::kind::Kind;
use crate::latch::Latch;
use crate::list_watch::ListerWatcher;
use crate::listener::{HandlerOptions, Registration};
use crate::lister::Lister;
use crate::metrics::{Counted, HandlerMetrics, InformerMetrics, Requests, last_digits};
use crate::processor::{AddHandlerError, Processor};
use crate::queue::{InformerQueue, QueueKind};
use crate::reflector::{Reflector, ReflectorOptions, ReflectorStatus, Transform, WatchErrorHandler};
use crate::store::{IndexError, Indexers, Store};

/// Options of a [`SharedInformer`].
#[non_exhaustive]
pub struct InformerOptions<T> {
    /// The resync period of handlers that set none; zero disables resyncs.
    pub resync: Duration,
    /// Indices of the store. More can be added later.
    pub indexers: Indexers<T>,
    /// Options for lists and watches.
    pub reflector: ReflectorOptions,
    /// The queue between the reflector and the store.
    pub queue: QueueKind,
    /// The informer's identity in the log and in metrics; anonymous by default.
    pub identity: InformerIdentity,
}

// A derived implementation would require `T: Default`.
impl<T> Default for InformerOptions<T> {
    fn default() -> Self {
        Self {
            resync: Duration::ZERO,
            indexers: Indexers::new(),
            reflector: ReflectorOptions::default(),
            queue: QueueKind::default(),
            identity: InformerIdentity::default(),
        }
    }
}

impl<T> InformerOptions<T> {
    /// Sets [`resync`](field@Self::resync).
    pub fn resync(self, period: Duration) -> Self {
        Self { resync: period, ..self }
    }

    /// Sets [`indexers`](field@Self::indexers).
    pub fn indexers(self, indexers: Indexers<T>) -> Self {
        Self { indexers, ..self }
    }

    /// Sets [`reflector`](field@Self::reflector).
    pub fn reflector(self, options: ReflectorOptions) -> Self {
        Self { reflector: options, ..self }
    }

    /// Sets [`queue`](field@Self::queue).
    pub fn queue(self, kind: QueueKind) -> Self {
        Self { queue: kind, ..self }
    }

    /// Sets [`identity`](field@Self::identity).
    pub fn identity(self, identity: InformerIdentity) -> Self {
        Self { identity, ..self }
    }
}

/// The setting can no longer be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The informer has been started.
    #[error("the informer is already started")]
    AlreadyStarted,
}

/// Keeps a store in sync with the server, and calls handlers for every change.
///
/// The store contains a change, or a newer one, before a handler receives it. Use one informer per
/// resource for all consumers: each costs a list, a watch and a copy of all objects.
pub struct SharedInformer<K: Kind> {
    kind: Arc<K>,
    source: Arc<dyn ListerWatcher<K>>,
    options: ReflectorOptions,
    queue: QueueKind,
    store: Store<K::Object>,
    processor: Processor<K::Object>,
    status: Arc<ReflectorStatus>,
    requests: Arc<Requests>,
    identity: InformerIdentity,
    stopped: Latch,
    settings: Mutex<Settings<K::Object>>,
}

struct Settings<T> {
    started: bool,
    transform: Option<Transform<T>>,
    on_error: Option<WatchErrorHandler>,
}

impl<K: Kind> SharedInformer<K> {
    /// An informer that is idle until [`Self::run`].
    pub fn new(
        kind: Arc<K>,
        source: impl ListerWatcher<K>,
        options: InformerOptions<K::Object>,
    ) -> Arc<Self> {
        let store = options.queue.store(Arc::clone(&kind), options.indexers);
        let settings = Settings { started: false, transform: None, on_error: None };
        let requests = Arc::default();
        let label = label(&options.identity, &*kind);
        Arc::new(Self {
            kind,
            source: Arc::new(Counted::new(source, Arc::clone(&requests))),
            options: options.reflector,
            queue: options.queue,
            processor: Processor::new(&label, store.clone(), options.resync),
            store,
            status: Arc::default(),
            requests,
            identity: options.identity,
            stopped: Latch::default(),
            settings: Mutex::new(settings),
        })
    }

    /// Adds a handler, before or after the start. It first receives the existing objects.
    pub fn add_event_handler(
        &self,
        handler: impl EventHandler<K::Object>,
        options: HandlerOptions,
    ) -> Result<Registration, AddHandlerError> {
        self.processor.add(handler, options)
    }

    /// Adds an asynchronous consumer: the changes as a stream. The panic policy does not apply.
    ///
    /// [`Self::run`] does not wait until the reader has processed its stream.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kube_informers::{HandlerOptions, InformerOptions, Notification, SharedInformer, testing::FakeSource};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let source = FakeSource::<kube_informers::Typed<Pod>>::typed();
    /// # source.apply(serde_json::from_str(r#"{"metadata": {"name": "a"}}"#)?);
    /// # let pods = SharedInformer::new(source.kind(), source, InformerOptions::default());
    /// # tokio::spawn(pods.clone().run(Default::default()));
    /// let mut changes = pods.add_event_stream(HandlerOptions::named("reader"))?;
    /// while let Some(change) = changes.next().await {
    ///     match change {
    ///         Notification::Add { object, .. } => println!("added {:?}", object.metadata.name),
    ///         Notification::Update { new, .. } => println!("updated {:?}", new.metadata.name),
    ///         Notification::Delete(deleted) => println!("deleted {:?}", deleted.object()),
    ///     }
    /// #   break;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_event_stream(
        &self,
        options: HandlerOptions,
    ) -> Result<EventStream<K::Object>, AddHandlerError> {
        self.processor.add_stream(options)
    }

    /// Removes a handler. No call starts after this returns, though one may still be running or
    /// about to start; [`Self::shut_down_event_handler`] waits for it. Does nothing for a removed
    /// handler or one of another informer.
    pub fn remove_event_handler(&self, registration: &Registration) {
        self.processor.remove(registration);
    }

    /// Removes a handler, and waits for its current call, if any. Same as client-go's
    /// `ShutDownEventHandler`. Returns immediately if the informer was not started, or for a
    /// handler of another informer.
    ///
    /// A handler must not await its own removal. A stream ends when its reader polls again.
    pub async fn shut_down_event_handler(&self, registration: &Registration) {
        if self.processor.remove(registration) {
            registration.stopped().await;
        }
    }

    /// Adds indices, even while the store is filled and in use.
    pub fn add_indexers(&self, indexers: Indexers<K::Object>) -> Result<(), IndexError> {
        if self.processor.is_stopped() {
            return Err(IndexError::Stopped);
        }
        self.store.add_indexers(indexers)
    }

    /// Sets the function applied to every object before it is stored. It must not change the
    /// object's key.
    pub fn set_transform(
        &self,
        transform: impl Fn(&mut K::Object) + Send + Sync + 'static,
    ) -> Result<(), SettingError> {
        self.change(|settings| settings.transform = Some(Arc::new(transform)))
    }

    /// Sets the function called when a list fails or a watch cannot be opened. It replaces the log
    /// message.
    pub fn set_watch_error_handler(&self, on_error: WatchErrorHandler) -> Result<(), SettingError> {
        self.change(|settings| settings.on_error = Some(on_error))
    }

    fn change(&self, change: impl FnOnce(&mut Settings<K::Object>)) -> Result<(), SettingError> {
        let mut settings = self.settings.lock();
        if settings.started {
            return Err(SettingError::AlreadyStarted);
        }
        change(&mut settings);
        Ok(())
    }

    /// Runs until `stop` is cancelled and the handlers have processed everything read by then. An
    /// informer runs once; further calls return immediately.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime. After stopping, with the panic of a transform, or of a
    /// handler whose policy propagates it. With a message, if a handler exceeded its limit of
    /// pending changes. [`Self::failed`] returns earlier: before the other handlers have caught up.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let runtime = Handle::current();
        if !self.begin() {
            tracing::warn!(informer = %label(&self.identity, &*self.kind), "the informer is already started");
            return;
        }
        let _stopped = self.stopped.set_on_drop();
        let stop = stop.child_token();
        // Stops the reflector and the listeners even if this future is dropped.
        let _stop_reflector = stop.clone().drop_guard();
        let _stop_listeners = StopOnDrop(&self);
        self.processor.start(runtime.clone());
        let queue = Arc::new(InformerQueue::new(self.queue, &self.store));
        let queued = Arc::clone(&queue);
        self.processor.meters().watch_queue(move || queued.len());
        let reflector = Reflector::new(
            Arc::clone(&self.kind),
            Arc::clone(&self.source),
            Arc::clone(&queue),
            Arc::clone(&self.status),
            self.options.clone(),
        );
        let (transform, on_error) = {
            let mut settings = self.settings.lock();
            (settings.transform.take(), settings.on_error.take())
        };
        let reflector = reflector.with_transform(transform).with_error_handler(on_error);
        let reflector = runtime.spawn(reflector.run(stop.clone()));

        let processed = AssertUnwindSafe(self.process(&queue)).catch_unwind().await;
        stop.cancel();
        let reflected = reflector.await;
        for panic in [processed.err(), reflected.err().and_then(|error| error.try_into_panic().ok())] {
            self.note_panic(panic);
        }
        self.processor.stop();
        self.processor.stopped().await;
        if let Some(panic) = self.processor.failure().take_panic() {
            resume_unwind(panic);
        }
    }

    /// Whether this is the first run. Settings no longer change from then on.
    fn begin(&self) -> bool {
        !std::mem::replace(&mut self.settings.lock().started, true)
    }

    /// The only writer of the store. Ends when the queue is closed or the informer fails.
    async fn process(&self, queue: &InformerQueue<K::Object>) {
        let mut failed = pin!(self.processor.failure().wait());
        let mut resync = resync_timer(self.processor.check_period());
        loop {
            tokio::select! {
                biased;
                _ = &mut failed => return,
                () = tick(&mut resync) => {
                    // A resync during an outage would repeat a stale state, same as in client-go.
                    if self.status.is_watching() && self.processor.should_resync() {
                        queue.push(Delta::SyncAll);
                    }
                    restart(&mut resync);
                }
                processed = queue.process_next(|batch| self.processor.apply(&*self.kind, batch)) => {
                    if processed.is_none() {
                        return;
                    }
                    coop::consume_budget().await;
                }
            }
        }
    }

    fn note_panic(&self, panic: Option<Panic>) {
        if let Some(panic) = panic {
            self.processor.failure().note_panic(InformerFailure::panicked(&panic), panic);
        }
    }

    /// The descriptor of the objects.
    pub fn kind(&self) -> &Arc<K> {
        &self.kind
    }

    /// Whether the store contains the first list. Handlers may lag behind; see
    /// [`Registration::has_synced`].
    pub fn has_synced(&self) -> bool {
        self.processor.synced().is_set()
    }

    /// Waits until the store contains the first list. Never returns if the informer stops or fails
    /// before; see [`Self::failed`].
    pub async fn synced(&self) {
        self.processor.synced().wait().await;
    }

    /// Why the informer has failed, if it has. Its store and handlers then miss all later changes.
    pub fn failure(&self) -> Option<InformerFailure> {
        self.processor.failure().get()
    }

    /// Waits until the informer fails, and returns immediately if it has. Never returns otherwise.
    pub async fn failed(&self) -> InformerFailure {
        self.processor.failure().wait().await
    }

    /// Whether the informer has been started, running or not.
    pub fn is_started(&self) -> bool {
        self.settings.lock().started
    }

    /// Whether the informer has run and stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_set()
    }

    /// Waits until the informer has run and stopped.
    pub async fn stopped(&self) {
        self.stopped.wait().await;
    }

    /// The last resource version read from the server, including bookmarks; empty before the first
    /// list.
    pub fn last_sync_resource_version(&self) -> String {
        self.status.version()
    }

    /// The current list or watch error, if any.
    pub fn last_error(&self) -> Option<String> {
        self.status.last_error()
    }

    /// The number of objects skipped because they could not be decoded.
    pub fn undecodable(&self) -> u64 {
        self.status.undecodable()
    }

    /// The informer's current metrics.
    pub fn metrics(&self) -> InformerMetrics {
        let (meters, requests) = (self.processor.meters(), &self.requests);
        InformerMetrics {
            identity: self.identity.clone(),
            resource: self.kind.gvr().clone(),
            queued_items: meters.queued(),
            processing_latency: meters.latency(),
            objects: self.store.len(),
            store_resource_version: last_digits(&self.store.resource_version()),
            added: meters.added.get(),
            updated: meters.updated.get(),
            synced: meters.synced.get(),
            deleted: meters.deleted.get(),
            undecodable: self.undecodable(),
            lists: requests.lists.get(),
            pages: requests.pages.get(),
            watches: requests.watches.get(),
            failures: requests.failures.get(),
            handlers: self.registrations().iter().map(HandlerMetrics::from).collect(),
        }
    }

    /// The store, for reading.
    pub fn store(&self) -> Store<K::Object> {
        self.store.clone()
    }

    /// A lister over the store.
    pub fn lister(&self) -> Lister<K::Object> {
        Lister::new(self.store())
    }

    /// The registrations of all current handlers.
    pub fn registrations(&self) -> Vec<Registration> {
        self.processor.registrations()
    }
}

/// The informer's name in the log: its resource, prefixed with the name of its set, if any.
fn label(identity: &InformerIdentity, kind: &impl Kind) -> String {
    match identity.name() {
        "" => kind.gvr().to_string(),
        name => format!("{name}: {}", kind.gvr()),
    }
}

struct StopOnDrop<'a, K: Kind>(&'a SharedInformer<K>);

impl<K: Kind> Drop for StopOnDrop<'_, K> {
    fn drop(&mut self) {
        self.0.processor.stop();
    }
}

pub(crate) fn resync_timer(period: Duration) -> Option<Interval> {
    let period = period.min(FOR_EVER);
    (!period.is_zero()).then(|| tokio::time::interval_at(Instant::now() + period, period))
}

/// Restarts the timer; call it after each check. A listener is due one period after the check that
/// resynced it. After a late check, a fixed interval would find it not due yet and skip it.
pub(crate) fn restart(timer: &mut Option<Interval>) {
    if let Some(timer) = timer {
        timer.reset();
    }
}

pub(crate) async fn tick(timer: &mut Option<Interval>) {
    match timer {
        Some(timer) => drop(timer.tick().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;

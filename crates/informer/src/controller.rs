//! The private informer: a reflector, a store, and one handler that it calls synchronously.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::coop;
use tokio_util::sync::CancellationToken;

use crate::delta::{Batch, Delta, Queue};
use crate::failure::{Panic, panic_message};
use crate::handler::EventHandler;
use crate::kind::Kind;
use crate::latch::Latch;
use crate::list_watch::ListerWatcher;
use crate::listener::PanicPolicy;
use crate::lister::Lister;
use crate::queue::{InformerQueue, QueueKind};
use crate::reflector::{Reflector, ReflectorOptions, ReflectorStatus, Transform, WatchErrorHandler};
use crate::shared::{restart, resync_timer, tick};
use crate::store::{IndexError, Indexers, Store, StoreChange};

/// Decides whether a due resync takes place.
pub type ShouldResync = Arc<dyn Fn() -> bool + Send + Sync>;

/// Options of a [`Controller`]. Same as client-go's `Config`, but the processing is fixed: store
/// first, then handler. client-go has dropped `RetryOnError`; processing cannot fail here either.
#[non_exhaustive]
pub struct ControllerOptions<T> {
    /// The resync period of the handler; zero disables resyncs.
    pub resync: Duration,
    /// Called when a resync is due. Without it, every resync takes place.
    pub should_resync: Option<ShouldResync>,
    /// Indices of the store. More can be added later.
    pub indexers: Indexers<T>,
    /// Options for lists and watches.
    pub reflector: ReflectorOptions,
    /// The queue between the reflector and the store.
    pub queue: QueueKind,
    /// Applied to every object before it is stored. Must not change the object's key.
    pub transform: Option<Transform<T>>,
    /// Called when a list fails or a watch cannot be opened. Replaces the log message.
    pub watch_error_handler: Option<WatchErrorHandler>,
    /// What happens when the handler panics. client-go pauses for one second if it tolerates
    /// panics.
    pub panic_policy: PanicPolicy,
}

// A derived implementation would require `T: Default`.
impl<T> Default for ControllerOptions<T> {
    fn default() -> Self {
        Self {
            resync: Duration::ZERO,
            should_resync: None,
            indexers: Indexers::new(),
            reflector: ReflectorOptions::default(),
            queue: QueueKind::default(),
            transform: None,
            watch_error_handler: None,
            panic_policy: PanicPolicy::default(),
        }
    }
}

impl<T> ControllerOptions<T> {
    /// Sets [`resync`](field@Self::resync).
    pub fn resync(self, period: Duration) -> Self {
        Self { resync: period, ..self }
    }

    /// Sets [`should_resync`](field@Self::should_resync).
    pub fn should_resync(self, should_resync: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { should_resync: Some(Arc::new(should_resync)), ..self }
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

    /// Sets [`transform`](field@Self::transform).
    pub fn transform(self, transform: impl Fn(&mut T) + Send + Sync + 'static) -> Self {
        Self { transform: Some(Arc::new(transform)), ..self }
    }

    /// Sets [`watch_error_handler`](field@Self::watch_error_handler).
    pub fn watch_error_handler(self, on_error: WatchErrorHandler) -> Self {
        Self { watch_error_handler: Some(on_error), ..self }
    }

    /// Sets [`panic_policy`](field@Self::panic_policy).
    pub fn panic_policy(self, panic_policy: PanicPolicy) -> Self {
        Self { panic_policy, ..self }
    }
}

/// A private informer: keeps its own store in sync with the server, and calls one handler
/// synchronously.
///
/// Same as client-go's `NewInformer`, `NewIndexerInformer` and their variants, and unrelated to
/// `kube::runtime::Controller`. Prefer a [`SharedInformer`](crate::SharedInformer), which serves
/// any number of handlers with one list, one watch and one copy of all objects. For the handler, a
/// private informer differs in two ways:
///
/// * It runs in the informer's task, between two batches of changes. During a call, the store
///   contains the change, and at most the others of its batch. A slow handler delays the store.
/// * It receives every update, including those with an unchanged resource version after relists and
///   resyncs.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::Pod;
/// use kube_informers::{Controller, ControllerOptions, HandlerFuncs, KubeListWatch, QueueKind, Typed};
/// use tokio_util::sync::CancellationToken;
///
/// # async fn example(client: kube::Client) {
/// let kind = Arc::new(Typed::<Pod>::new());
/// let source = KubeListWatch::new(client, Arc::clone(&kind));
/// let handler = HandlerFuncs::new().with_add(|pod: &Arc<Pod>, _| println!("{:?}", pod.metadata.name));
/// let options = ControllerOptions::default().queue(QueueKind::DeltaFifo { replaced: true });
/// let controller = Controller::new(kind, source, handler, options);
/// let pods = controller.store();
/// tokio::spawn(Arc::clone(&controller).run(CancellationToken::new()));
/// controller.synced().await;
/// println!("{} pods", pods.len());
/// # }
/// ```
///
/// client-go's `SharedInformer.GetController` has no counterpart: its controller is inert. The
/// methods that it offers are methods of `SharedInformer` here.
pub struct Controller<K: Kind> {
    kind: Arc<K>,
    store: Store<K::Object>,
    status: Arc<ReflectorStatus>,
    synced: Latch,
    stopped: Latch,
    setup: Mutex<Option<Setup<K>>>,
}

/// What `run` consumes.
struct Setup<K: Kind> {
    source: Arc<dyn ListerWatcher<K>>,
    handler: Box<dyn EventHandler<K::Object>>,
    options: ControllerOptions<K::Object>,
}

impl<K: Kind> Controller<K> {
    /// An informer that is idle until [`Self::run`].
    pub fn new(
        kind: Arc<K>,
        source: impl ListerWatcher<K>,
        handler: impl EventHandler<K::Object>,
        mut options: ControllerOptions<K::Object>,
    ) -> Arc<Self> {
        let store = options.queue.store(Arc::clone(&kind), std::mem::take(&mut options.indexers));
        let setup = Setup { source: Arc::new(source), handler: Box::new(handler), options };
        Arc::new(Self {
            kind,
            store,
            status: Arc::default(),
            synced: Latch::default(),
            stopped: Latch::default(),
            setup: Mutex::new(Some(setup)),
        })
    }

    /// Runs until `stop` is cancelled and the handler has processed everything read by then. A
    /// controller runs once; further calls return immediately.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime. After stopping, with the panic of a transform, or of the
    /// handler if the policy propagates it.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let runtime = Handle::current();
        let Some(Setup { source, handler, mut options }) = self.setup.lock().take() else {
            tracing::warn!(resource = %self.kind.gvr(), "the controller is already started");
            return;
        };
        let _stopped = self.stopped.set_on_drop();
        let stop = stop.child_token();
        // Stops the reflector even if this future is dropped.
        let _stop_reflector = stop.clone().drop_guard();
        let queue = Arc::new(InformerQueue::new(options.queue, &self.store));
        let reflector = Reflector::new(
            Arc::clone(&self.kind),
            source,
            Arc::clone(&queue),
            Arc::clone(&self.status),
            options.reflector.clone(),
        );
        let reflector = reflector.with_transform(options.transform.take());
        let reflector = reflector.with_error_handler(options.watch_error_handler.take());
        let reflector = runtime.spawn(reflector.run(stop.clone()));

        let panic = self.process(&queue, handler, options, &stop).await;
        stop.cancel();
        let reflected = reflector.await;
        if let Some(panic) = panic.or_else(|| reflected.err()?.try_into_panic().ok()) {
            resume_unwind(panic);
        }
    }

    /// The only writer of the store. Ends when the queue is closed or the handler panics.
    async fn process(
        &self,
        queue: &InformerQueue<K::Object>,
        handler: Box<dyn EventHandler<K::Object>>,
        options: ControllerOptions<K::Object>,
        stop: &CancellationToken,
    ) -> Option<Panic> {
        let mut resync = resync_timer(options.resync);
        let gathers_by_key = matches!(options.queue, QueueKind::DeltaFifo { .. });
        let mut consumer = Consumer { kind: &*self.kind, store: &self.store, handler, gathers_by_key };
        loop {
            let next = tokio::select! {
                biased;
                () = tick(&mut resync) => {
                    if self.status.is_watching() && options.should_resync.as_ref().is_none_or(|ask| ask()) {
                        queue.push(Delta::SyncAll);
                    }
                    restart(&mut resync);
                    continue;
                }
                next = queue.process_next(|batch| consumer.process(batch)) => next,
            };
            let mut delivery = next?;
            while let Some(panic) = delivery.panic.take() {
                let PanicPolicy::SkipAfter(pause) = options.panic_policy else {
                    return Some(panic);
                };
                tracing::error!(resource = %self.kind.gvr(), panic = panic_message(&panic),
                    "event handler panicked; skipping the change");
                stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                delivery.go_on(&mut *consumer.handler);
            }
            if delivery.synced {
                self.synced.set();
            }
            coop::consume_budget().await;
        }
    }

    /// Adds indices, even while the store is filled and in use.
    pub fn add_indexers(&self, indexers: Indexers<K::Object>) -> Result<(), IndexError> {
        if self.stopped.is_set() {
            return Err(IndexError::Stopped);
        }
        self.store.add_indexers(indexers)
    }

    /// The store, for reading.
    pub fn store(&self) -> Store<K::Object> {
        self.store.clone()
    }

    /// A lister over the store.
    pub fn lister(&self) -> Lister<K::Object> {
        Lister::new(self.store())
    }

    /// Whether the store contains the first list, and the handler has processed it.
    pub fn has_synced(&self) -> bool {
        self.synced.is_set()
    }

    /// Waits until [`Self::has_synced`]. Never returns if the controller stops before.
    pub async fn synced(&self) {
        self.synced.wait().await;
    }

    /// Whether the controller has run and stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_set()
    }

    /// Waits until the controller has run and stopped.
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
}

/// Applies batches to the store and passes the resulting changes to the handler.
struct Consumer<'a, K: Kind> {
    kind: &'a K,
    store: &'a Store<K::Object>,
    handler: Box<dyn EventHandler<K::Object>>,
    /// Whether a batch holds the changes of one object, which are applied one after another.
    gathers_by_key: bool,
}

impl<K: Kind> Consumer<'_, K> {
    fn process(&mut self, batch: Batch<K::Object>) -> Delivery<K::Object> {
        let (changes, initial) = (VecDeque::new(), batch.in_initial_list);
        let mut delivery = Delivery { changes, initial, synced: batch.synced, panic: None };
        if self.gathers_by_key {
            for delta in batch.deltas {
                self.apply(vec![delta], &mut delivery);
            }
        } else {
            self.apply(batch.deltas, &mut delivery);
        }
        delivery
    }

    fn apply(&mut self, deltas: Vec<Delta<K::Object>>, delivery: &mut Delivery<K::Object>) {
        delivery.changes.extend(self.store.apply(self.kind, deltas));
        // After a panic, the rest of the batch follows the pause. The queue does not wait.
        if delivery.panic.is_none() {
            delivery.go_on(&mut *self.handler);
        }
    }
}

/// The changes of a batch that the handler has not processed yet.
struct Delivery<T> {
    changes: VecDeque<StoreChange<T>>,
    initial: bool,
    synced: bool,
    panic: Option<Panic>,
}

impl<T: 'static> Delivery<T> {
    /// Delivers until the end or the first panic. The change that caused the panic is lost.
    fn go_on(&mut self, handler: &mut dyn EventHandler<T>) {
        while let Some(change) = self.changes.pop_front() {
            // After a panic, the handler is used again only if its owner chose `SkipAfter`.
            let outcome = catch_unwind(AssertUnwindSafe(|| match change {
                StoreChange::Added(object) => handler.on_add(&object, self.initial),
                StoreChange::Updated(old, new) => handler.on_update(&old, &new),
                StoreChange::Deleted(deleted) => handler.on_delete(&deleted),
            }));
            if let Err(panic) = outcome {
                self.panic = Some(panic);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;

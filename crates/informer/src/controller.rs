//! The private informer: a reflector, a store, and one handler that is called in line.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::coop;
use tokio_util::sync::CancellationToken;

use crate::delta::{Batch, Delta, Queue};
use crate::handler::EventHandler;
use crate::kind::Kind;
use crate::latch::Latch;
use crate::list_watch::ListerWatcher;
use crate::listener::{Panic, PanicPolicy, panic_message};
use crate::lister::Lister;
use crate::queue::{InformerQueue, QueueKind};
use crate::reflector::{Reflector, ReflectorOptions, ReflectorStatus, Transform, WatchErrorHandler};
use crate::shared::{restart, resync_timer, tick};
use crate::store::{Change, IndexError, Indexers, Store};

/// Whether a resync that is due shall take place.
pub type ShouldResync = Arc<dyn Fn() -> bool + Send + Sync>;

/// How a [`Controller`] is made. client-go's `Config`, save that objects are processed in one way only: into
/// the store, then to the handler. There is no `RetryOnError` any more, here as there: nothing can fail.
pub struct ControllerOptions<T> {
    /// How often the handler is shown everything again; zero is never.
    pub resync: Duration,
    /// Is asked each time a resync is due; without it they all take place.
    pub should_resync: Option<ShouldResync>,
    /// Indices of the store; more can be added later.
    pub indexers: Indexers<T>,
    /// How to list and watch.
    pub reflector: ReflectorOptions,
    /// The queue between the reflector and the store.
    pub queue: QueueKind,
    /// What is done to every object before it is stored. It must leave the object's key as it is.
    pub transform: Option<Transform<T>>,
    /// Who is told when a list fails or a watch cannot be opened, in place of the log.
    pub watch_error_handler: Option<WatchErrorHandler>,
    /// What happens when the handler panics. client-go, told to tolerate panics, goes on after one second.
    pub panic_policy: PanicPolicy,
}

// Derived, this would ask for `T: Default`.
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

/// A private informer: keeps a store of its own in step with the server, and calls one handler in line.
///
/// Same as client-go's `NewInformer`, `NewIndexerInformer` and their variants, and not related to
/// `kube::runtime::Controller`. With a [`SharedInformer`](crate::SharedInformer) a list, a watch and a copy of
/// all objects serve any number of handlers, so prefer that; this is for an informer that is nobody else's
/// business. The differences for the handler:
///
/// * It runs in the informer's own task, between one batch of changes and the next. While it hears of a change
///   the store has that change, and at most the others of its batch. A slow handler holds up the store.
/// * It hears of every update, also of those without a new resource version: after a relist, and at each
///   resync.
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
/// let options =
///     ControllerOptions { queue: QueueKind::DeltaFifo { replaced: true }, ..ControllerOptions::default() };
/// let controller = Controller::new(kind, source, handler, options);
/// let pods = controller.store();
/// tokio::spawn(Arc::clone(&controller).run(CancellationToken::new()));
/// controller.synced().await;
/// println!("{} pods", pods.len());
/// # }
/// ```
///
/// client-go's `SharedInformer.GetController` has no counterpart. The controller that it returns has not run
/// anything for long; what else it can be asked are methods of `SharedInformer` here.
pub struct Controller<K: Kind> {
    kind: Arc<K>,
    store: Store<K::Object>,
    status: Arc<ReflectorStatus>,
    synced: Latch,
    stopped: Latch,
    setup: Mutex<Option<Setup<K>>>,
}

/// What `run` takes over once and for all.
struct Setup<K: Kind> {
    source: Arc<dyn ListerWatcher<K>>,
    handler: Box<dyn EventHandler<K::Object>>,
    options: ControllerOptions<K::Object>,
}

impl<K: Kind> Controller<K> {
    /// An informer that does nothing before [`Self::run`].
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

    /// Runs until `stop` is cancelled and the handler has seen what had been read by then. A controller runs
    /// once: another call returns at once.
    ///
    /// # Panics
    ///
    /// With the panic of the handler if the policy is to propagate it, or of a transform, after stopping.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let Some(Setup { source, handler, mut options }) = self.setup.lock().take() else {
            tracing::warn!(resource = %self.kind.gvr(), "the controller has been started already");
            return;
        };
        let _stopped = self.stopped.set_on_drop();
        let stop = stop.child_token();
        // In case this future is dropped: the reflector may not outlive it.
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
        let reflector = tokio::spawn(reflector.run(stop.clone()));

        let panic = self.process(&queue, handler, options, &stop).await;
        stop.cancel();
        let reflected = reflector.await;
        if let Some(panic) = panic.or_else(|| reflected.err()?.try_into_panic().ok()) {
            resume_unwind(panic);
        }
    }

    /// The single writer of the store. Ends with the queue, or with the handler's panic.
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
                    if options.should_resync.as_ref().is_none_or(|ask| ask()) {
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

    /// Adds indices, also to a store that is filled and in use.
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

    /// Whether the store holds the whole first list, and the handler has been told of it.
    pub fn has_synced(&self) -> bool {
        self.synced.is_set()
    }

    /// Waits until [`Self::has_synced`]; for ever if the controller is stopped before that.
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

    /// The last resource version that was read from the server, bookmarks included; empty before the first.
    pub fn last_sync_resource_version(&self) -> String {
        self.status.version()
    }

    /// What keeps the controller from listing or watching, if anything does.
    pub fn last_error(&self) -> Option<String> {
        self.status.last_error()
    }

    /// How many objects were skipped because they could not be decoded.
    pub fn undecodable(&self) -> u64 {
        self.status.undecodable()
    }
}

/// Takes batches to the store, and the changes that they make to the handler.
struct Consumer<'a, K: Kind> {
    kind: &'a K,
    store: &'a Store<K::Object>,
    handler: Box<dyn EventHandler<K::Object>>,
    /// Batches are the changes of one object, which become visible one after another.
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
        // After a panic comes a pause, and the rest of the batch after that. The queue does not wait.
        if delivery.panic.is_none() {
            delivery.go_on(&mut *self.handler);
        }
    }
}

/// What the handler is still to be told of a batch.
struct Delivery<T> {
    changes: VecDeque<Change<T>>,
    initial: bool,
    synced: bool,
    panic: Option<Panic>,
}

impl<T: 'static> Delivery<T> {
    /// Up to the end, or to the first panic. The change that caused it is lost.
    fn go_on(&mut self, handler: &mut dyn EventHandler<T>) {
        while let Some(change) = self.changes.pop_front() {
            // The handler is not used again after a panic unless its owner chose so with `SkipAfter`.
            let told = catch_unwind(AssertUnwindSafe(|| match change {
                Change::Added(object) => handler.on_add(&object, self.initial),
                Change::Updated(old, new) => handler.on_update(&old, &new),
                Change::Deleted(deleted) => handler.on_delete(&deleted),
            }));
            if let Err(panic) = told {
                self.panic = Some(panic);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;

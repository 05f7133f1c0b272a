//! The factory: one informer per resource, with a common start and stop.

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::failure::FailedInformer;
use crate::generic::GenericInformer;
use crate::informer_name::{InformerIdentity, InformerName};
use crate::kind::{GroupVersionResource, Kind, Typed};
use crate::kube_list_watch::{KubeListWatch, Selectors};
use crate::shared::{InformerOptions, SharedInformer};
use crate::store::{Indexers, namespace_indexer};

mod erased;
mod sync_result;

use erased::AnyInformer;
pub use sync_result::{SyncError, SyncFailure, SyncResult};

type Tweak = Arc<dyn Fn(&mut Selectors) + Send + Sync>;

/// Configures a factory. The order of settings does not matter. The last value of a setting wins,
/// except for [`custom_resync`](Self::custom_resync) and [`known_type`](Self::known_type), which
/// accumulate.
pub struct FactoryBuilder {
    client: Client,
    namespace: Option<String>,
    default_resync: Duration,
    custom_resync: BTreeMap<GroupVersionResource, Duration>,
    tweak: Option<Tweak>,
    watch_list: bool,
    name: Option<InformerName>,
    known_types: BTreeMap<GroupVersionResource, fn(&SharedInformerFactory) -> GenericInformer>,
}

/// The factory knows no type for the resource.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no type is registered for {0}: call FactoryBuilder::known_type, or use a DynamicInformerFactory")]
pub struct UnknownResourceError(pub GroupVersionResource);

impl FactoryBuilder {
    /// Limits informers of namespaced resources to one namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The default resync period of handlers. Zero, the default, disables resyncs.
    pub fn default_resync(mut self, period: Duration) -> Self {
        self.default_resync = period;
        self
    }

    /// The resync period for one resource.
    pub fn custom_resync(mut self, resource: GroupVersionResource, period: Duration) -> Self {
        self.custom_resync.insert(resource, period);
        self
    }

    /// Changes the selectors of every list and watch.
    pub fn tweak(mut self, tweak: impl Fn(&mut Selectors) + Send + Sync + 'static) -> Self {
        self.tweak = Some(Arc::new(tweak));
        self
    }

    /// Whether to start with a watch that sends initial events instead of a list; see
    /// [`KubeListWatch::watch_list`]. Enabled by default.
    pub fn watch_list(mut self, on: bool) -> Self {
        self.watch_list = on;
        self
    }

    /// The name of this factory's informers in metrics. The factory's shutdown releases it.
    pub fn informer_name(mut self, name: InformerName) -> Self {
        self.name = Some(name);
        self
    }

    /// Registers the type of a resource's objects for [`SharedInformerFactory::for_resource`]. Only
    /// registered types are compiled in.
    pub fn known_type<T>(mut self) -> Self
    where
        T: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let resource = Typed::<T>::new().gvr().clone();
        self.known_types
            .insert(resource, |factory| GenericInformer::new(factory.informer(Typed::<T>::new())));
        self
    }

    /// Builds the factory.
    pub fn build(self) -> SharedInformerFactory {
        SharedInformerFactory {
            settings: self,
            state: Mutex::new(State { informers: HashMap::new(), shut_down: false }),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            failure: watch::Sender::new(None),
        }
    }
}

/// What a factory provides to build an informer.
#[non_exhaustive]
pub struct InformerParts<K: Kind> {
    /// The descriptor.
    pub kind: Arc<K>,
    /// Lists and watches with the factory's settings. Selectors can still be added.
    pub list_watch: KubeListWatch<K>,
    /// The factory's resync period for this resource.
    pub resync: Duration,
    /// The informer's identity in metrics; none unless the factory has a name.
    pub identity: InformerIdentity,
}

impl<K: Kind> InformerParts<K> {
    /// An informer with these indices and default options.
    pub fn build(self, indexers: Indexers<K::Object>) -> Arc<SharedInformer<K>> {
        let Self { resync, identity, .. } = self;
        let options = InformerOptions { resync, indexers, identity, ..InformerOptions::default() };
        SharedInformer::new(self.kind, self.list_watch, options)
    }
}

/// Creates one informer per resource, and starts, awaits and stops them together.
pub struct SharedInformerFactory {
    settings: FactoryBuilder,
    state: Mutex<State>,
    tasks: TaskTracker,
    stop: CancellationToken,
    failure: watch::Sender<Option<FailedInformer>>,
}

struct State {
    informers: HashMap<(TypeId, GroupVersionResource), Entry>,
    shut_down: bool,
}

struct Entry {
    informer: Arc<dyn AnyInformer>,
    started: bool,
}

impl SharedInformerFactory {
    /// Configures a factory whose informers use this client. The client should not retry; see
    /// [`KubeListWatch`].
    pub fn builder(client: Client) -> FactoryBuilder {
        FactoryBuilder {
            client,
            namespace: None,
            default_resync: Duration::ZERO,
            custom_resync: BTreeMap::new(),
            tweak: None,
            watch_list: true,
            name: None,
            known_types: BTreeMap::new(),
        }
    }

    /// A factory for all namespaces, without resyncs.
    pub fn new(client: Client) -> Self {
        Self::builder(client).build()
    }

    /// The informer of a resource. The first call creates it with `make`. Later calls for the same
    /// descriptor type and resource return the same informer and drop their arguments.
    ///
    /// `make` runs under the factory's lock and must not use the factory.
    pub fn informer_for<K: Kind>(
        &self,
        kind: Arc<K>,
        make: impl FnOnce(InformerParts<K>) -> Arc<SharedInformer<K>>,
    ) -> Arc<SharedInformer<K>> {
        let mut state = self.state.lock();
        let key = (TypeId::of::<K>(), kind.gvr().clone());
        let entry = state
            .informers
            .entry(key)
            .or_insert_with(|| Entry { informer: make(self.parts(kind)), started: false });
        let informer = Arc::clone(&entry.informer).as_any().downcast();
        informer.unwrap_or_else(|_| unreachable!("the key holds the type"))
    }

    /// The informer of a resource, with default options and the namespace index.
    pub fn informer<K: Kind>(&self, kind: K) -> Arc<SharedInformer<K>> {
        self.informer_of(Arc::new(kind))
    }

    pub(crate) fn informer_of<K: Kind>(&self, kind: Arc<K>) -> Arc<SharedInformer<K>> {
        self.informer_for(kind, |parts| {
            let namespaced = parts.kind.gvr().namespaced;
            parts.build(if namespaced { namespace_indexer() } else { Indexers::new() })
        })
    }

    /// The informer of a resource whose type the caller does not name; same as client-go's
    /// `ForResource`. It is the informer that [`Self::informer`] returns for that type, which must
    /// be [registered](FactoryBuilder::known_type).
    pub fn for_resource(
        &self,
        resource: &GroupVersionResource,
    ) -> Result<GenericInformer, UnknownResourceError> {
        let make = self.settings.known_types.get(resource);
        make.map(|make| make(self)).ok_or_else(|| UnknownResourceError(resource.clone()))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.settings.client
    }

    fn parts<K: Kind>(&self, kind: Arc<K>) -> InformerParts<K> {
        let settings = &self.settings;
        let mut list_watch = KubeListWatch::new(settings.client.clone(), Arc::clone(&kind))
            .namespace(settings.namespace.clone())
            .watch_list(settings.watch_list);
        if let Some(tweak) = &settings.tweak {
            list_watch = list_watch.tweak(|selectors| tweak(selectors));
        }
        let resync = settings.custom_resync.get(kind.gvr()).copied().unwrap_or(settings.default_resync);
        let name = settings.name.as_ref();
        let identity = name.map(|name| name.with_resource(kind.gvr().clone())).unwrap_or_default();
        InformerParts { kind, list_watch, resync, identity }
    }

    /// Starts the informers created so far that are not running yet, and returns immediately. Call
    /// it again for informers created later. They stop when `stop` is cancelled or on
    /// [`Self::shutdown`], after which nothing starts.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime, and then starts nothing.
    pub fn start(&self, stop: &CancellationToken) {
        let runtime = Handle::current();
        let mut state = self.state.lock();
        if state.shut_down {
            return;
        }
        for ((_, resource), entry) in &mut state.informers {
            if !std::mem::replace(&mut entry.started, true) {
                let own = self.stop.child_token();
                let run = Arc::clone(&entry.informer).run(own.clone());
                let run = stop_with(run, own, stop.clone());
                let (informer, resource) = (Arc::clone(&entry.informer), resource.clone());
                self.tasks.spawn_on(supervise(informer, run, resource, self.failure.clone()), &runtime);
            }
        }
    }

    /// Waits until the stores of all started informers contain their first list, `stop` is
    /// cancelled, or an informer fails.
    pub async fn wait_for_cache_sync(&self, stop: &CancellationToken) -> SyncResult {
        self.wait(stop, |informer| informer.synced()).await
    }

    /// Waits until the handlers of all started informers have processed their initial objects,
    /// `stop` is cancelled, or an informer fails. Synced stores do not imply it.
    pub async fn wait_for_handlers_sync(&self, stop: &CancellationToken) -> SyncResult {
        self.wait(stop, |informer| informer.handlers_synced()).await
    }

    async fn wait(
        &self,
        stop: &CancellationToken,
        synced: fn(&dyn AnyInformer) -> BoxFuture<'_, ()>,
    ) -> SyncResult {
        let started: Vec<_> = {
            let state = self.state.lock();
            let started = state.informers.iter().filter(|(_, entry)| entry.started);
            started.map(|((_, resource), entry)| (resource.clone(), Arc::clone(&entry.informer))).collect()
        };
        let waits = started.iter().map(|(_, informer)| async move {
            tokio::select! {
                biased;
                () = synced(&**informer) => true,
                () = stop.cancelled() => false,
                () = informer.stopped() => false,
                _ = self.failed() => false,
            }
        });
        let reached = join_all(waits).await;
        let mut result = SyncResult::default();
        for ((resource, informer), reached) in started.into_iter().zip(reached) {
            // An informer can fail after it has synced, while the others are awaited.
            let failure = informer.failure().map(|failure| failure.to_string());
            if reached && failure.is_none() {
                result.synced.push(resource);
            } else {
                let reason = failure.or_else(|| informer.last_error());
                result.failed.push(SyncFailure { resource, reason });
            }
        }
        result.synced.sort_unstable();
        result.failed.sort_unstable_by(|a, b| a.resource.cmp(&b.resource));
        result
    }

    /// Waits until an informer fails, and returns the first failure. Returns as soon as it happens;
    /// the handlers may still be catching up.
    ///
    /// The other informers continue, and the failed one's store becomes stale without notice. So
    /// every program should await this beside its work, and end.
    pub async fn failed(&self) -> FailedInformer {
        let mut failure = self.failure.subscribe();
        loop {
            if let Some(failure) = &*failure.borrow_and_update() {
                return failure.clone();
            }
            // The sender is a field of `self`, so it outlives this call.
            let _ = failure.changed().await;
        }
    }

    /// Stops all informers, and waits for them and their handlers to end. Can be called repeatedly
    /// and concurrently.
    pub async fn shutdown(&self) {
        self.state.lock().shut_down = true;
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        if let Some(name) = &self.settings.name {
            name.release();
        }
    }
}

/// Runs an informer, and announces its failure as soon as it happens.
async fn supervise(
    informer: Arc<dyn AnyInformer>,
    run: impl Future<Output = ()>,
    resource: GroupVersionResource,
    failed: watch::Sender<Option<FailedInformer>>,
) {
    // The informer itself has noted the panic that ends `run`.
    let mut run = pin!(AssertUnwindSafe(run).catch_unwind());
    let has_ended = tokio::select! {
        biased;
        _ = informer.failed() => false,
        _ = &mut run => true,
    };
    if let Some(failure) = informer.failure() {
        failed.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert_with(|| FailedInformer::new(resource, failure));
            is_first
        });
    }
    if !has_ended {
        let _ = run.await;
    }
}

/// Runs an informer that stops when its own token or `stop` is cancelled.
async fn stop_with(mut run: BoxFuture<'static, ()>, own: CancellationToken, stop: CancellationToken) {
    tokio::select! {
        () = &mut run => return,
        () = stop.cancelled() => own.cancel(),
    }
    run.await;
}

#[cfg(test)]
mod tests;

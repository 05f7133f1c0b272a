//! The whole content at every change.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::delta::{Delta, Queue};
use crate::kind::Kind;
use crate::latch::Latch;
use crate::list_watch::ListerWatcher;
use crate::reflector::{Reflector, ReflectorOptions, ReflectorStatus};
use crate::store::{Indexers, Store};

/// Keeps a store in step with the server, and at every change hands all that is in it to a closure.
///
/// For those who want the state and not its history. Same as client-go's `UndeltaStore` below a reflector: one
/// call for each added, updated or deleted object, and one for each list; none for bookmarks. The closure runs
/// in the reflector's task, after the store has the change.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::Node;
/// use kube_informers::{KubeListWatch, ReflectorOptions, Typed, UndeltaStore};
/// use tokio_util::sync::CancellationToken;
///
/// # async fn example(client: kube::Client) {
/// let kind = Arc::new(Typed::<Node>::new());
/// let source = KubeListWatch::new(client, Arc::clone(&kind));
/// let nodes = UndeltaStore::new(kind, source, ReflectorOptions::default(), |nodes| {
///     println!("{} nodes", nodes.len());
/// });
/// nodes.run(CancellationToken::new()).await;
/// # }
/// ```
pub struct UndeltaStore<K: Kind> {
    kind: Arc<K>,
    store: Store<K::Object>,
    status: Arc<ReflectorStatus>,
    synced: Latch,
    setup: Mutex<Option<Setup<K>>>,
}

type Push<T> = Box<dyn FnMut(Vec<Arc<T>>) + Send>;

/// What `run` takes over once and for all.
struct Setup<K: Kind> {
    source: Arc<dyn ListerWatcher<K>>,
    options: ReflectorOptions,
    push: Push<K::Object>,
}

impl<K: Kind> UndeltaStore<K> {
    /// A store that stays empty before [`Self::run`]. The order in which `push` is given objects is arbitrary.
    pub fn new(
        kind: Arc<K>,
        source: impl ListerWatcher<K>,
        options: ReflectorOptions,
        push: impl FnMut(Vec<Arc<K::Object>>) + Send + 'static,
    ) -> Arc<Self> {
        let setup = Setup { source: Arc::new(source), options, push: Box::new(push) };
        Arc::new(Self {
            store: Store::new(Arc::clone(&kind), Indexers::new()),
            kind,
            status: Arc::default(),
            synced: Latch::default(),
            setup: Mutex::new(Some(setup)),
        })
    }

    /// Runs until `stop` is cancelled, once: another call returns at once.
    ///
    /// # Panics
    ///
    /// With the panic of the closure.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let Some(Setup { source, options, push }) = self.setup.lock().take() else {
            tracing::warn!(resource = %self.kind.gvr(), "the store has been started already");
            return;
        };
        let sink = Sink {
            kind: Arc::clone(&self.kind),
            store: self.store.clone(),
            synced: self.synced.clone(),
            push: Mutex::new(push),
        };
        let (kind, status) = (Arc::clone(&self.kind), Arc::clone(&self.status));
        Reflector::new(kind, source, Arc::new(sink), status, options).run(stop).await;
    }

    /// The store, for reading.
    pub fn store(&self) -> Store<K::Object> {
        self.store.clone()
    }

    /// Whether the store holds the whole first list, and the closure has been given it.
    pub fn has_synced(&self) -> bool {
        self.synced.is_set()
    }

    /// Waits until [`Self::has_synced`].
    pub async fn synced(&self) {
        self.synced.wait().await;
    }

    /// The last resource version that was read from the server, bookmarks included; empty before the first.
    pub fn last_sync_resource_version(&self) -> String {
        self.status.version()
    }

    /// What keeps the store from being filled, if anything does.
    pub fn last_error(&self) -> Option<String> {
        self.status.last_error()
    }
}

/// Where the reflector's news end: there is no queue, and nobody else who writes.
struct Sink<K: Kind> {
    kind: Arc<K>,
    store: Store<K::Object>,
    synced: Latch,
    push: Mutex<Push<K::Object>>,
}

impl<K: Kind> Queue<K::Object> for Sink<K> {
    fn append(&self, delta: Delta<K::Object>) {
        let (is_list, is_bookmark) =
            (matches!(delta, Delta::ReplacedAll(_)), matches!(delta, Delta::Bookmark(_)));
        self.store.apply(&*self.kind, vec![delta]);
        if !is_bookmark {
            (self.push.lock())(self.store.list());
        }
        if is_list {
            self.synced.set();
        }
    }

    fn announce(&self) {}

    fn close(&self) {}
}

#[cfg(test)]
mod tests;

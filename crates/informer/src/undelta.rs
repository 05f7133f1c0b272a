//! A store that passes its whole content to a closure on every change.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::delta::{Delta, Queue};
use crate::kind::Kind;
use crate::latch::Latch;
use crate::list_watch::ListerWatcher;
use crate::reflector::{Reflector, ReflectorOptions, ReflectorStatus};
use crate::store::{Indexers, Store};

/// Keeps a store in sync with the server, and passes its whole content to a closure on every
/// change.
///
/// For consumers of the state instead of its changes. Same as client-go's `UndeltaStore` below a
/// reflector: one call per added, updated or deleted object, one per list, none for bookmarks. The
/// closure runs in the reflector's task, after the store contains the change.
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

/// What `run` consumes.
struct Setup<K: Kind> {
    source: Arc<dyn ListerWatcher<K>>,
    options: ReflectorOptions,
    push: Push<K::Object>,
}

impl<K: Kind> UndeltaStore<K> {
    /// A store that stays empty until [`Self::run`]. `push` receives the objects in arbitrary
    /// order.
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

    /// Runs until `stop` is cancelled. Runs once; further calls return immediately.
    ///
    /// # Panics
    ///
    /// With the panic of the closure.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let Some(Setup { source, options, push }) = self.setup.lock().take() else {
            tracing::warn!(resource = %self.kind.gvr(), "the store is already started");
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

    /// Whether the store contains the first list, and the closure has received it.
    pub fn has_synced(&self) -> bool {
        self.synced.is_set()
    }

    /// Waits until [`Self::has_synced`].
    pub async fn synced(&self) {
        self.synced.wait().await;
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
}

/// Receives the reflector's changes directly: there is no queue, and no other writer.
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

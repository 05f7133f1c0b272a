//! The informers, and handlers that pass their events to the scheduler.

mod objects;
mod stats;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use kube_informers::{
    AddHandlerError, Deleted, EventHandler, FailedInformer, FanOut, Filtering, HandlerOptions, Indexers,
    Registration, SharedInformer, SharedInformerFactory, Store, SyncResult,
};
use parking_lot::Mutex;
use supercargo_framework::{NodeRecord, PodInfo, Text};
use supercargo_scheduler::{Input, KnownObjects, Notification};
use tokio_util::sync::CancellationToken;

pub(crate) use self::objects::WantedResource;
pub(crate) use self::stats::InformerStats;
use supercargo_codec::{NodeKind, PodKind};
use supercargo_owner::owner::{Mailbox, Message};

/// Selects pods that have not finished. The server reports pods that finish as deleted.
const NON_TERMINAL: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Passes events to the scheduler.
struct Forward<T> {
    mailbox: Mailbox,
    input: fn(Notification<T>) -> Input,
}

impl<T: Send + Sync + 'static> EventHandler<T> for Forward<T> {
    fn on_add(&mut self, object: &Arc<T>, _is_in_initial_list: bool) {
        self.mailbox.send((self.input)(Notification::Added(Arc::clone(object))));
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        let (old, new) = (Arc::clone(old), Arc::clone(new));
        self.mailbox.send((self.input)(Notification::Updated { old, new }));
    }

    fn on_delete(&mut self, deleted: &Deleted<T>) {
        let last = match deleted {
            Deleted::Known(last) | Deleted::FinalStateUnknown { last: Some(last), .. } => last,
            // Without its last state the object was never in the store, so the scheduler does not
            // know it either.
            Deleted::FinalStateUnknown { last: None, .. } => return,
        };
        self.mailbox.send((self.input)(Notification::Deleted(Arc::clone(last))));
    }
}

/// Passes pods with a node to the cache.
fn cache_handler(mailbox: &Mailbox) -> impl EventHandler<PodInfo> {
    Filtering {
        filter: PodInfo::is_assigned,
        handler: Forward { mailbox: mailbox.clone(), input: Input::AssignedPod },
    }
}

/// Passes pods without a node to the queue. The scheduler itself filters by scheduler name, because
/// profiles may change.
fn queue_handler(mailbox: &Mailbox) -> impl EventHandler<PodInfo> {
    Filtering {
        filter: |pod: &PodInfo| !pod.is_assigned(),
        handler: Forward { mailbox: mailbox.clone(), input: Input::QueuedPod },
    }
}

fn node_handler(mailbox: &Mailbox) -> impl EventHandler<NodeRecord> {
    Forward { mailbox: mailbox.clone(), input: Input::Node }
}

/// Decoders of pods and nodes, without raw JSON.
pub(crate) fn kinds(protobuf: bool) -> (PodKind, NodeKind) {
    let no_annotations: [&str; 0] = [];
    (PodKind::new(no_annotations).protobuf(protobuf), NodeKind::new(no_annotations).protobuf(protobuf))
}

/// The stores of pods and nodes.
#[derive(Clone)]
pub(crate) struct Stores {
    pods: Store<PodInfo>,
    nodes: Store<NodeRecord>,
}

impl Stores {
    /// The nodes and pods, for comparison with the scheduler's cache.
    pub(crate) fn known(&self) -> KnownObjects {
        KnownObjects {
            nodes: self.nodes.list().iter().map(|node| Arc::clone(&node.name)).collect(),
            pods: self.pods.list().iter().map(|pod| pod.uid.clone()).collect(),
        }
    }
}

/// The informers of a scheduler.
pub(crate) struct Informers {
    /// Name of the server in logs.
    server: String,
    client: Client,
    factory: SharedInformerFactory,
    pods: Arc<SharedInformer<PodKind>>,
    nodes: Arc<SharedInformer<NodeKind>>,
    stop: CancellationToken,
    stats: InformerStats,
    /// Handlers of other kinds, by the resource name that plugins use.
    others: Mutex<BTreeMap<Text, Registration>>,
}

impl Informers {
    /// Creates the pod and node informers. Sends no request before [`start`](Self::start).
    pub(crate) fn new(
        server: &str,
        client: Client,
        mailbox: &Mailbox,
        kinds: (PodKind, NodeKind),
    ) -> Result<Self, AddHandlerError> {
        let informers = Self::without_handlers(server, client, kinds);
        // One registration feeds both, in this order: a pod that is bound enters the cache before
        // it leaves the queue.
        let pod_handlers = FanOut::new().then(cache_handler(mailbox)).then(queue_handler(mailbox));
        informers.pods.add_event_handler(pod_handlers, HandlerOptions::named("pods"))?;
        informers.nodes.add_event_handler(node_handler(mailbox), HandlerOptions::named("nodes"))?;
        Ok(informers)
    }

    fn without_handlers(server: &str, client: Client, (pods, nodes): (PodKind, NodeKind)) -> Self {
        let factory = SharedInformerFactory::new(client.clone());
        let pods = factory.informer_for(Arc::new(pods), |mut parts| {
            parts.list_watch = parts.list_watch.fields(NON_TERMINAL);
            // No index by namespace: nothing looks pods up by namespace.
            parts.build(Indexers::default())
        });
        let nodes = factory.informer_for(Arc::new(nodes), |parts| parts.build(Indexers::default()));
        let stats = InformerStats::new(&pods, &nodes);
        let (stop, others) = (CancellationToken::new(), Mutex::default());
        Self { server: server.to_owned(), client, factory, pods, nodes, stop, stats, others }
    }

    /// Metrics and sizes.
    pub(crate) fn stats(&self) -> InformerStats {
        self.stats.clone()
    }

    pub(crate) fn start(&self) {
        self.factory.start(&self.stop);
    }

    /// The stores of pods and nodes.
    pub(crate) fn stores(&self) -> Stores {
        Stores { pods: self.pods.store(), nodes: self.nodes.store() }
    }

    /// Resolves when an informer fails. The scheduler would miss changes from then on.
    pub(crate) async fn failed(&self) -> FailedInformer {
        self.factory.failed().await
    }

    /// Waits until all handlers have synced, or `give_up` is cancelled.
    pub(crate) async fn synced(&self, give_up: &CancellationToken) -> SyncResult {
        self.factory.wait_for_handlers_sync(give_up).await
    }

    /// Starts scheduling once all handlers have synced and then `leads` has resolved. Cancels
    /// `synced` in between. Returns early if `give_up` is cancelled.
    pub(crate) async fn begin_when_synced(
        &self,
        mailbox: &Mailbox,
        give_up: &CancellationToken,
        synced: &CancellationToken,
        leads: impl Future<Output = ()>,
    ) {
        if !self.synced(give_up).await.is_synced() {
            return;
        }
        synced.cancel();
        tracing::info!("informers and handlers have synced");
        if give_up.run_until_cancelled(leads).await.is_some() {
            // All existing objects are in the mailbox before this message.
            mailbox.post(Message::Start);
            tracing::info!("scheduling begins");
        }
    }

    /// Stops the informers and waits until all handlers have ended.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.factory.shutdown().await;
    }
}

/// Informers without an owner stop. Their handlers end later, for which
/// [`shut_down`](Informers::shut_down) waits.
impl Drop for Informers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests;

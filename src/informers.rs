//! The informers, and what their handlers tell the scheduler.

mod objects;
mod stats;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use kube_informers::{
    AddHandlerError, Deleted, EventHandler, FanOut, Filtering, HandlerOptions, Indexers, Registration,
    SharedInformer, SharedInformerFactory, Store, SyncResult,
};
use parking_lot::Mutex;
use supercargo_framework::{NodeRecord, PodInfo, Text};
use supercargo_scheduler::{Input, Known, Notification};
use tokio_util::sync::CancellationToken;

pub(crate) use self::stats::InformerStats;
use crate::owner::{Mailbox, Message};
use supercargo_codec::{NodeKind, PodKind};

/// Pods that have ended are no business of a scheduler's: the server says of them that they are gone.
const NON_TERMINAL: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Passes what a handler sees on to the scheduler.
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
            // Without its last state nobody can say what it was; the store never held it, so neither does the scheduler.
            Deleted::FinalStateUnknown { last: None, .. } => return,
        };
        self.mailbox.send((self.input)(Notification::Deleted(Arc::clone(last))));
    }
}

/// What tells the cache of pods with a node.
fn cache_handler(mailbox: &Mailbox) -> impl EventHandler<PodInfo> {
    Filtering {
        filter: PodInfo::is_assigned,
        handler: Forward { mailbox: mailbox.clone(), input: Input::AssignedPod },
    }
}

/// What tells the queue of pods without one. Which of them are its business the scheduler knows itself: its profiles may
/// change.
fn queue_handler(mailbox: &Mailbox) -> impl EventHandler<PodInfo> {
    Filtering {
        filter: |pod: &PodInfo| !pod.is_assigned(),
        handler: Forward { mailbox: mailbox.clone(), input: Input::QueuedPod },
    }
}

fn node_handler(mailbox: &Mailbox) -> impl EventHandler<NodeRecord> {
    Forward { mailbox: mailbox.clone(), input: Input::Node }
}

/// How pods and nodes are read, unless something wants them whole.
pub(crate) fn kinds(protobuf: bool) -> (PodKind, NodeKind) {
    let no_annotations: [&str; 0] = [];
    (PodKind::new(no_annotations).protobuf(protobuf), NodeKind::new(no_annotations).protobuf(protobuf))
}

/// What the informers of a scheduler hold.
#[derive(Clone)]
pub(crate) struct Stores {
    pods: Store<PodInfo>,
    nodes: Store<NodeRecord>,
}

impl Stores {
    /// The nodes and pods, to hold against what the scheduler knows.
    pub(crate) fn known(&self) -> Known {
        Known {
            nodes: self.nodes.list().iter().map(|node| Arc::clone(&node.name)).collect(),
            pods: self.pods.list().iter().map(|pod| pod.uid.clone()).collect(),
        }
    }
}

/// The informers of a scheduler.
pub(crate) struct Informers {
    client: Client,
    factory: SharedInformerFactory,
    pods: Arc<SharedInformer<PodKind>>,
    nodes: Arc<SharedInformer<NodeKind>>,
    stop: CancellationToken,
    stats: InformerStats,
    /// The handlers of other kinds, by the name by which plugins want them.
    others: Mutex<BTreeMap<Text, Registration>>,
}

impl Informers {
    /// Sets up the pod and the node informer. Nothing is asked of the server before [`start`](Self::start).
    pub(crate) fn new(
        client: Client,
        mailbox: &Mailbox,
        kinds: (PodKind, NodeKind),
    ) -> Result<Self, AddHandlerError> {
        let informers = Self::without_handlers(client, kinds);
        // One registration feeds both, in this order: when a pod is bound the cache has it before the queue lets go of it.
        let pod_handlers = FanOut::new().then(cache_handler(mailbox)).then(queue_handler(mailbox));
        informers.pods.add_event_handler(pod_handlers, HandlerOptions::named("pods"))?;
        informers.nodes.add_event_handler(node_handler(mailbox), HandlerOptions::named("nodes"))?;
        Ok(informers)
    }

    fn without_handlers(client: Client, (pods, nodes): (PodKind, NodeKind)) -> Self {
        let factory = SharedInformerFactory::new(client.clone());
        let pods = factory.informer_for(Arc::new(pods), |mut parts| {
            parts.list_watch = parts.list_watch.fields(NON_TERMINAL);
            // Nobody looks pods up by namespace here, so there is no index to keep.
            parts.build(Indexers::default())
        });
        let nodes = factory.informer_for(Arc::new(nodes), |parts| parts.build(Indexers::default()));
        let stats = InformerStats::new(&pods, &nodes);
        let (stop, others) = (CancellationToken::new(), Mutex::default());
        Self { client, factory, pods, nodes, stop, stats, others }
    }

    /// How they are doing, for metrics.
    pub(crate) fn stats(&self) -> InformerStats {
        self.stats.clone()
    }

    pub(crate) fn start(&self) {
        self.factory.start(&self.stop);
    }

    /// What the informers hold of nodes and pods, for as long as they do.
    pub(crate) fn stores(&self) -> Stores {
        Stores { pods: self.pods.store(), nodes: self.nodes.store() }
    }

    /// Resolves when an informer has broken down: the scheduler would go on without knowing.
    pub(crate) async fn failed(&self) -> String {
        self.factory.failed().await
    }

    /// Waits until every handler has seen what exists, or `give_up` is cancelled.
    pub(crate) async fn synced(&self, give_up: &CancellationToken) -> SyncResult {
        self.factory.wait_for_handlers_sync(give_up).await
    }

    /// Lets the scheduler begin once every handler has seen what exists, which cancels `synced`, and then `leads` has come, unless `give_up` is cancelled
    /// before that.
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
            // Everything that exists lies in the mailbox before this.
            mailbox.post(Message::Start);
            tracing::info!("scheduling begins");
        }
    }

    /// Stops watching and waits until every handler has ended.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.factory.shutdown().await;
    }
}

#[cfg(test)]
mod tests;

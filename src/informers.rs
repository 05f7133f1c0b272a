//! The informers, and what their handlers tell the scheduler.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use kube_informers::{
    AddHandlerError, Deleted, EventHandler, FanOut, Filtering, HandlerOptions, Indexers,
    SharedInformerFactory, SyncResult,
};
use supercargo_framework::{NodeRecord, PodInfo};
use supercargo_scheduler::{Input, Notification};
use tokio_util::sync::CancellationToken;

use crate::owner::Mailbox;
use crate::wire::{NodeKind, PodKind};

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

/// The informers of a scheduler.
pub(crate) struct Informers {
    factory: SharedInformerFactory,
    stop: CancellationToken,
}

impl Informers {
    /// Sets up the pod and the node informer. Nothing is asked of the server before [`start`](Self::start).
    pub(crate) fn new(
        client: Client,
        mailbox: &Mailbox,
        scheduler_names: BTreeSet<Arc<str>>,
        protobuf: bool,
    ) -> Result<Self, AddHandlerError> {
        let factory = SharedInformerFactory::new(client);
        let no_annotations: [&str; 0] = [];
        let pods =
            factory.informer_for(Arc::new(PodKind::new(no_annotations).protobuf(protobuf)), |mut parts| {
                parts.list_watch = parts.list_watch.fields(NON_TERMINAL);
                // Nobody looks pods up by namespace here, so there is no index to keep.
                parts.build(Indexers::default())
            });
        let nodes = factory
            .informer_for(Arc::new(NodeKind::new(no_annotations).protobuf(protobuf)), |parts| {
                parts.build(Indexers::default())
            });

        let responsible = move |pod: &PodInfo| scheduler_names.contains(&pod.spec.scheduler_name);
        // One registration feeds both, in this order: when a pod is bound the cache has it before the queue lets go of it.
        let pod_handlers = FanOut::new()
            .then(Filtering {
                filter: PodInfo::is_assigned,
                handler: Forward { mailbox: mailbox.clone(), input: Input::AssignedPod },
            })
            .then(Filtering {
                filter: move |pod: &PodInfo| !pod.is_assigned() && responsible(pod),
                handler: Forward { mailbox: mailbox.clone(), input: Input::QueuedPod },
            });
        pods.add_event_handler(pod_handlers, HandlerOptions::named("pods"))?;
        let node_handler = Forward::<NodeRecord> { mailbox: mailbox.clone(), input: Input::Node };
        nodes.add_event_handler(node_handler, HandlerOptions::named("nodes"))?;
        Ok(Self { factory, stop: CancellationToken::new() })
    }

    pub(crate) fn start(&self) {
        self.factory.start(&self.stop);
    }

    /// Resolves when an informer has broken down: the scheduler would go on without knowing.
    pub(crate) async fn failed(&self) -> String {
        self.factory.failed().await
    }

    /// Waits until every handler has seen what exists, or `give_up` is cancelled.
    pub(crate) async fn synced(&self, give_up: &CancellationToken) -> SyncResult {
        self.factory.wait_for_handlers_sync(give_up).await
    }

    /// Stops watching and waits until every handler has ended.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.factory.shutdown().await;
    }
}

//! Rings when the lease changes: an informer on the one lease.
//!
//! A candidate looks at the lease every now and then in any case; who hears the bell need not wait for that. So a lease that is given
//! up is taken at once, and one that is renewed is seen to be as soon as it is, which is where the wait for its end begins.

use std::sync::Arc;

use kube::Client;
use kube_informers::{
    GroupVersionResource, HandlerFuncs, HandlerOptions, InformerOptions, KubeListWatch, Metadata,
    SharedInformer,
};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::lease::LeaseName;

/// Silent once it is dropped.
pub(super) struct LeaseWatch {
    change: Arc<Notify>,
    _watching: Option<DropGuard>,
}

impl LeaseWatch {
    /// One that rings for this lease.
    pub(super) fn start(client: Client, lease: &LeaseName) -> Self {
        let change = Arc::new(Notify::new());
        let notify = || {
            let change = Arc::clone(&change);
            move || change.notify_one()
        };
        let (added, updated, deleted) = (notify(), notify(), notify());
        let handler = HandlerFuncs::new()
            .with_add(move |_, _| added())
            .with_update(move |_, _| updated())
            .with_delete(move |_| deleted());
        let kind =
            Arc::new(Metadata::new(GroupVersionResource::namespaced("coordination.k8s.io", "v1", "leases")));
        let source = KubeListWatch::new(client, Arc::clone(&kind))
            .namespace(Some(lease.namespace.clone()))
            .fields(format!("metadata.name={}", lease.name));
        let informer = SharedInformer::new(kind, source, InformerOptions::default());
        if let Err(error) = informer.add_event_handler(handler, HandlerOptions::named("lease")) {
            // Only an informer that has ended takes no handler. Without one we look now and then.
            tracing::warn!(%error, %lease, "cannot hear of changes of the lease");
            return Self { change, _watching: None };
        }
        let stop = CancellationToken::new();
        tokio::spawn(informer.run(stop.clone()));
        Self { change, _watching: Some(stop.drop_guard()) }
    }

    /// Waits for the next change, or for the first since it was last waited for.
    pub(super) async fn changed(&self) {
        self.change.notified().await;
    }
}

//! Watches the lease with an informer.
//!
//! Candidates also poll the lease. The watch only wakes them earlier: a released lease is taken at
//! once, and the wait for expiry begins at the actual renewal.

use std::sync::Arc;

use kube::Client;
use kube_informers::{
    GroupVersionResource, HandlerFuncs, HandlerOptions, InformerOptions, KubeListWatch, Metadata,
    SharedInformer,
};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::lease::LeaseName;

/// Watches the lease until dropped.
pub(super) struct LeaseWatch {
    change: Arc<Notify>,
    _watching: Option<DropGuard>,
}

impl LeaseWatch {
    /// Starts watching this lease.
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
            // Only a stopped informer rejects handlers. Polling continues without the watch.
            tracing::warn!(%error, %lease, "cannot watch the lease; polling only");
            return Self { change, _watching: None };
        }
        let stop = CancellationToken::new();
        tokio::spawn(informer.run(stop.clone()));
        Self { change, _watching: Some(stop.drop_guard()) }
    }

    /// Waits for a change since the last call.
    pub(super) async fn changed(&self) {
        self.change.notified().await;
    }
}

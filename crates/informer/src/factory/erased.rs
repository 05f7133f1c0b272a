//! An informer in its factory, without its type.

use std::any::Any;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::failure::InformerFailure;
use crate::kind::Kind;
use crate::shared::SharedInformer;

pub(super) trait AnyInformer: Send + Sync {
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()>;
    fn synced(&self) -> BoxFuture<'_, ()>;
    fn handlers_synced(&self) -> BoxFuture<'_, ()>;
    fn stopped(&self) -> BoxFuture<'_, ()>;
    fn failed(&self) -> BoxFuture<'_, InformerFailure>;
    fn failure(&self) -> Option<InformerFailure>;
    fn last_error(&self) -> Option<String>;
}

impl<K: Kind> AnyInformer for SharedInformer<K> {
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(SharedInformer::run(self, stop))
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        Box::pin(SharedInformer::synced(self))
    }

    fn handlers_synced(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            SharedInformer::synced(self).await;
            for registration in self.registrations() {
                // A handler that has been removed will never sync.
                tokio::select! {
                    () = registration.synced() => {}
                    () = registration.0.removed.cancelled() => {}
                }
            }
        })
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        Box::pin(SharedInformer::stopped(self))
    }

    fn failed(&self) -> BoxFuture<'_, InformerFailure> {
        Box::pin(SharedInformer::failed(self))
    }

    fn failure(&self) -> Option<InformerFailure> {
        SharedInformer::failure(self)
    }

    fn last_error(&self) -> Option<String> {
        SharedInformer::last_error(self)
    }
}

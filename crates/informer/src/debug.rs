//! `Debug` for types that hold closures, tasks or objects of any type: what identifies them, and
//! how they fare.

use std::fmt::{Debug, Formatter, Result};

use kube::Resource;

use crate::consistency_store::ConsistencyStore;
use crate::controller::{Controller, ControllerOptions};
use crate::dynamic_factory::DiscoveringFactory;
use crate::event_stream::EventStream;
use crate::factory::{FactoryBuilder, InformerParts, SharedInformerFactory};
use crate::generic::{GenericInformer, GenericLister};
use crate::handler::{FanOut, Filtering, HandlerFuncs};
use crate::kind::{GroupVersionResource, Kind, Typed};
use crate::kube_list_watch::KubeListWatch;
use crate::listener::Registration;
use crate::lister::{Lister, NamespaceLister};
use crate::protobuf::Protobuf;
use crate::shared::{InformerOptions, SharedInformer};
use crate::store::Store;
use crate::undelta::UndeltaStore;
use crate::wait::DoneChecker;
#[cfg(feature = "workqueue")]
use crate::workqueue::{
    ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter, Key, MaxOfRateLimiter, WorkQueue,
    WorkQueueBuilder,
};

macro_rules! debug {
    ($([$($generics:tt)*] $name:ident$(<$($argument:tt),*>)? |$it:ident| { $($field:ident: $value:expr),* })*) => {$(
        impl<$($generics)*> Debug for $name$(<$($argument),*>)? {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                let $it = self;
                let _ = $it;
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &$value))*.finish_non_exhaustive()
            }
        }
    )*};
}

debug! {
    [K: Kind] SharedInformer<K> |it| {
        resource: it.kind().gvr(), store: it.store(), has_synced: it.has_synced(),
        is_stopped: it.is_stopped(), failure: it.failure(), last_error: it.last_error()
    }
    [T] InformerOptions<T> |it| {
        resync: it.resync, indexers: it.indexers.keys(), reflector: it.reflector, queue: it.queue
    }
    [K: Kind] Controller<K> |it| {
        store: it.store(), has_synced: it.has_synced(), is_stopped: it.is_stopped(), last_error: it.last_error()
    }
    [T] ControllerOptions<T> |it| {
        resync: it.resync, indexers: it.indexers.keys(), reflector: it.reflector, queue: it.queue,
        panic_policy: it.panic_policy
    }
    [K: Kind] UndeltaStore<K> |it| { store: it.store(), has_synced: it.has_synced(), last_error: it.last_error() }
    [] Registration |it| {
        name: it.name(), has_synced: it.has_synced(), is_stopped: it.is_stopped(), pending: it.pending()
    }
    [T] EventStream<T> |it| { registration: it.registration() }
    [T] Store<T> |it| { objects: it.len(), resource_version: it.resource_version() }
    [T] Lister<T> |it| { }
    [T] NamespaceLister<T> |it| { }
    [] GenericInformer |it| { resource: it.resource(), has_synced: it.has_synced() }
    [] GenericLister |it| { }
    [] FactoryBuilder |it| { }
    [] SharedInformerFactory |it| { }
    [K: Kind] InformerParts<K> |it| { resource: it.kind.gvr(), resync: it.resync, identity: it.identity }
    [K] DiscoveringFactory<K> |it| { }
    [T] HandlerFuncs<T> |it| { }
    [T] FanOut<T> |it| { }
    [F, H: Debug] Filtering<F, H> |it| { handler: it.handler }
    [K: Resource<DynamicType = (), Scope: 'static>] Typed<K> |it| { resource: GroupVersionResource::of::<K>() }
    [O, M] Protobuf<O, M> |it| { resource: it.resource() }
    [K: Kind] KubeListWatch<K> |it| { resource: it.kind().gvr(), selectors: it.selectors() }
    [] ConsistencyStore |it| { }
    [] DoneChecker<'_> |it| { name: it.name() }
}

#[cfg(feature = "workqueue")]
debug! {
    [T: Key] WorkQueue<T> |it| { len: it.len(), is_shutting_down: it.is_shutting_down() }
    [T] WorkQueueBuilder<T> |it| { }
    [T] ItemExponentialFailureRateLimiter<T> |it| { }
    [T] ItemFastSlowRateLimiter<T> |it| { }
    [T] MaxOfRateLimiter<T> |it| { }
}

//! Shared informers for Kubernetes: a local, indexed copy of a resource that stays in sync with the
//! API server, and handlers that receive every change. The design is client-go's, on kube-rs'
//! client and types.
//!
//! ```text
//! API server ──list, watch──> Reflector ──deltas──> queue ──batches──> store ──changes──> handlers
//!                             (a task)                    (a task, the only writer)  (a task each)
//! ```
//!
//! * [`Kind`] describes the objects: [`Typed`] for types that `kube` knows statically, [`Dynamic`]
//!   for kinds known only at run time, [`Metadata`] for the metadata of any kind, [`Protobuf`] for
//!   objects decoded from protobuf, or your own descriptor for objects of any other form.
//! * [`SharedInformerFactory`] creates one [`SharedInformer`] per resource, starts them and waits
//!   for them.
//! * [`EventHandler`]s can be added to an informer at any time; [`Filtering`] and [`FanOut`]
//!   combine them.
//! * [`Store`] and [`Lister`] read objects from memory.
//! * [`QueueKind`] selects the queue between reflector and store, and so the order of changes
//!   after a list.
//! * [`Controller`] is a private informer with one synchronous handler. An [`UndeltaStore`] passes
//!   on its whole content on every change.
//! * [`workqueue::WorkQueue`] passes keys from handlers to workers.
//! * [`client_go`] lists client-go's mechanisms with their counterparts and tests.
//!
//! Optional features: `events` adds a recorder of Kubernetes events. `http2` makes
//! [`informer_client`] notice dead connections by pings, and offers such connections to clients of
//! your own. `runtime` adds bridges to `kube_runtime`. `testing` adds fake API servers and
//! recording handlers for tests under a paused clock. `workqueue`, the only default, adds the work
//! queues. Programs select the Kubernetes version of `k8s-openapi` and the TLS of `kube` by
//! features of these crates.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::Pod;
//! use kube_informers::{
//!     FanOut, Filtering, HandlerFuncs, HandlerOptions, InformerOptions, SharedInformer,
//!     SharedInformerFactory, Typed, informer_client_from,
//! };
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = informer_client_from(kube::Config::infer().await?)?;
//! let factory = SharedInformerFactory::new(client);
//! let pods = factory.informer_for(Typed::<Pod>::new().into(), |parts| {
//!     let running = parts.list_watch.fields("status.phase!=Succeeded,status.phase!=Failed");
//!     let options = InformerOptions::default().resync(parts.resync);
//!     SharedInformer::new(parts.kind, running, options)
//! });
//!
//! let assigned = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
//! let cache = HandlerFuncs::<Pod>::new().with_add(|pod, _| println!("assigned: {pod:?}"));
//! let queue = HandlerFuncs::<Pod>::new().with_add(|pod, _| println!("unassigned: {pod:?}"));
//! let both = FanOut::new()
//!     .then(Filtering { filter: assigned, handler: cache })
//!     .then(Filtering { filter: move |pod: &Pod| !assigned(pod), handler: queue });
//! pods.add_event_handler(both, HandlerOptions::named("pods"))?;
//!
//! let stop = CancellationToken::new();
//! factory.start(&stop);
//! factory.wait_for_cache_sync(&stop).await.into_result()?;
//! factory.wait_for_handlers_sync(&stop).await.into_result()?;
//! println!("{} pods", pods.store().len());
//! // Returns if a handler panics: the informer's store and handlers are stale from then on.
//! let failed = factory.failed().await;
//! factory.shutdown().await;
//! # Err(failed.into())
//! # }
//! ```
//!
//! Build the [`kube::Client`] for informers by [`informer_client_from`], which disables retries and
//! notices silent connections; see [`KubeListWatch`].

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]

mod backoff;
mod buffer;
mod client;
pub mod consistency_detector;
mod consistency_store;
mod controller;
mod debug;
mod delta;
mod delta_fifo;
mod discovery;
mod dynamic_factory;
mod event_stream;
#[cfg(feature = "events")]
pub mod events;
mod factory;
mod failure;
mod generic;
mod handler;
#[cfg(feature = "http2")]
pub mod http2;
mod informer_name;
mod json;
mod key;
mod kind;
mod kube_list_watch;
mod latch;
mod list_watch;
mod listener;
mod lister;
mod metadata;
mod metrics;
mod notification;
mod processor;
pub mod prometheus;
pub mod protobuf;
mod queue;
mod real_fifo;
mod reflector;
mod resource_version;
mod resync_period;
mod retry_window;
#[cfg(feature = "runtime")]
mod runtime;
mod selector;
mod shared;
mod store;
#[cfg(doc)]
#[doc = include_str!("../docs/client-go.md")]
pub mod client_go {}
#[cfg(feature = "testing")]
pub mod testing;
mod undelta;
mod wait;
#[cfg(feature = "workqueue")]
pub mod workqueue;

pub use backoff::BackoffPolicy;
pub use client::{ClientError, informer_client, informer_client_from, informer_config};
pub use consistency_store::{ConsistencyError, ConsistencyStore};
pub use controller::{Controller, ControllerOptions, ShouldResync};
pub use discovery::{Discovered, DiscoveryError, discover_kind, discover_resource};
pub use dynamic_factory::{
    DiscoveringFactory, DynamicInformerFactory, FromDiscovery, MetadataInformerFactory,
};
pub use event_stream::EventStream;
pub use factory::{
    FactoryBuilder, InformerParts, SharedInformerFactory, SyncError, SyncFailure, SyncResult,
    UnknownResourceError,
};
pub use failure::{FailedInformer, InformerFailure};
pub use generic::{GenericInformer, GenericLister, GenericObject};
pub use handler::{EventHandler, FanOut, Filtering, HandlerFuncs};
pub use informer_name::{InformerIdentity, InformerName, InformerNameError};
pub use key::{Deleted, KeyError, ObjectKey};
pub use kind::{Accept, ContentType, DecodeError, Dynamic, GroupVersionResource, Kind, Typed};
pub use kube_list_watch::{KubeListWatch, Selectors};
pub use list_watch::{
    ListOptions, ListWatchError, ListerWatcher, Page, Undecodable, VersionMatch, WatchEvent, WatchStream,
};
pub use listener::{HandlerOptions, PanicPolicy, Registration};
pub use lister::{Lister, NamespaceLister};
pub use metadata::Metadata;
pub use metrics::{HandlerMetrics, InformerMetrics, LATENCY_BUCKETS, LatencyHistogram, write_prometheus};
pub use notification::Notification;
pub use processor::AddHandlerError;
pub use protobuf::{Identified, Protobuf};
pub use queue::QueueKind;
pub use reflector::{ReflectorError, ReflectorOptions, Transform, UNREACHABLE_LOG_TARGET, WatchErrorHandler};
pub use resource_version::{ResourceVersionError, compare_rv};
pub use resync_period::{jitter, resync_period};
pub use selector::{Labelled, Labels, Selector, SelectorError};
pub use shared::{InformerOptions, SettingError, SharedInformer};
pub use store::{IndexError, IndexFn, Indexers, NAMESPACE_INDEX, Store, namespace_indexer};
pub use undelta::UndeltaStore;
pub use wait::{DoneChecker, WaitError, wait_for};

// Foreign crates and types in signatures, in the versions that this crate uses.
#[doc(no_inline)]
pub use futures::future::BoxFuture;
#[doc(no_inline)]
pub use futures::stream::{BoxStream, Stream};
#[cfg(feature = "http2")]
#[doc(no_inline)]
pub use hyper_util;
#[doc(no_inline)]
pub use tokio_util::sync::CancellationToken;
#[doc(no_inline)]
pub use {http, kube, prost, serde_json};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

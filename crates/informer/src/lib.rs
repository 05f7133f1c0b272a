//! Shared informers for Kubernetes: a local, indexed copy of a resource that is kept in step with
//! the API server, and handlers that are told of every change. client-go's mechanism, on kube-rs'
//! client and types.
//!
//! ```text
//!  API server ──list, watch──> Reflector ──deltas──> queue ──batches──> store ──changes──> handlers
//!                              (a task)                     (a task, its only writer)     (a task each)
//! ```
//!
//! * [`Kind`] describes the objects: [`Typed`] for types that `kube` knows, [`Dynamic`] for those
//!   known only at run time, [`Metadata`] for objects of which only the metadata matters,
//!   [`Protobuf`] for objects that are read from protobuf, or a descriptor of your own for objects
//!   in a form of your own.
//! * [`SharedInformerFactory`] makes one [`SharedInformer`] per resource, starts them and waits for
//!   them.
//! * [`EventHandler`]s are added to an informer at any time; [`Filtering`] and [`FanOut`] combine
//!   them.
//! * [`Store`] and [`Lister`] answer reads from memory.
//! * [`QueueKind`] chooses what lies between reflector and store, and so in which order a list
//!   comes to notice.
//! * [`Controller`] is an informer of one's own, with one handler in line; an [`UndeltaStore`]
//!   hands over its whole content at every change.
//! * [`workqueue::WorkQueue`] takes the keys that handlers put on it to workers; the feature
//!   `events` adds a recorder of events.
//! * [`client_go`] has client-go's mechanisms one by one: what stands for them here, and the tests
//!   that show it.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::Pod;
//! use kube_informers::{
//!     FanOut, Filtering, HandlerFuncs, HandlerOptions, InformerOptions, SharedInformer, SharedInformerFactory, Typed,
//! };
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = kube::Config::infer().await?;
//! config.default_retry = false;
//! let factory = SharedInformerFactory::new(kube::Client::try_from(config)?);
//! let pods = factory.informer_for(Typed::<Pod>::new().into(), |parts| {
//!     let running = parts.list_watch.fields("status.phase!=Succeeded,status.phase!=Failed");
//!     SharedInformer::new(parts.kind, running, InformerOptions { resync: parts.resync, ..Default::default() })
//! });
//!
//! let assigned = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
//! let cache = HandlerFuncs::<Pod>::new().with_add(|pod, _| println!("on a node: {:?}", pod.metadata.name));
//! let queue = HandlerFuncs::<Pod>::new().with_add(|pod, _| println!("to be placed: {:?}", pod.metadata.name));
//! let both = FanOut::new()
//!     .then(Filtering { filter: assigned, handler: cache })
//!     .then(Filtering { filter: move |pod: &Pod| !assigned(pod), handler: queue });
//! pods.add_event_handler(both, HandlerOptions::named("pods"))?;
//!
//! let stop = CancellationToken::new();
//! factory.start(&stop);
//! for result in [factory.wait_for_cache_sync(&stop).await, factory.wait_for_handlers_sync(&stop).await] {
//!     if let Some(failure) = result.failed.first() {
//!         return Err(format!("{} has not synced: {:?}", failure.resource, failure.reason).into());
//!     }
//! }
//! println!("{} pods", pods.store().len());
//! factory.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Build the [`kube::Client`] for informers with `default_retry = false`, as [`informer_client`]
//! does; see [`KubeListWatch`].

mod backoff;
mod client;
pub mod consistency_detector;
mod consistency_store;
mod controller;
mod delta;
mod delta_fifo;
mod discovery;
mod dynamic_factory;
mod event_stream;
#[cfg(feature = "events")]
pub mod events;
mod factory;
mod generic;
mod handler;
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
pub mod workqueue;

pub use backoff::BackoffPolicy;
pub use client::{ClientError, informer_client, informer_config};
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
pub use reflector::{ReflectorError, ReflectorOptions, Transform, WatchErrorHandler};
pub use resource_version::{ResourceVersionError, compare_rv};
pub use resync_period::{jitter, resync_period};
pub use selector::{Labelled, Labels, Selector, SelectorError};
pub use shared::{InformerOptions, SettingError, SharedInformer};
pub use store::{IndexError, IndexFn, Indexers, NAMESPACE_INDEX, Store, namespace_indexer};
pub use undelta::UndeltaStore;
pub use wait::{DoneChecker, WaitError, wait_for};

/// What the README shows must compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

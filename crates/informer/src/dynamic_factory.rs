//! Factories of informers for resources whose types are known only at run time.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::GroupVersionKind;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::discovery::{Discovered, DiscoveryError, discover_kind, discover_resource};
use crate::factory::{FactoryBuilder, SharedInformerFactory, SyncResult};
use crate::failure::FailedInformer;
use crate::kind::{Dynamic, GroupVersionResource, Kind};
use crate::metadata::Metadata;
use crate::shared::SharedInformer;

/// A descriptor that discovery can provide.
pub trait FromDiscovery: Kind + Sized {
    /// Builds the descriptor.
    fn from_discovery(discovered: &Discovered) -> Self;
}

impl FromDiscovery for Dynamic {
    fn from_discovery(discovered: &Discovered) -> Self {
        let resource = discovered.api_resource();
        if discovered.resource.namespaced { Self::namespaced(resource) } else { Self::cluster(resource) }
    }
}

impl FromDiscovery for Metadata {
    fn from_discovery(discovered: &Discovered) -> Self {
        Self::new(discovered.resource.clone())
    }
}

/// A factory of informers of any resource, including custom resources. Same as client-go's
/// `DynamicSharedInformerFactory`.
pub type DynamicInformerFactory = DiscoveringFactory<Dynamic>;

/// A factory of metadata-only informers of any resource, at a fraction of the memory. Same as
/// client-go's `metadatainformer`.
pub type MetadataInformerFactory = DiscoveringFactory<Metadata>;

/// A factory that discovers resources. Use it as [`DynamicInformerFactory`] or
/// [`MetadataInformerFactory`].
///
/// A resource has one informer, whether it is requested by plural or by kind. Successful discovery
/// is cached. Where client-go accepts a nil factory, pass an `Option` of a reference.
///
/// ```no_run
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use kube::core::GroupVersionKind;
/// use kube_informers::{DynamicInformerFactory, SharedInformerFactory};
/// use tokio_util::sync::CancellationToken;
///
/// let factory = DynamicInformerFactory::new(SharedInformerFactory::builder(client).namespace("shop"));
/// let widgets = factory.for_resource("example.dev", "v1", "widgets").await?;
/// let gadgets = factory.for_kind(&GroupVersionKind::gvk("example.dev", "v1", "Gadget")).await?;
/// let stop = CancellationToken::new();
/// factory.start(&stop);
/// factory.wait_for_cache_sync(&stop).await.into_result()?;
/// println!("{} widgets, {} gadgets", widgets.store().len(), gadgets.store().len());
/// # Ok(())
/// # }
/// ```
pub struct DiscoveringFactory<K> {
    factory: SharedInformerFactory,
    known: Mutex<BTreeMap<GroupVersionResource, (String, Arc<K>)>>,
}

impl<K: FromDiscovery> DiscoveringFactory<K> {
    /// A factory with these settings. Informers of namespaced resources have the namespace index.
    pub fn new(settings: FactoryBuilder) -> Self {
        Self { factory: settings.build(), known: Mutex::default() }
    }

    /// The informer of a resource, by its group (empty for the core group), version and plural.
    pub async fn for_resource(
        &self,
        group: &str,
        version: &str,
        resource: &str,
    ) -> Result<Arc<SharedInformer<K>>, DiscoveryError> {
        let is_it = |known: &GroupVersionResource, _: &str| {
            known.group == group && known.version == version && known.resource == resource
        };
        if let Some(kind) = self.recall(is_it) {
            return Ok(self.factory.informer_of(kind));
        }
        let discovered = discover_resource(self.factory.client(), group, version, resource).await?;
        Ok(self.factory.informer_of(self.remember(discovered.watchable()?)))
    }

    /// The informer of a kind.
    pub async fn for_kind(&self, kind: &GroupVersionKind) -> Result<Arc<SharedInformer<K>>, DiscoveryError> {
        let is_it = |known: &GroupVersionResource, name: &str| {
            known.group == kind.group && known.version == kind.version && name == kind.kind
        };
        if let Some(kind) = self.recall(is_it) {
            return Ok(self.factory.informer_of(kind));
        }
        let discovered = discover_kind(self.factory.client(), kind).await?;
        Ok(self.factory.informer_of(self.remember(discovered.watchable()?)))
    }

    fn recall(&self, is_it: impl Fn(&GroupVersionResource, &str) -> bool) -> Option<Arc<K>> {
        let known = self.known.lock();
        let found = known.iter().find(|(resource, (name, _))| is_it(resource, name));
        found.map(|(_, (_, kind))| Arc::clone(kind))
    }

    /// Concurrent callers may both have discovered the resource. The first descriptor stays.
    fn remember(&self, discovered: Discovered) -> Arc<K> {
        let kind = Arc::new(K::from_discovery(&discovered));
        let mut known = self.known.lock();
        let (_, kind) = known.entry(discovered.resource).or_insert((discovered.kind, kind));
        Arc::clone(kind)
    }

    /// The underlying factory, for informers of static kinds that start and stop with the others.
    pub fn informers(&self) -> &SharedInformerFactory {
        &self.factory
    }

    /// Starts the informers created so far; see [`SharedInformerFactory::start`].
    pub fn start(&self, stop: &CancellationToken) {
        self.factory.start(stop);
    }

    /// Waits for the stores of started informers; see
    /// [`SharedInformerFactory::wait_for_cache_sync`].
    pub async fn wait_for_cache_sync(&self, stop: &CancellationToken) -> SyncResult {
        self.factory.wait_for_cache_sync(stop).await
    }

    /// Waits for the handlers of started informers; see
    /// [`SharedInformerFactory::wait_for_handlers_sync`].
    pub async fn wait_for_handlers_sync(&self, stop: &CancellationToken) -> SyncResult {
        self.factory.wait_for_handlers_sync(stop).await
    }

    /// Waits until an informer fails; see [`SharedInformerFactory::failed`].
    pub async fn failed(&self) -> FailedInformer {
        self.factory.failed().await
    }

    /// Stops all informers, and waits for them and their handlers to end.
    pub async fn shutdown(&self) {
        self.factory.shutdown().await;
    }
}

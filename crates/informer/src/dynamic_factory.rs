//! Factories of informers for resources whose types the program does not know.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::GroupVersionKind;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::discovery::{Discovered, DiscoveryError, discover_kind, discover_resource};
use crate::factory::{FactoryBuilder, SharedInformerFactory, SyncResult};
use crate::kind::{Dynamic, GroupVersionResource, Kind};
use crate::metadata::Metadata;
use crate::shared::SharedInformer;

/// A descriptor that can be made of what a server says about a resource.
pub trait FromDiscovery: Kind + Sized {
    /// The descriptor.
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

/// Informers of whole objects of any resource, custom ones included; same as client-go's
/// `DynamicSharedInformerFactory`.
pub type DynamicInformerFactory = DiscoveringFactory<Dynamic>;

/// Informers of nothing but the metadata of objects of any resource; same as client-go's `metadatainformer`. They
/// cost a fraction of the memory.
pub type MetadataInformerFactory = DiscoveringFactory<Metadata>;

/// A factory that asks the server about resources; by its names [`DynamicInformerFactory`] and
/// [`MetadataInformerFactory`].
///
/// One resource has one informer, whether it was asked for by its plural or its kind. A server is asked once about
/// each, and again only if it did not know. Where client-go passes a factory that may be nil, pass an `Option` of a
/// reference: there is no factory that does nothing.
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
    /// A factory with these settings. Informers have the namespace index where there are namespaces.
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

    /// Two callers may have asked the server at once; the first descriptor stays.
    fn remember(&self, discovered: Discovered) -> Arc<K> {
        let kind = Arc::new(K::from_discovery(&discovered));
        let mut known = self.known.lock();
        let (_, kind) = known.entry(discovered.resource).or_insert((discovered.kind, kind));
        Arc::clone(kind)
    }

    /// The factory beneath: for informers of kinds that are known, which start and stop with the others.
    pub fn informers(&self) -> &SharedInformerFactory {
        &self.factory
    }

    /// Starts the informers that were made so far; see [`SharedInformerFactory::start`].
    pub fn start(&self, stop: &CancellationToken) {
        self.factory.start(stop);
    }

    /// Waits for the started informers' stores; see [`SharedInformerFactory::wait_for_cache_sync`].
    pub async fn wait_for_cache_sync(&self, stop: &CancellationToken) -> SyncResult {
        self.factory.wait_for_cache_sync(stop).await
    }

    /// Waits for the started informers' handlers; see [`SharedInformerFactory::wait_for_handlers_sync`].
    pub async fn wait_for_handlers_sync(&self, stop: &CancellationToken) -> SyncResult {
        self.factory.wait_for_handlers_sync(stop).await
    }

    /// Stops all informers, and waits until they and their handlers have ended.
    pub async fn shutdown(&self) {
        self.factory.shutdown().await;
    }
}

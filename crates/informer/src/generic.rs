//! Informers without the type of their objects, for code that handles any resource.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Resource;
use kube::core::ObjectMeta;

use crate::handler::EventHandler;
use crate::key::{Deleted, ObjectKey};
use crate::kind::{GroupVersionResource, Kind};
use crate::listener::{HandlerOptions, Registration};
use crate::lister::{Lister, NamespaceLister};
use crate::processor::AddHandlerError;
use crate::selector::Selector;
use crate::shared::SharedInformer;

/// An object of any kind. All have metadata; a downcast gives access to the rest.
#[derive(Clone)]
pub struct GenericObject {
    key: ObjectKey,
    object: Arc<dyn AnyObject>,
}

trait AnyObject: Send + Sync {
    fn meta(&self) -> &ObjectMeta;
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<T: Resource + Send + Sync + 'static> AnyObject for T {
    fn meta(&self) -> &ObjectMeta {
        Resource::meta(self)
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl GenericObject {
    fn new<K: Kind<Object: Resource>>(kind: &K, object: &Arc<K::Object>) -> Self {
        Self { key: kind.key(object), object: Arc::<K::Object>::clone(object) }
    }

    /// Its key.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Its metadata.
    pub fn meta(&self) -> &ObjectMeta {
        self.object.meta()
    }

    /// The object, if it has this type. It is shared with the store, not a copy.
    pub fn downcast<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.object).as_any().downcast().ok()
    }
}

impl fmt::Debug for GenericObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GenericObject").field(&self.key).finish()
    }
}

/// An informer of any kind; same as client-go's `GenericInformer`. It wraps a typed informer.
#[derive(Clone)]
pub struct GenericInformer(Arc<dyn AnyInformer>);

/// What generic informers and listers require of a typed one.
trait AnyInformer: Send + Sync {
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    fn resource(&self) -> &GroupVersionResource;
    fn add_event_handler(
        &self,
        handler: Box<dyn EventHandler<GenericObject>>,
        options: HandlerOptions,
    ) -> Result<Registration, AddHandlerError>;
    fn remove_event_handler(&self, registration: &Registration);
    fn has_synced(&self) -> bool;
    fn synced(&self) -> BoxFuture<'_, ()>;
    fn last_sync_resource_version(&self) -> String;
    fn lister(&self) -> Arc<dyn AnyLister>;
}

impl<K: Kind<Object: Resource>> AnyInformer for SharedInformer<K> {
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn resource(&self) -> &GroupVersionResource {
        self.kind().gvr()
    }

    fn add_event_handler(
        &self,
        handler: Box<dyn EventHandler<GenericObject>>,
        options: HandlerOptions,
    ) -> Result<Registration, AddHandlerError> {
        let adapter = Adapter { kind: Arc::clone(self.kind()), handler };
        SharedInformer::add_event_handler(self, adapter, options)
    }

    fn remove_event_handler(&self, registration: &Registration) {
        SharedInformer::remove_event_handler(self, registration);
    }

    fn has_synced(&self) -> bool {
        SharedInformer::has_synced(self)
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        Box::pin(SharedInformer::synced(self))
    }

    fn last_sync_resource_version(&self) -> String {
        SharedInformer::last_sync_resource_version(self)
    }

    fn lister(&self) -> Arc<dyn AnyLister> {
        Arc::new(KindLister { kind: Arc::clone(self.kind()), lister: SharedInformer::lister(self) })
    }
}

/// Passes the objects of a typed informer to a generic handler.
struct Adapter<K> {
    kind: Arc<K>,
    handler: Box<dyn EventHandler<GenericObject>>,
}

impl<K: Kind<Object: Resource>> Adapter<K> {
    fn generic(&self, object: &Arc<K::Object>) -> Arc<GenericObject> {
        Arc::new(GenericObject::new(&*self.kind, object))
    }
}

impl<K: Kind<Object: Resource>> EventHandler<K::Object> for Adapter<K> {
    fn on_add(&mut self, object: &Arc<K::Object>, is_in_initial_list: bool) {
        let object = self.generic(object);
        self.handler.on_add(&object, is_in_initial_list);
    }

    fn on_update(&mut self, old: &Arc<K::Object>, new: &Arc<K::Object>) {
        let (old, new) = (self.generic(old), self.generic(new));
        self.handler.on_update(&old, &new);
    }

    fn on_delete(&mut self, deleted: &Deleted<K::Object>) {
        let deleted = match deleted {
            Deleted::Known(object) => Deleted::Known(self.generic(object)),
            Deleted::FinalStateUnknown { key, last } => Deleted::FinalStateUnknown {
                key: key.clone(),
                last: last.as_ref().map(|last| self.generic(last)),
            },
        };
        self.handler.on_delete(&deleted);
    }
}

impl GenericInformer {
    /// This informer without its type.
    pub fn new<K: Kind<Object: Resource>>(informer: Arc<SharedInformer<K>>) -> Self {
        Self(informer)
    }

    /// The typed informer, if it has this type.
    pub fn downcast<K: Kind>(&self) -> Option<Arc<SharedInformer<K>>> {
        Arc::clone(&self.0).as_any().downcast().ok()
    }

    /// Its resource.
    pub fn resource(&self) -> &GroupVersionResource {
        self.0.resource()
    }

    /// Adds a handler; see [`SharedInformer::add_event_handler`].
    pub fn add_event_handler(
        &self,
        handler: impl EventHandler<GenericObject>,
        options: HandlerOptions,
    ) -> Result<Registration, AddHandlerError> {
        self.0.add_event_handler(Box::new(handler), options)
    }

    /// Removes a handler; see [`SharedInformer::remove_event_handler`].
    pub fn remove_event_handler(&self, registration: &Registration) {
        self.0.remove_event_handler(registration);
    }

    /// Whether the store contains the first list.
    pub fn has_synced(&self) -> bool {
        self.0.has_synced()
    }

    /// Waits until the store contains the first list. Never returns if the informer stops before.
    pub async fn synced(&self) {
        self.0.synced().await;
    }

    /// The last resource version read from the server.
    pub fn last_sync_resource_version(&self) -> String {
        self.0.last_sync_resource_version()
    }

    /// A lister over the store.
    pub fn lister(&self) -> GenericLister {
        GenericLister { lister: self.0.lister(), namespace: String::new() }
    }
}

/// Reads objects of any kind, in one namespace or all; same as client-go's `GenericLister` and
/// `GenericNamespaceLister`. Returns `None` instead of their `NotFound`, as [`Lister`] does.
#[derive(Clone)]
pub struct GenericLister {
    lister: Arc<dyn AnyLister>,
    /// Empty for all namespaces.
    namespace: String,
}

trait AnyLister: Send + Sync {
    fn select(&self, namespace: &str, selector: &Selector) -> Vec<GenericObject>;
    fn get(&self, key: &ObjectKey) -> Option<GenericObject>;
}

struct KindLister<K: Kind> {
    kind: Arc<K>,
    lister: Lister<K::Object>,
}

impl<K: Kind<Object: Resource>> AnyLister for KindLister<K> {
    fn select(&self, namespace: &str, selector: &Selector) -> Vec<GenericObject> {
        let objects = NamespaceLister::select(&self.lister.namespace(namespace), selector);
        objects.iter().map(|object| GenericObject::new(&*self.kind, object)).collect()
    }

    fn get(&self, key: &ObjectKey) -> Option<GenericObject> {
        self.lister.get(key).map(|object| GenericObject::new(&*self.kind, &object))
    }
}

impl GenericLister {
    /// All objects, in no particular order.
    pub fn list(&self) -> Vec<GenericObject> {
        self.select(&Selector::everything())
    }

    /// The objects that match the selector.
    pub fn select(&self, selector: &Selector) -> Vec<GenericObject> {
        self.lister.select(&self.namespace, selector)
    }

    /// The object with this name in the lister's namespace. Without a namespace, the object with
    /// this key: `namespace/name`, or the name of a cluster-scoped object.
    pub fn get(&self, name: &str) -> Option<GenericObject> {
        self.lister.get(&ObjectKey::new(Some(&self.namespace), name))
    }

    /// A lister for one namespace, or for all if it is empty.
    pub fn namespace(&self, namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), ..self.clone() }
    }
}

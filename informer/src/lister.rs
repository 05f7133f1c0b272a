//! Listers: typed reads of a store.

use std::sync::Arc;

use crate::key::ObjectKey;
use crate::store::{NAMESPACE_INDEX, Store};

/// Reads all objects of a store.
pub struct Lister<T> {
    store: Store<T>,
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone() }
    }
}

impl<T> Lister<T> {
    /// A lister over the store.
    pub fn new(store: Store<T>) -> Self {
        Self { store }
    }

    /// All objects, in no particular order.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.store.list()
    }

    /// The objects for which `predicate` holds. It runs under the store's read lock: keep it short,
    /// and do not use the store in it.
    pub fn list_where(&self, mut predicate: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        self.store.list_where(|_, object| predicate(object))
    }

    /// The object of this name, where objects have no namespaces, or of this `namespace/name`.
    pub fn get(&self, key: impl AsRef<str>) -> Option<Arc<T>> {
        self.store.get(key)
    }

    /// The objects of one namespace.
    pub fn namespace(&self, namespace: impl Into<String>) -> NamespaceLister<T> {
        NamespaceLister { store: self.store.clone(), namespace: namespace.into() }
    }
}

/// Reads the objects of one namespace.
pub struct NamespaceLister<T> {
    store: Store<T>,
    namespace: String,
}

impl<T> NamespaceLister<T> {
    /// All objects of the namespace, in no particular order. Without a namespace index this looks at all keys.
    pub fn list(&self) -> Vec<Arc<T>> {
        let indexed = self.store.by_index(NAMESPACE_INDEX, &self.namespace);
        indexed.unwrap_or_else(|_| self.store.list_where(|key, _| key.namespace() == Some(&self.namespace)))
    }

    /// The objects of the namespace for which `predicate` holds.
    pub fn list_where(&self, mut predicate: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let mut objects = self.list();
        objects.retain(|object| predicate(object));
        objects
    }

    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.store.get(ObjectKey::new(Some(&self.namespace), name))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::delta::Delta;
    use crate::kind::{Kind, Typed};
    use crate::store::{Indexers, namespace_indexer};

    fn config_map(namespace: &str, name: &str) -> Delta<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some(namespace.to_owned());
        object.metadata.name = Some(name.to_owned());
        Delta::Added(Typed::<ConfigMap>::new().key(&object), Arc::new(object))
    }

    #[test]
    fn a_namespace_reads_the_same_with_and_without_its_index() {
        for indexers in [Indexers::new(), namespace_indexer()] {
            let store = Store::new(indexers);
            let deltas =
                [("a", "x"), ("a", "y"), ("b", "x")].map(|(namespace, name)| config_map(namespace, name));
            store.apply(&Typed::<ConfigMap>::new(), deltas.into());
            let lister = Lister::new(store);
            assert_eq!(lister.list().len(), 3);
            assert_eq!(lister.list_where(|object| object.metadata.name.as_deref() == Some("x")).len(), 2);
            assert!(lister.get("b/x").is_some() && lister.get("b/y").is_none());
            let namespace = lister.namespace("a");
            assert_eq!(namespace.list().len(), 2);
            assert_eq!(namespace.list_where(|object| object.metadata.name.as_deref() == Some("x")).len(), 1);
            assert!(namespace.get("y").is_some() && namespace.get("z").is_none());
            assert!(lister.namespace("c").list().is_empty());
        }
    }
}

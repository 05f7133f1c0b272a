//! Listers: typed reads of a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::key::ObjectKey;
use crate::selector::{Labelled, Selector};
use crate::store::{NAMESPACE_INDEX, Store};

/// Reads all objects of a store.
///
/// Objects that do not exist are `None` or absent, where client-go returns a `NotFound` error. No
/// other error is possible here. Use `ok_or` for an error of your choice.
pub struct Lister<T> {
    store: Store<T>,
    /// Whether the missing namespace index has been logged.
    warned: Arc<AtomicBool>,
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), warned: Arc::clone(&self.warned) }
    }
}

impl<T> Lister<T> {
    /// A lister over the store.
    pub fn new(store: Store<T>) -> Self {
        Self { store, warned: Arc::default() }
    }

    /// All objects, in no particular order.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.store.list()
    }

    /// The objects for which `predicate` holds. It runs under the store's read lock, so keep it
    /// short, and do not use the store in it.
    pub fn list_where(&self, predicate: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        self.store.list_where(predicate)
    }

    /// The object with this key: `namespace/name`, or the name of a cluster-scoped object.
    pub fn get(&self, key: impl AsRef<str>) -> Option<Arc<T>> {
        self.store.get(key)
    }

    /// A lister for one namespace, or for all if it is empty.
    pub fn namespace(&self, namespace: impl Into<String>) -> NamespaceLister<T> {
        NamespaceLister { all: self.clone(), namespace: namespace.into() }
    }
}

impl<T: Labelled> Lister<T> {
    /// The objects that match the selector; same as client-go's `ListAll`. Skips reading labels if
    /// the selector matches [everything](Selector::is_everything), and objects if it matches
    /// nothing.
    pub fn select(&self, selector: &Selector) -> Vec<Arc<T>> {
        if selector.is_nothing() {
            Vec::new()
        } else if selector.is_everything() {
            self.list()
        } else {
            self.list_where(|object| selector.selects(object))
        }
    }
}

/// Reads the objects of one namespace.
pub struct NamespaceLister<T> {
    all: Lister<T>,
    namespace: String,
}

impl<T> Clone for NamespaceLister<T> {
    fn clone(&self) -> Self {
        Self { all: self.all.clone(), namespace: self.namespace.clone() }
    }
}

impl<T> NamespaceLister<T> {
    /// All objects of the namespace, in no particular order. Without a namespace index, scans all
    /// keys, and logs a warning once.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.scan(|_| true)
    }

    /// The objects of the namespace for which `predicate` holds. Without a namespace index, it runs
    /// under the store's read lock, and must not use the store.
    pub fn list_where(&self, predicate: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        self.scan(predicate)
    }

    /// The object with this name.
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.all.get(ObjectKey::new(Some(&self.namespace), name))
    }

    fn scan(&self, mut predicate: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        if self.namespace.is_empty() {
            return self.all.list_where(predicate);
        }
        let store = &self.all.store;
        match store.by_index(NAMESPACE_INDEX, &self.namespace) {
            Ok(mut objects) => {
                objects.retain(|object| predicate(object));
                objects
            }
            Err(error) => {
                if !self.all.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, namespace = self.namespace,
                        "no namespace index: every read of a namespace scans all objects");
                }
                store.scan_namespace(&self.namespace, predicate)
            }
        }
    }
}

impl<T: Labelled> NamespaceLister<T> {
    /// The objects of the namespace that match the selector; same as client-go's
    /// `ListAllByNamespace`.
    pub fn select(&self, selector: &Selector) -> Vec<Arc<T>> {
        if selector.is_nothing() { Vec::new() } else { self.scan(|object| selector.selects(object)) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::delta::Delta;
    use crate::kind::{Kind, Typed};
    use crate::selector::Labels;
    use crate::store::{Indexers, namespace_indexer};
    use crate::testing::log::CaughtLog;

    /// Objects `a/x`, `a/y` and `b/x`, labelled with their names.
    fn store(indexers: Indexers<ConfigMap>) -> Store<ConfigMap> {
        let store = Store::new(Arc::new(Typed::<ConfigMap>::new()), indexers);
        let deltas = [("a", "x"), ("a", "y"), ("b", "x")].map(|(namespace, name)| {
            let mut object = ConfigMap::default();
            object.metadata.namespace = Some(namespace.to_owned());
            object.metadata.name = Some(name.to_owned());
            object.metadata.labels = Some(Labels::from([("name".to_owned(), name.to_owned())]));
            Delta::Added(Typed::<ConfigMap>::new().key(&object), Arc::new(object))
        });
        store.apply(&Typed::<ConfigMap>::new(), deltas.into());
        store
    }

    fn keys(objects: &[Arc<ConfigMap>]) -> Vec<String> {
        let kind = Typed::<ConfigMap>::new();
        let mut keys: Vec<_> = objects.iter().map(|object| kind.key(object).to_string()).collect();
        keys.sort();
        keys
    }

    #[test]
    fn namespace_reads_are_equal_with_and_without_index() {
        for indexers in [Indexers::new(), namespace_indexer()] {
            let lister = Lister::new(store(indexers));
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

    #[test]
    fn listers_select_by_label_in_one_or_all_namespaces() {
        for indexers in [Indexers::new(), namespace_indexer()] {
            let lister = Lister::new(store(indexers));
            let table: [(Selector, &[&str]); 5] = [
                ("name=x".parse().unwrap(), &["a/x", "b/x"]),
                ("name".parse().unwrap(), &["a/x", "a/y", "b/x"]),
                ("name=z".parse().unwrap(), &[]),
                (Selector::everything(), &["a/x", "a/y", "b/x"]),
                (Selector::nothing(), &[]),
            ];
            for (selector, expected) in table {
                assert_eq!(keys(&lister.select(&selector)), expected, "{selector}");
                assert_eq!(
                    keys(&lister.namespace("").select(&selector)),
                    expected,
                    "an empty namespace selects all"
                );
                let in_a: Vec<_> = expected.iter().filter(|key| key.starts_with("a/")).copied().collect();
                assert_eq!(keys(&lister.namespace("a").select(&selector)), in_a, "{selector}");
            }
        }
    }

    #[test]
    fn a_missing_namespace_index_is_logged_once() {
        let log = CaughtLog::new();
        let indexed = Lister::new(store(namespace_indexer()));
        indexed.namespace("a").list();
        let lister = Lister::new(store(Indexers::new()));
        lister.list();
        lister.namespace("").list();
        assert_eq!(log.lines(), Vec::<String>::new());
        for namespace in ["a", "b", "a"] {
            lister.clone().namespace(namespace).list();
        }
        let lines = log.lines();
        assert!(lines.len() == 1 && lines[0].starts_with("WARN no namespace index"), "{lines:?}");
        assert!(lines[0].contains("error=no index named \"namespace\""), "{lines:?}");
    }

    /// Counts reads of its labels.
    struct Counted(Labels, Arc<AtomicUsize>);

    impl Labelled for Counted {
        fn labels(&self) -> Option<&Labels> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Some(&self.0)
        }
    }

    /// Counts the keys that it builds.
    struct CountedKind(crate::GroupVersionResource, Arc<AtomicUsize>);

    impl Kind for CountedKind {
        type Object = Counted;

        fn gvr(&self) -> &crate::GroupVersionResource {
            &self.0
        }

        fn key(&self, _: &Counted) -> ObjectKey {
            self.1.fetch_add(1, Ordering::Relaxed);
            ObjectKey::new(Some("a"), "x")
        }

        fn has_key(&self, _: &Counted, key: &str) -> bool {
            key == "a/x"
        }

        fn resource_version<'a>(&self, _: &'a Counted) -> &'a str {
            ""
        }

        fn decode(&self, kind: crate::ContentType, _: &[u8]) -> Result<Counted, crate::DecodeError> {
            Err(crate::DecodeError::UnsupportedContentType(kind))
        }
    }

    #[test]
    fn selecting_everything_or_nothing_reads_no_labels() {
        let (looks, keys) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let things = crate::GroupVersionResource::namespaced("", "v1", "things");
        let kind = Arc::new(CountedKind(things, Arc::clone(&keys)));
        let store = Store::new(Arc::clone(&kind), namespace_indexer());
        let object = Arc::new(Counted(Labels::new(), Arc::clone(&looks)));
        store.apply(&*kind, vec![Delta::Added(ObjectKey::new(Some("a"), "x"), object)]);
        let lister = Lister::new(store);
        keys.store(0, Ordering::Relaxed);
        for (selector, selected, looked) in
            [(Selector::everything(), 1, 0), (Selector::nothing(), 0, 0), ("!b".parse().unwrap(), 1, 2)]
        {
            assert_eq!(lister.select(&selector).len(), selected);
            assert_eq!(lister.namespace("a").select(&selector).len(), selected);
            assert_eq!(looks.load(Ordering::Relaxed), looked, "{selector}");
        }
        assert_eq!(keys.load(Ordering::Relaxed), 0, "a scan builds no keys");
    }
}

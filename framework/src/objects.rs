//! The other kinds that plugins read: everything but pods and nodes.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::text::Text;

/// An object of a kind that has no type of its own here, as a plugin outside the tree would watch it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// The kind, named as in [`EventResource::Other`](crate::EventResource::Other).
    pub resource: Text,
    /// `namespace/name`, or `name` for cluster-scoped kinds.
    pub key: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// The node it belongs to, for kinds that belong to one.
    pub node_name: Option<Arc<str>>,
    /// The object.
    pub body: Arc<serde_json::Value>,
}

/// Objects by kind and key.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    kinds: FxHashMap<Text, FxHashMap<Arc<str>, Arc<Object>>>,
}

impl Objects {
    /// Adds or replaces an object and returns what it replaced.
    pub fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        self.kinds.entry(object.resource.clone()).or_default().insert(Arc::clone(&object.key), object)
    }

    /// Removes an object.
    pub fn remove(&mut self, resource: &str, key: &str) -> Option<Arc<Object>> {
        self.kinds.get_mut(resource)?.remove(key)
    }

    /// One object.
    pub fn get(&self, resource: &str, key: &str) -> Option<&Arc<Object>> {
        self.kinds.get(resource)?.get(key)
    }

    /// Every object of a kind, ordered by key.
    pub fn list(&self, resource: &str) -> Vec<&Arc<Object>> {
        let mut objects: Vec<_> = self.kinds.get(resource).into_iter().flat_map(FxHashMap::values).collect();
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        objects
    }
}

//! The properties of nodes that daemon sets use.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::json::list;
use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::sim::affinity;

/// All nodes by name.
#[derive(Debug)]
pub(super) struct Nodes {
    kind: Arc<Kind>,
    nodes: BTreeMap<Box<str>, Node>,
}

/// The properties of a node that daemon sets use.
#[derive(Debug, PartialEq)]
pub(super) struct Node {
    labels: Value,
    taints: Vec<Value>,
}

impl Nodes {
    pub(super) fn new(kind: Arc<Kind>) -> Self {
        Self { kind, nodes: BTreeMap::new() }
    }

    /// Updates a node. Returns whether any of these properties changed.
    pub(super) fn put(&mut self, object: &StoredObject) -> bool {
        let value = object.value(&self.kind);
        let node = Node {
            labels: value["metadata"]["labels"].clone(),
            taints: list(&value["spec"], "taints").to_vec(),
        };
        let is_same = self.nodes.get(&object.name) == Some(&node);
        self.nodes.insert(object.name.clone(), node);
        !is_same
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    pub(super) fn clear(&mut self) {
        self.nodes.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(name, node)| (&**name, node))
    }
}

impl Node {
    /// Whether a pod may be created for this node, and whether an existing one may stay.
    pub(super) fn takes(&self, name: &str, spec: &Value) -> (bool, bool) {
        if !affinity::matches(spec, name, &self.labels) {
            return (false, false);
        }
        let tolerations = list(spec, "tolerations");
        let tolerates =
            |effects: &[&str]| affinity::untolerated(&self.taints, tolerations, effects).is_none();
        let stays = tolerates(&["NoExecute"]);
        (stays && tolerates(&["NoSchedule"]), stays)
    }
}

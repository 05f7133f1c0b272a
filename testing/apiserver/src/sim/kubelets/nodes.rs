//! The lifecycle of nodes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::node_status::{self, Facts};
use super::{Action, Kubelets, Node, NodeName, Stage, Uid};
use crate::json::text_at;
use crate::object::StoredObject;
use crate::rest::Part;
use crate::sim::objects::Identity;

/// How long pods outlive their node, as with upstream's pod garbage collector.
pub(super) const QUARANTINE: Duration = Duration::from_secs(40);

impl Kubelets {
    pub(super) fn node_changed(&mut self, object: &StoredObject) {
        let value = object.value(&self.node_kind);
        let name: NodeName = object.name.as_ref().into();
        let facts = self.node_facts(&name, &value);
        let node = self.nodes.entry(Arc::clone(&name)).or_default();
        node.uid = Some(object.uid.clone());
        node.room.update(&value);
        let own = node_status::address(&value);
        node.address = if own.is_empty() { facts.address.clone() } else { own.to_owned() };
        let was_ready = std::mem::replace(&mut node.is_ready, node_status::is_ready(&value));
        let becomes_ready = node.is_ready && !was_ready;
        self.write_node(object, value, &facts);
        if becomes_ready {
            self.begin_waiting(&name);
        }
    }

    /// The generated properties of a node, created when it is first seen.
    fn node_facts(&mut self, name: &str, value: &Value) -> Facts {
        let (addresses, known) = (&mut self.addresses, self.nodes.get_mut(name));
        let cidr = text_at(value, "/spec/podCIDR");
        match known {
            Some(Node { range: Some(range), address, .. }) => {
                Facts { address: address.clone(), pod_cidr: range.cidr() }
            }
            Some(node) => {
                let range = node.range.insert(addresses.range(cidr));
                Facts { address: addresses.node().to_string(), pod_cidr: range.cidr() }
            }
            None => {
                let range = addresses.range(cidr);
                let facts = Facts { address: addresses.node().to_string(), pod_cidr: range.cidr() };
                self.nodes.insert(name.into(), Node { range: Some(range), ..Node::default() });
                facts
            }
        }
    }

    /// Writes the desired state of the node, if it differs.
    fn write_node(&self, object: &StoredObject, value: Value, facts: &Facts) {
        let now = self.objects.stamp();
        let name = Identity { namespace: "", name: &object.name, uid: &object.uid };
        let mut new = value.clone();
        node_status::set_status(&mut new, facts, &now);
        if new != value {
            let set = |node: &mut Value| node_status::set_status(node, facts, &now);
            Self::log(self.objects.update(&self.node_kind, &name, Part::Status, set));
        }
        let before = new.clone();
        node_status::set_main(&mut new, facts, &now);
        if new != before {
            let set = |node: &mut Value| node_status::set_main(node, facts, &now);
            Self::log(self.objects.update(&self.node_kind, &name, Part::Main, set));
        }
    }

    fn begin_waiting(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        let waits = |uid: &&Uid| self.pods.get(*uid).is_some_and(|pod| pod.stage == Stage::Waiting);
        let mut waiting: Vec<Uid> = node.pods.iter().filter(waits).map(Arc::clone).collect();
        let key = |uid: &Uid| self.pods.get(uid).map(|pod| (pod.namespace.clone(), pod.name.clone()));
        waiting.sort_by_cached_key(key);
        for uid in waiting {
            let Some(pod) = self.pods.get(&uid) else { continue };
            let object = self.objects.get(&self.pod_kind, &pod.namespace, &pod.name);
            if let Some(object) = object.filter(|object| *object.uid == *uid) {
                let value = object.value(&self.pod_kind);
                self.begin(&uid, &value);
            }
        }
    }

    pub(super) fn node_gone(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.uid = None;
        node.is_ready = false;
        let name: NodeName = name.into();
        self.timers.set(Instant::now() + QUARANTINE, Action::DeleteOrphans(Arc::clone(&name)));
        self.forget_empty(&name);
    }

    /// Forgets a removed node once it has no pods.
    pub(super) fn forget_empty(&mut self, name: &str) {
        let is_empty = self.nodes.get(name).is_some_and(|node| node.uid.is_none() && node.pods.is_empty());
        if is_empty && let Some(node) = self.nodes.remove(name) {
            node.range.iter().for_each(|range| self.addresses.release(range));
        }
    }

    /// Deletes the pods of a node that is still missing.
    pub(super) fn delete_orphans(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name).filter(|node| node.uid.is_none()) else { return };
        let orphans: Vec<Uid> = node.pods.iter().map(Arc::clone).collect();
        for uid in orphans {
            self.stop(&uid);
        }
    }
}

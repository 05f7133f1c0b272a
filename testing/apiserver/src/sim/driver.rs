//! Simulates a driver that publishes the devices of nodes as resource slices.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::feed::{Feed, Update};
use super::objects::{Identity, Objects};
use crate::json::{int, text, text_at};
use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::rest::Part;
use crate::server::Shared;
use crate::store::EventType;

/// An annotation of a node: how many devices it has.
pub const SIMULATE_DEVICES: &str = "supercargo.dev/simulate-devices";
/// The driver of these devices.
pub const DEVICE_DRIVER: &str = "gpu.supercargo.dev";
/// The API server accepts no more devices in a slice.
const MOST_DEVICES: u32 = 128;

/// The driver on all nodes.
#[derive(Debug)]
pub(super) struct Driver {
    objects: Objects,
    node_kind: Arc<Kind>,
    slice_kind: Arc<Kind>,
    nodes: Feed,
    /// The number of devices that were published, by node.
    published: FxHashMap<Box<str>, u32>,
}

impl Driver {
    /// `None` if the resources are not served.
    pub(super) fn new(shared: &Arc<Shared>) -> Option<Self> {
        let objects = Objects::new(shared, DEVICE_DRIVER);
        let node_kind = objects.kind("", "nodes")?;
        let slice_kind = objects.kind("resource.k8s.io", "resourceslices")?;
        let nodes = Feed::new(&objects, &node_kind);
        Some(Self { objects, node_kind, slice_kind, nodes, published: FxHashMap::default() })
    }

    pub(super) async fn run(mut self) {
        loop {
            match self.nodes.read() {
                Update::None => self.nodes.changed().await,
                Update::All(nodes) => {
                    let left = |name: &str| nodes.iter().any(|node| &*node.name == name);
                    let gone: Vec<_> = self.published.keys().filter(|name| !left(name)).cloned().collect();
                    for name in &gone {
                        self.withdraw(name);
                    }
                    for node in &nodes {
                        self.node_changed(node);
                    }
                }
                Update::Changes(changes) => {
                    for change in changes {
                        if change.event == EventType::Deleted {
                            self.withdraw(&change.object.name);
                        } else {
                            self.node_changed(&change.object);
                        }
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn node_changed(&mut self, node: &StoredObject) {
        let value = node.value(&self.node_kind);
        let count = text(&value["metadata"]["annotations"], SIMULATE_DEVICES);
        let count = count.parse::<u32>().unwrap_or_default().min(MOST_DEVICES);
        if self.published.get(&node.name).copied().unwrap_or_default() == count {
            return;
        }
        if count == 0 {
            self.withdraw(&node.name);
        } else if self.publish(node, count) {
            self.published.insert(node.name.clone(), count);
        }
    }

    /// Publishes the devices of a node. Returns whether the server accepted them.
    fn publish(&self, node: &StoredObject, count: u32) -> bool {
        let name = slice_name(&node.name);
        let known = self.objects.get(&self.slice_kind, "", &name);
        let result = match known.map(|slice| slice.value(&self.slice_kind)) {
            None => self.objects.create(&self.slice_kind, "", slice(node, &name, count)),
            Some(known) => {
                let generation = int(&known["spec"]["pool"], "generation").unwrap_or_default() + 1;
                self.objects.update(&self.slice_kind, &Identity::of(&known), Part::Main, |slice| {
                    slice["spec"]["devices"] = devices(count);
                    slice["spec"]["pool"]["generation"] = generation.into();
                })
            }
        };
        result
            .inspect_err(|status| tracing::debug!(message = status.message, "cannot publish devices"))
            .is_ok()
    }

    fn withdraw(&mut self, node: &str) {
        if self.published.remove(node).is_none() {
            return;
        }
        let Some(slice) = self.objects.get(&self.slice_kind, "", &slice_name(node)) else { return };
        let slice = slice.value(&self.slice_kind);
        if let Err(status) = self.objects.delete(&self.slice_kind, &Identity::of(&slice), None) {
            tracing::debug!(
                name = text_at(&slice, "/metadata/name"),
                message = status.message,
                "cannot withdraw devices"
            );
        }
    }
}

fn slice_name(node: &str) -> String {
    format!("{node}-{DEVICE_DRIVER}")
}

fn slice(node: &StoredObject, name: &str, count: u32) -> Value {
    let owner =
        json!({ "apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": true });
    json!({
        "metadata": { "name": name, "ownerReferences": [owner] },
        "spec": {
            "driver": DEVICE_DRIVER, "nodeName": node.name,
            "pool": { "name": node.name, "generation": 1, "resourceSliceCount": 1 },
            "devices": devices(count),
        },
    })
}

fn devices(count: u32) -> Value {
    let device = |i: u32| {
        json!({
            "name": format!("gpu-{i}"),
            "attributes": {
                "index": { "int": i }, "model": { "string": "simulated" }, "driverVersion": { "version": "1.0.0" },
            },
            "capacity": { "memory": { "value": "40Gi" } },
        })
    };
    (0..count).map(device).collect()
}

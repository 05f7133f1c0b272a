//! Simulates a driver that publishes the devices of nodes as resource slices: a pool for each node.

use std::sync::Arc;

use serde_json::{Value, json};

use super::feed::{Feed, Update};
use super::objects::{Identity, Objects};
use crate::json::{int, list, text};
use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::rest::Part;
use crate::server::Shared;
use crate::status::Result;
use crate::store::EventType;

/// An annotation of a node: how many devices it has.
pub const SIMULATE_DEVICES: &str = "supercargo.dev/simulate-devices";
/// An annotation of a node: the numbers of devices that its driver does not publish, separated by
/// commas.
pub const SIMULATE_LOST_DEVICES: &str = "supercargo.dev/simulate-lost-devices";
/// The driver of these devices, and their DeviceClass.
pub const DEVICE_DRIVER: &str = "gpu.supercargo.dev";
/// Devices in a slice. The API server accepts up to 128.
const PER_SLICE: usize = 8;
/// Devices of a node.
const MOST_DEVICES: u32 = 128;

/// The driver on all nodes.
#[derive(Debug)]
pub(super) struct Driver {
    objects: Objects,
    node_kind: Arc<Kind>,
    slice_kind: Arc<Kind>,
    class_kind: Arc<Kind>,
    nodes: Feed,
}

impl Driver {
    /// `None` if the resources are not served.
    pub(super) fn new(shared: &Arc<Shared>) -> Option<Self> {
        let objects = Objects::new(shared, DEVICE_DRIVER);
        let node_kind = objects.kind("", "nodes")?;
        let kind = |resource: &str| objects.kind("resource.k8s.io", resource);
        let (slice_kind, class_kind) = (kind("resourceslices")?, kind("deviceclasses")?);
        let nodes = Feed::new(&objects, &node_kind);
        Some(Self { objects, node_kind, slice_kind, class_kind, nodes })
    }

    pub(super) async fn run(mut self) {
        loop {
            match self.nodes.read() {
                Update::None => self.nodes.changed().await,
                // The slices of nodes that are gone are their dependents.
                Update::All(nodes) => nodes.iter().for_each(|node| self.node_changed(node)),
                Update::Changes(changes) => {
                    for change in changes {
                        if change.event == EventType::Deleted {
                            self.withdraw(&change.object.name, 0);
                        } else {
                            self.node_changed(&change.object);
                        }
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Publishes what a node has, if it differs from its slices.
    fn node_changed(&self, node: &StoredObject) {
        let value = node.value(&self.node_kind);
        let wanted = devices(&value["metadata"]["annotations"]);
        let published = self.published(&node.name);
        let is_as_wanted = wanted.len() == published.len()
            && wanted
                .iter()
                .zip(&published)
                .all(|(wanted, slice)| names(wanted).eq(names(list(&slice["spec"], "devices"))));
        if is_as_wanted {
            return;
        }
        let result = self.publish(node, &wanted, &published);
        if let Err(status) = result {
            tracing::debug!(node = &*node.name, message = status.message, "cannot publish devices");
        }
        self.withdraw(&node.name, wanted.len());
    }

    /// The slices of a node, in order.
    fn published(&self, node: &str) -> Vec<Value> {
        let slices =
            (0..).map_while(|index| self.objects.get(&self.slice_kind, "", &slice_name(node, index)));
        slices.map(|slice| slice.value(&self.slice_kind)).collect()
    }

    /// Publishes a new generation of the pool of a node, slice by slice.
    fn publish(&self, node: &StoredObject, wanted: &[Vec<Value>], published: &[Value]) -> Result<()> {
        if !wanted.is_empty() {
            self.publish_class()?;
        }
        let generations = published.iter().filter_map(|slice| int(&slice["spec"]["pool"], "generation"));
        let pool = json!({
            "name": node.name,
            "generation": generations.max().unwrap_or_default() + 1,
            "resourceSliceCount": wanted.len(),
        });
        for (index, devices) in wanted.iter().enumerate() {
            match published.get(index) {
                None => {
                    let slice = slice(node, index, &pool, devices);
                    self.objects.create(&self.slice_kind, "", slice)?;
                }
                Some(slice) => {
                    self.objects.update(&self.slice_kind, &Identity::of(slice), Part::Main, |slice| {
                        slice["spec"]["devices"] = devices.as_slice().into();
                        slice["spec"]["pool"] = pool.clone();
                    })?;
                }
            }
        }
        Ok(())
    }

    fn publish_class(&self) -> Result<()> {
        if self.objects.get(&self.class_kind, "", DEVICE_DRIVER).is_none() {
            let selector = json!({ "cel": { "expression": format!("device.driver == '{DEVICE_DRIVER}'") } });
            let class = json!({ "metadata": { "name": DEVICE_DRIVER }, "spec": { "selectors": [selector] } });
            self.objects.create(&self.class_kind, "", class)?;
        }
        Ok(())
    }

    /// Deletes the slices of a node, from this one on.
    fn withdraw(&self, node: &str, from: usize) {
        for slice in self.published(node).iter().skip(from) {
            if let Err(status) = self.objects.delete(&self.slice_kind, &Identity::of(slice), None) {
                tracing::debug!(node, message = status.message, "cannot withdraw devices");
            }
        }
    }
}

fn slice_name(node: &str, index: usize) -> String {
    match index {
        0 => format!("{node}-{DEVICE_DRIVER}"),
        _ => format!("{node}-{DEVICE_DRIVER}-{index}"),
    }
}

fn slice(node: &StoredObject, index: usize, pool: &Value, devices: &[Value]) -> Value {
    let owner =
        json!({ "apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": true });
    json!({
        "metadata": { "name": slice_name(&node.name, index), "ownerReferences": [owner] },
        "spec": { "driver": DEVICE_DRIVER, "nodeName": node.name, "pool": pool, "devices": devices },
    })
}

/// The devices of a node with these annotations, by slice. A lost device leaves a gap: the others
/// stay in their slices, one of which may be empty.
fn devices(annotations: &Value) -> Vec<Vec<Value>> {
    let count = text(annotations, SIMULATE_DEVICES).parse::<u32>().unwrap_or_default().min(MOST_DEVICES);
    let lost: Vec<&str> = text(annotations, SIMULATE_LOST_DEVICES).split(',').map(str::trim).collect();
    let all: Vec<u32> = (0..count).collect();
    let is_left = |number: &&u32| !lost.contains(&&*number.to_string());
    let slices = all.chunks(PER_SLICE).map(|numbers| numbers.iter().filter(is_left).map(|it| device(*it)));
    slices.map(Iterator::collect).collect()
}

fn device(number: u32) -> Value {
    json!({
        "name": format!("gpu-{number}"),
        "attributes": {
            "index": { "int": number }, "model": { "string": "simulated" }, "driverVersion": { "version": "1.0.0" },
        },
        "capacity": { "memory": { "value": "40Gi" } },
    })
}

fn names(devices: &[Value]) -> impl Iterator<Item = &str> {
    devices.iter().map(|device| text(device, "name"))
}

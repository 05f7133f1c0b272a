//! Simulates a driver that publishes the devices of nodes as resource slices: a pool for each node,
//! and another one for its special devices. It prepares devices that have binding conditions.

mod special;

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
/// An annotation of a node: it has special devices, too. The driver prepares some of them, which
/// fails if the value is `failing`.
pub const SIMULATE_SPECIAL_DEVICES: &str = "supercargo.dev/simulate-special-devices";
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
    claim_kind: Arc<Kind>,
    nodes: Feed,
    claims: Feed,
}

impl Driver {
    /// `None` if the resources are not served.
    pub(super) fn new(shared: &Arc<Shared>) -> Option<Self> {
        let objects = Objects::new(shared, DEVICE_DRIVER);
        let node_kind = objects.kind("", "nodes")?;
        let kind = |resource: &str| objects.kind("resource.k8s.io", resource);
        let (slice_kind, class_kind) = (kind("resourceslices")?, kind("deviceclasses")?);
        let claim_kind = kind("resourceclaims")?;
        let (nodes, claims) = (Feed::new(&objects, &node_kind), Feed::new(&objects, &claim_kind));
        Some(Self { objects, node_kind, slice_kind, class_kind, claim_kind, nodes, claims })
    }

    pub(super) async fn run(mut self) {
        loop {
            let (nodes, claims) = (self.nodes.read(), self.claims.read());
            if let (Update::None, Update::None) = (&nodes, &claims) {
                tokio::select! {
                    () = self.nodes.changed() => {}
                    () = self.claims.changed() => {}
                }
            }
            match nodes {
                Update::None => {}
                // The slices of nodes that are gone are their dependents.
                Update::All(nodes) => nodes.iter().for_each(|node| self.node_changed(node)),
                Update::Changes(changes) => {
                    for change in changes {
                        if change.event == EventType::Deleted {
                            let [ordinary, special] = pools(&change.object.name);
                            self.withdraw(&ordinary, 0);
                            self.withdraw(&special, 0);
                        } else {
                            self.node_changed(&change.object);
                        }
                    }
                }
            }
            match claims {
                Update::None => {}
                Update::All(claims) => claims.iter().for_each(|claim| self.claim_changed(claim)),
                Update::Changes(changes) => changes
                    .iter()
                    .filter(|change| change.event != EventType::Deleted)
                    .for_each(|change| self.claim_changed(&change.object)),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Publishes what a node has, if it differs from its slices.
    fn node_changed(&self, node: &StoredObject) {
        let value = node.value(&self.node_kind);
        let annotations = &value["metadata"]["annotations"];
        for (pool, wanted) in
            pools(&node.name).iter().zip([devices(annotations), special::slices(annotations)])
        {
            self.pool_changed(node, pool, &wanted);
        }
    }

    fn pool_changed(&self, node: &StoredObject, pool: &str, wanted: &[Value]) {
        let published = self.published(pool);
        let is_as_wanted = wanted.len() == published.len()
            && wanted.iter().zip(&published).all(|(wanted, slice)| names(wanted).eq(names(&slice["spec"])));
        if is_as_wanted {
            return;
        }
        let result = self.publish(node, pool, wanted, &published);
        if let Err(status) = result {
            tracing::debug!(pool, message = status.message, "cannot publish devices");
        }
        self.withdraw(pool, wanted.len());
    }

    /// The slices of a pool, in order.
    fn published(&self, pool: &str) -> Vec<Value> {
        let slices =
            (0..).map_while(|index| self.objects.get(&self.slice_kind, "", &slice_name(pool, index)));
        slices.map(|slice| slice.value(&self.slice_kind)).collect()
    }

    /// Publishes a new generation of a pool, slice by slice.
    fn publish(&self, node: &StoredObject, pool: &str, wanted: &[Value], published: &[Value]) -> Result<()> {
        if !wanted.is_empty() {
            self.publish_class()?;
        }
        let generations = published.iter().filter_map(|slice| int(&slice["spec"]["pool"], "generation"));
        let pool = json!({
            "name": pool,
            "generation": generations.max().unwrap_or_default() + 1,
            "resourceSliceCount": wanted.len(),
        });
        for (index, content) in wanted.iter().enumerate() {
            match published.get(index) {
                None => {
                    let slice = slice(node, index, &pool, content);
                    self.objects.create(&self.slice_kind, "", slice)?;
                }
                Some(slice) => {
                    self.objects.update(&self.slice_kind, &Identity::of(slice), Part::Main, |slice| {
                        slice["spec"]["devices"] = content["devices"].clone();
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

    /// Deletes the slices of a pool, from this one on.
    fn withdraw(&self, pool: &str, from: usize) {
        for slice in self.published(pool).iter().skip(from) {
            if let Err(status) = self.objects.delete(&self.slice_kind, &Identity::of(slice), None) {
                tracing::debug!(pool, message = status.message, "cannot withdraw devices");
            }
        }
    }
}

/// The pools of a node: of its ordinary devices, and of its special ones.
fn pools(node: &str) -> [String; 2] {
    [node.to_owned(), special::pool(node)]
}

fn slice_name(pool: &str, index: usize) -> String {
    match index {
        0 => format!("{pool}-{DEVICE_DRIVER}"),
        _ => format!("{pool}-{DEVICE_DRIVER}-{index}"),
    }
}

/// A slice with these devices or counters.
fn slice(node: &StoredObject, index: usize, pool: &Value, content: &Value) -> Value {
    let owner =
        json!({ "apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": true });
    let mut spec = content.clone();
    spec["driver"] = DEVICE_DRIVER.into();
    spec["nodeName"] = (*node.name).into();
    spec["pool"] = pool.clone();
    let name = slice_name(text(pool, "name"), index);
    json!({ "metadata": { "name": name, "ownerReferences": [owner] }, "spec": spec })
}

/// The devices of a node with these annotations, by slice. A lost device leaves a gap: the others
/// stay in their slices, one of which may be empty.
fn devices(annotations: &Value) -> Vec<Value> {
    let count = text(annotations, SIMULATE_DEVICES).parse::<u32>().unwrap_or_default().min(MOST_DEVICES);
    let lost: Vec<&str> = text(annotations, SIMULATE_LOST_DEVICES).split(',').map(str::trim).collect();
    let all: Vec<u32> = (0..count).collect();
    let is_left = |number: &&u32| !lost.contains(&&*number.to_string());
    let of_slice =
        |numbers: &[u32]| -> Vec<Value> { numbers.iter().filter(is_left).map(|it| device(*it)).collect() };
    all.chunks(PER_SLICE).map(|numbers| json!({ "devices": of_slice(numbers) })).collect()
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

/// The names of what is in a slice.
fn names(spec: &Value) -> impl Iterator<Item = &str> {
    let content = list(spec, "devices").iter().chain(list(spec, "sharedCounters"));
    content.map(|it| text(it, "name"))
}

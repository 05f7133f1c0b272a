//! Renews the leases of nodes periodically.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::rest::Part;
use crate::server::Shared;
use crate::sim::feed::{Feed, Update};
use crate::sim::objects::Objects;
use crate::store::EventType;

const NAMESPACE: &str = "kube-node-lease";
const LEASE_SECONDS: i64 = 40;
/// The number of renewals before yielding to other tasks.
const AT_ONCE: usize = 64;

/// Renews the leases of all nodes.
#[derive(Debug)]
pub(in crate::sim) struct Heartbeats {
    objects: Objects,
    leases: Arc<Kind>,
    kind: Arc<Kind>,
    nodes: Feed,
    /// The existing nodes, with their UIDs.
    known: BTreeMap<Box<str>, Box<str>>,
    period: Duration,
}

impl Heartbeats {
    /// `None` if leases are not served or disabled.
    pub(in crate::sim) fn new(shared: &Arc<Shared>, period: Duration) -> Option<Self> {
        let objects = Objects::new(shared, "kubelet");
        let leases = objects.kind("coordination.k8s.io", "leases")?;
        let kind = objects.kind("", "nodes")?;
        let nodes = Feed::new(&objects, &kind);
        Some(Self { objects, leases, kind, nodes, known: BTreeMap::new(), period })
    }

    pub(in crate::sim) async fn run(mut self) {
        let mut next = Instant::now() + self.period;
        loop {
            for (name, uid) in self.read() {
                self.renew(&name, &uid);
            }
            tokio::select! {
                () = self.nodes.changed() => {}
                () = tokio::time::sleep_until(next) => {
                    self.renew_all().await;
                    next += self.period;
                }
            }
        }
    }

    /// Reads all changes. Returns the new nodes.
    fn read(&mut self) -> Vec<(Box<str>, Box<str>)> {
        let mut new = Vec::new();
        loop {
            match self.nodes.read() {
                Update::None => return new,
                Update::All(objects) => {
                    self.known.clear();
                    for object in objects {
                        self.add(&object, &mut new);
                    }
                }
                Update::Changes(changes) => {
                    for change in changes {
                        if change.event == EventType::Deleted {
                            self.known.remove(&change.object.name);
                        } else {
                            self.add(&change.object, &mut new);
                        }
                    }
                }
            }
        }
    }

    fn add(&mut self, node: &StoredObject, new: &mut Vec<(Box<str>, Box<str>)>) {
        let before = self.known.insert(node.name.clone(), node.uid.clone());
        if before.as_ref() != Some(&node.uid) {
            new.push((node.name.clone(), node.uid.clone()));
        }
    }

    async fn renew_all(&self) {
        for (count, (name, uid)) in self.known.iter().enumerate() {
            if count % AT_ONCE == AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            self.renew(name, uid);
        }
    }

    /// Renews the lease of a node, or creates it.
    fn renew(&self, node: &str, uid: &str) {
        let now = micros(self.objects.now());
        let renewed = self.objects.write(|writer| {
            writer.update(&self.leases, NAMESPACE, node, Part::Main, |_, old| {
                let mut lease = old.clone();
                lease["spec"]["renewTime"] = now.as_str().into();
                lease["metadata"]["ownerReferences"] = owner(node, uid);
                Ok(lease)
            })
        });
        let is_there = || self.objects.get(&self.kind, "", node).is_some_and(|found| *found.uid == *uid);
        if renewed.is_err() && is_there() {
            let lease = json!({
                "metadata": {"name": node, "ownerReferences": owner(node, uid)},
                "spec": {"holderIdentity": node, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
            });
            if let Err(status) = self.objects.create(&self.leases, NAMESPACE, lease) {
                tracing::debug!(node, message = status.message, "cannot renew the lease of a node");
            }
        }
    }
}

fn owner(node: &str, uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}])
}

/// A time in microseconds, the format of leases.
fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

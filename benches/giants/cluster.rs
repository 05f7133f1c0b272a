//! The cluster around a giant.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::Value;
use supercargo_benches::Bench;
use supercargo_codec::{NodeKind, ObjectKind, PodKind};
use supercargo_framework::objects::Object;
use supercargo_framework::testing::giants::{objects, plain_node, plain_pod, type_of};
use supercargo_framework::testing::pod;
use supercargo_framework::{NodeRecord, PodInfo};
use supercargo_scheduler::{Input, NoCalls, Notification};

use crate::NO_ANNOTATIONS;

/// The numbers of objects around a giant.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Size {
    /// Nodes
    #[arg(long, default_value_t = 5000)]
    pub(crate) nodes: usize,
    /// Pods on each node
    #[arg(long, default_value_t = 1)]
    pub(crate) pods_per_node: usize,
    /// Namespaces
    #[arg(long, default_value_t = 2000)]
    pub(crate) namespaces: usize,
}

impl Size {
    pub(crate) const fn pods(self) -> usize {
        self.nodes * self.pods_per_node
    }
}

/// A cluster in which each node has pods that giants can preempt.
pub(crate) fn cluster(size: Size) -> Result<Bench> {
    let Size { nodes, namespaces, .. } = size;
    let mut bench = Bench::with_nodes(0);
    for object in decoded(objects(nodes, namespaces))? {
        bench.handle(Input::Object(Notification::Added(object)));
    }
    let (node_kind, pod_kind) = (NodeKind::new(NO_ANNOTATIONS), PodKind::new(NO_ANNOTATIONS));
    for i in 0..nodes {
        let node = node_kind.decode(plain_node(i).to_string().as_bytes())?;
        bench.handle(Input::Node(Notification::Added(Arc::new(node))));
    }
    for i in 0..size.pods() {
        let pod = pod_kind.decode(plain_pod(i, nodes, namespaces).to_string().as_bytes())?;
        bench.handle(Input::AssignedPod(Notification::Added(Arc::new(pod))));
    }
    try_pod(&mut bench, plain("warm-up"));
    Ok(bench)
}

/// Objects of other kinds than pods and nodes, decoded from JSON.
pub(crate) fn decoded(documents: impl IntoIterator<Item = Value>) -> Result<Vec<Arc<Object>>> {
    let mut kinds = HashMap::new();
    let decode = |document: Value| {
        let [version, name] = type_of(&document);
        let kind = match kinds.entry([version.to_owned(), name.to_owned()]) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(
                ObjectKind::of_type(version, name).with_context(|| format!("{version} {name} is unknown"))?,
            ),
        };
        Ok(Arc::new(kind.decode(document.to_string().as_bytes())?))
    };
    documents.into_iter().map(decode).collect()
}

pub(crate) fn plain(name: &str) -> PodInfo {
    pod(name).label("app", name).image("app").request("cpu", "1").build()
}

/// The same pod for kube-scheduler.
pub(crate) fn plain_document(name: &str) -> Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "uid": name, "labels": { "app": name } },
        "spec": {
            "schedulerName": "supercargo",
            "containers": [{ "name": "c", "image": "app", "resources": { "requests": { "cpu": "1" } } }],
        },
    })
}

/// Adds a pod to the queue and runs its first cycle.
pub(crate) fn try_pod(bench: &mut Bench, pod: PodInfo) {
    bench.add_pod(pod);
    bench.scheduler.schedule_one(bench.now, &mut NoCalls);
    bench.scheduler.take_effects();
}

/// A label of a node changes.
pub(crate) fn relabelled(i: usize) -> Input {
    let record = NodeKind::new(NO_ANNOTATIONS).decode(plain_node(i).to_string().as_bytes());
    let old = Arc::new(record.expect("the node was decoded before"));
    let labels = old.labels.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
    let labels = labels.chain([("new".into(), "".into())]).collect();
    let new = NodeRecord { labels, resource_version: "2".into(), ..(*old).clone() };
    Input::Node(Notification::Updated { old, new: Arc::new(new) })
}

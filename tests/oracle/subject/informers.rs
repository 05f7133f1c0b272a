//! Acts as the informers: turns changes of objects into the scheduler's inputs.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::Value;
use supercargo_codec::{NodeKind, ObjectKind, PodKind};
use supercargo_framework::objects::Object;
use supercargo_framework::{Features, NodeRecord, PodInfo};
use supercargo_scheduler::{Input, Notification};

use super::world::Changed;
use crate::oracle::history::Reference;

/// The state of the informers.
pub(super) struct Informers {
    scheduler_names: BTreeSet<String>,
    pod_kind: PodKind,
    node_kind: NodeKind,
    pods: BTreeMap<String, Arc<PodInfo>>,
    nodes: BTreeMap<String, Arc<NodeRecord>>,
    kinds: BTreeMap<[String; 2], ObjectKind>,
    objects: BTreeMap<Reference, Arc<Object>>,
}

impl Informers {
    pub(super) fn new(scheduler_names: BTreeSet<String>, features: Features) -> Self {
        let none: [&str; 0] = [];
        Self {
            scheduler_names,
            pod_kind: PodKind::new(none).features(features),
            node_kind: NodeKind::new(none),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            kinds: BTreeMap::new(),
            objects: BTreeMap::new(),
        }
    }

    /// Whether to keep pods whole, for extenders.
    pub(super) fn whole_pods(mut self, on: bool) -> Self {
        self.pod_kind = self.pod_kind.keep_raw(on);
        self
    }

    /// The inputs of a change, in order.
    pub(super) fn tell(&mut self, change: Changed) -> Result<Vec<Input>> {
        match change.reference.kind.as_str() {
            "Pod" => self.pod(&change),
            "Node" => self.node(&change),
            _ => self.object(&change),
        }
    }

    fn object(&mut self, change: &Changed) -> Result<Vec<Input>> {
        let Reference { api_version, kind, .. } = &change.reference;
        let decoder = match self.kinds.entry([api_version.clone(), kind.clone()]) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(
                ObjectKind::of_type(api_version, kind)
                    .with_context(|| format!("nobody knows {api_version} {kind}"))?,
            ),
        };
        let new =
            change.new.as_ref().map(|object| decoder.decode(object.to_string().as_bytes()).map(Arc::new));
        let new = new.transpose().with_context(|| format!("decode {}", change.reference))?;
        let old = match &new {
            Some(object) => self.objects.insert(change.reference.clone(), Arc::clone(object)),
            None => self.objects.remove(&change.reference),
        };
        Ok(filtered(old.as_ref(), new.as_ref(), |_| true).map(Input::Object).into_iter().collect())
    }

    /// The last known state of a pod by `namespace/name`.
    pub(super) fn pod_named(&self, key: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(key)
    }

    /// Every pod.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.pods.values()
    }

    pub(super) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    fn pod(&mut self, change: &Changed) -> Result<Vec<Input>> {
        let key = change.reference.key();
        // Finished pods are not watched.
        let new = change.new.as_ref().filter(|pod| !has_ended(pod));
        let new = new.map(|pod| self.pod_kind.decode(pod.to_string().as_bytes()).map(Arc::new));
        let new = new.transpose().context("decode the pod")?;
        let old = match &new {
            Some(pod) => self.pods.insert(key, Arc::clone(pod)),
            None => self.pods.remove(&key),
        };
        let is_ours =
            |pod: &PodInfo| !pod.is_assigned() && self.scheduler_names.contains(&*pod.spec.scheduler_name);
        let for_cache = filtered(old.as_ref(), new.as_ref(), PodInfo::is_assigned).map(Input::AssignedPod);
        let for_queue = filtered(old.as_ref(), new.as_ref(), is_ours).map(Input::QueuedPod);
        Ok(for_cache.into_iter().chain(for_queue).collect())
    }

    fn node(&mut self, change: &Changed) -> Result<Vec<Input>> {
        let key = change.reference.key();
        let new =
            change.new.as_ref().map(|node| self.node_kind.decode(node.to_string().as_bytes()).map(Arc::new));
        let new = new.transpose().context("decode the node")?;
        let old = match &new {
            Some(node) => self.nodes.insert(key, Arc::clone(node)),
            None => self.nodes.remove(&key),
        };
        Ok(filtered(old.as_ref(), new.as_ref(), |_| true).map(Input::Node).into_iter().collect())
    }
}

/// Whether the pod informer filters out the pod.
pub(super) fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// The notification behind a filter.
fn filtered<T>(
    old: Option<&Arc<T>>,
    new: Option<&Arc<T>>,
    passes: impl Fn(&T) -> bool,
) -> Option<Notification<T>> {
    match (old.filter(|old| passes(old)), new.filter(|new| passes(new))) {
        (None, None) => None,
        (None, Some(new)) => Some(Notification::Added(Arc::clone(new))),
        (Some(old), Some(new)) => Some(Notification::Updated { old: Arc::clone(old), new: Arc::clone(new) }),
        (Some(old), None) => Some(Notification::Deleted(Arc::clone(old))),
    }
}

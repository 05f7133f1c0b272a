//! An index of pods by workload, so that a change of one pod does not require reading the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::json::text;
use crate::object::StoredObject;

/// The UID of a workload.
pub(super) type Uid = Box<str>;

/// Pods by the workload that controls them.
#[derive(Debug, Default)]
pub(super) struct Pods {
    of: FxHashMap<Uid, BTreeMap<Box<str>, Pod>>,
    controllers: FxHashMap<Uid, Uid>,
}

/// The properties of a pod that its workload uses.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) object: Arc<StoredObject>,
    /// The version at which the pod was first seen.
    born: u64,
    ready_since: Option<Instant>,
    /// The node that the pod is bound to or targets.
    pub(super) node: Box<str>,
}

#[derive(Deserialize)]
struct Seen {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    uid: Box<str>,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default)]
    affinity: Value,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Value>,
}

impl Pods {
    /// Updates a pod. Returns the affected workloads.
    pub(super) fn put(&mut self, object: &Arc<StoredObject>, now: Instant) -> Vec<Uid> {
        if object.owners.is_empty() {
            return self.remove(object);
        }
        let Ok(seen) = serde_json::from_slice::<Seen>(object.body()) else { return Vec::new() };
        let controls = |owner: &Owner| owner.controller == Some(true);
        let Some(owner) = seen.metadata.owner_references.into_iter().find(controls) else {
            return self.remove(object);
        };
        let mut concerned = Vec::new();
        let before = self.controllers.insert(object.uid.clone(), owner.uid.clone());
        let mut known = before.as_ref().and_then(|before| self.of.get_mut(before)?.remove(&object.name));
        concerned.extend(before.filter(|before| *before != owner.uid));
        // A pod of the same name with another UID is a different pod.
        known = known.filter(|known| known.object.uid == object.uid);
        let is_ready = seen
            .status
            .conditions
            .iter()
            .any(|condition| text(condition, "type") == "Ready" && text(condition, "status") == "True");
        let since = known.as_ref().and_then(|known| known.ready_since).unwrap_or(now);
        let pod = Pod {
            born: known.as_ref().map_or(object.version(), |known| known.born),
            ready_since: is_ready.then_some(since),
            node: match object.field("spec.nodeName") {
                "" => target(&seen.spec.affinity).into(),
                node => node.into(),
            },
            object: Arc::clone(object),
        };
        self.of.entry(owner.uid.clone()).or_default().insert(object.name.clone(), pod);
        concerned.push(owner.uid);
        concerned
    }

    /// Removes a pod. Returns the affected workloads.
    pub(super) fn remove(&mut self, object: &StoredObject) -> Vec<Uid> {
        let Some(owner) = self.controllers.remove(&object.uid) else { return Vec::new() };
        if let Some(pods) = self.of.get_mut(&owner) {
            if pods.get(&object.name).is_some_and(|pod| pod.object.uid == object.uid) {
                pods.remove(&object.name);
            }
            if pods.is_empty() {
                self.of.remove(&owner);
            }
        }
        vec![owner]
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The pods of a workload, by name.
    pub(super) fn of(&self, owner: &str) -> impl Iterator<Item = &Pod> {
        self.of.get(owner).into_iter().flat_map(BTreeMap::values)
    }
}

/// The node that the pod of a daemon set requires by name.
fn target(affinity: &Value) -> &str {
    let path = "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    affinity.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

impl Pod {
    pub(super) fn phase(&self) -> &str {
        self.object.field("status.phase")
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// Whether it is active: neither finished nor being deleted.
    pub(super) fn is_active(&self) -> bool {
        !self.is_over() && !self.object.deleting
    }

    pub(super) fn is_terminating(&self) -> bool {
        self.object.deleting && !self.is_over()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready_since.is_some()
    }

    /// Whether it has been ready for long enough. For a ready pod that has not, also the time when
    /// it will be.
    pub(super) fn is_available(&self, long_enough: Duration, now: Instant) -> Result<bool, Instant> {
        match self.ready_since {
            None => Ok(false),
            Some(since) if now >= since + long_enough => Ok(true),
            Some(since) => Err(since + long_enough),
        }
    }

    pub(super) fn label(&self, key: &str) -> &str {
        let labels = &self.object.labels;
        labels.iter().find(|(own, _)| **own == *key).map_or("", |(_, value)| value)
    }

    /// The order of deletion when there are too many pods; the least is deleted first.
    pub(super) fn rank(&self) -> (bool, u8, bool, std::cmp::Reverse<u64>) {
        let phase = match self.phase() {
            "Pending" => 0,
            "Running" => 2,
            _ => 1,
        };
        let is_bound = !self.object.field("spec.nodeName").is_empty();
        (is_bound, phase, self.is_ready(), std::cmp::Reverse(self.born))
    }
}

/// The counts of some pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) active: i64,
    pub(super) ready: i64,
    pub(super) available: i64,
    pub(super) terminating: i64,
    /// The time when the next ready pod becomes available.
    pub(super) next: Option<Instant>,
}

impl Counts {
    pub(super) fn of<'a>(pods: impl Iterator<Item = &'a Pod>, long_enough: Duration, now: Instant) -> Self {
        let mut counts = Self::default();
        for pod in pods {
            counts.terminating += i64::from(pod.is_terminating());
            if !pod.is_active() {
                continue;
            }
            counts.active += 1;
            counts.ready += i64::from(pod.is_ready());
            match pod.is_available(long_enough, now) {
                Ok(is_available) => counts.available += i64::from(is_available),
                Err(at) => counts.next = Some(counts.next.map_or(at, |next| next.min(at))),
            }
        }
        counts
    }
}

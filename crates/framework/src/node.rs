//! Node objects.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::labels::Labels;
use crate::resource::Resource;
use crate::taint::Taint;

/// The label that usually has a distinct value on every node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// An image on a node, by one of its names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeImage {
    /// One name, tag or digest of the image.
    pub name: Arc<str>,
    /// Its size in bytes.
    pub size: i64,
}

/// The parts of a node object that scheduling reads. Immutable: an update is a new value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// `metadata.labels`.
    pub labels: Labels,
    /// The `metadata.annotations` that a plugin declares.
    pub annotations: Labels,
    /// [`annotations_hash`] of all `metadata.annotations`, to notice that one has changed.
    pub annotations_hash: u64,
    /// `spec.unschedulable`: the node is cordoned.
    pub unschedulable: bool,
    /// `spec.taints`.
    pub taints: Arc<[Taint]>,
    /// `status.allocatable`.
    pub allocatable: Arc<Resource>,
    /// `status.images`, one entry per name, sorted by name.
    pub images: Arc<[NodeImage]>,
    /// `status.conditions` as type and status, sorted by type, without heartbeats.
    pub conditions: Labels,
    /// `status.declaredFeatures`, sorted.
    pub declared_features: Arc<[Arc<str>]>,
    /// `spec.podPreemptionPolicy.disableResizePreemption`; `None` without a policy. Only compared.
    #[serde(default)]
    pub disable_resize_preemption: Option<Arc<[Arc<str>]>>,
    /// The whole node as JSON, if an extender needs it.
    pub raw: Option<Arc<str>>,
}

impl NodeRecord {
    /// The region and zone of the node, by which upstream's node tree groups nodes. Deprecated
    /// labels take precedence.
    pub fn zone(&self) -> Zone {
        let label = |old: &str, new: &str| self.labels.get(old).or_else(|| self.labels.get(new)).cloned();
        Zone {
            region: label("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
            zone: label("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        }
    }

    /// Whether the node has an image of this name.
    pub fn has_image(&self, name: &str) -> bool {
        self.images.binary_search_by(|image| (*image.name).cmp(name)).is_ok()
    }
}

/// 0 without annotations; otherwise a hash of them that is stable within one build. Their order
/// does not matter.
pub fn annotations_hash<'a>(annotations: impl IntoIterator<Item = (&'a str, &'a str)>) -> u64 {
    let mut annotations: Vec<_> = annotations.into_iter().collect();
    if annotations.is_empty() {
        return 0;
    }
    annotations.sort_unstable();
    let mut hasher = DefaultHasher::new();
    annotations.hash(&mut hasher);
    hasher.finish()
}

/// The region and zone of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Zone {
    region: Option<Arc<str>>,
    /// The zone.
    pub zone: Option<Arc<str>>,
}

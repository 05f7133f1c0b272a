//! Nodes as the API describes them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::labels::Labels;
use crate::resource::Resource;
use crate::taint::Taint;

/// An image that a node has, under one of its names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeImage {
    /// One name, tag or digest of the image.
    pub name: Arc<str>,
    /// Its size in bytes.
    pub size: i64,
}

/// What scheduling reads of a node object. Immutable: an update is a new value.
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
    /// Those of `metadata.annotations` that a plugin declared.
    pub annotations: Labels,
    /// `spec.unschedulable`: the node is cordoned.
    pub unschedulable: bool,
    /// `spec.taints`.
    pub taints: Arc<[Taint]>,
    /// `status.allocatable`.
    pub allocatable: Arc<Resource>,
    /// `status.images`, one entry per name, sorted by name.
    pub images: Arc<[NodeImage]>,
    /// `status.conditions` as type and status, sorted by type; heartbeats are left out.
    pub conditions: Labels,
    /// `status.declaredFeatures`, sorted.
    pub declared_features: Arc<[Arc<str>]>,
    /// The whole node in JSON, where something outside (an extender) needs it.
    pub raw: Option<Arc<str>>,
}

impl NodeRecord {
    /// The region and zone of the node, the deprecated labels first, as upstream's node tree groups nodes.
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

/// Where a node stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Zone {
    region: Option<Arc<str>>,
    zone: Option<Arc<str>>,
}

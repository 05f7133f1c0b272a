//! Nodes, pods with volumes, and objects of other kinds.

use std::sync::Arc;

use super::{PodBuilder, object};
use crate::node::NodeRecord;
use crate::node_info::NodeInfo;
use crate::nodes::Nodes;
use crate::objects::{Body, Object, Objects, PersistentVolumeClaim, resources};
use crate::pod::PodInfo;
use crate::volume::{Volume, VolumeSource};

/// A node with pods on it.
pub fn node_info(node: NodeRecord, pods: impl IntoIterator<Item = PodInfo>) -> NodeInfo {
    let mut info = NodeInfo::new(Arc::new(node));
    for pod in pods {
        info.add_pod(Arc::new(pod));
    }
    info
}

/// Nodes in this visiting order.
pub fn nodes(infos: impl IntoIterator<Item = NodeInfo>) -> Nodes {
    let mut nodes = Nodes::default();
    let order = infos.into_iter().map(|info| nodes.insert(info)).collect();
    nodes.set_order(order);
    nodes
}

/// Objects of other kinds.
pub fn objects(list: impl IntoIterator<Item = Object>) -> Objects {
    let mut objects = Objects::default();
    for object in list {
        objects.insert(Arc::new(object));
    }
    objects
}

/// A pod with these volumes.
pub fn with_volumes(pod: PodBuilder, volumes: &[(&str, VolumeSource)]) -> PodInfo {
    let volume =
        |(name, source): &(&str, VolumeSource)| Volume { name: (*name).into(), source: source.clone() };
    pod.with_spec(|spec| spec.volumes = volumes.iter().map(volume).collect()).build()
}

/// A pod with a volume of each of these claims, under the claim's name.
pub fn with_claims(pod: PodBuilder, claims: &[&str]) -> PodInfo {
    let volumes: Vec<_> = claims.iter().map(|claim| (*claim, claim_source(claim))).collect();
    with_volumes(pod, &volumes)
}

/// A volume of a claim.
pub fn claim_source(name: &str) -> VolumeSource {
    VolumeSource::Claim(name.into())
}

/// A claim `namespace/name`, bound to a volume unless its name is empty.
pub fn claim(key: &str, class: &str, volume: &str) -> Object {
    let body = PersistentVolumeClaim {
        storage_class: class.into(),
        volume_name: volume.into(),
        ..PersistentVolumeClaim::default()
    };
    object(&resources::PERSISTENT_VOLUME_CLAIM, key, Body::PersistentVolumeClaim(body))
}

//! Implements the informer's `Kind` for pods and nodes.

use std::sync::LazyLock;

use kube_informers::{Accept, ContentType, DecodeError, GroupVersionResource, Kind, ObjectKey};
use supercargo_framework::{NodeRecord, PodInfo};

use super::{NodeKind, PodKind};

static PODS: LazyLock<GroupVersionResource> =
    LazyLock::new(|| GroupVersionResource::namespaced("", "v1", "pods"));
static NODES: LazyLock<GroupVersionResource> =
    LazyLock::new(|| GroupVersionResource::cluster("", "v1", "nodes"));

impl Kind for PodKind {
    type Object = PodInfo;

    fn gvr(&self) -> &GroupVersionResource {
        &PODS
    }

    fn key(&self, pod: &PodInfo) -> ObjectKey {
        ObjectKey::new(Some(&pod.namespace), &pod.name)
    }

    fn has_key(&self, pod: &PodInfo, key: &str) -> bool {
        ObjectKey::is_text_of(key, Some(&pod.namespace), &pod.name)
    }

    fn resource_version<'a>(&self, pod: &'a PodInfo) -> &'a str {
        &pod.resource_version
    }

    fn accept(&self) -> Accept {
        Accept::default().protobuf(self.asks_for_protobuf())
    }

    fn decode(&self, content_type: ContentType, bytes: &[u8]) -> Result<PodInfo, DecodeError> {
        let decoded = match content_type {
            ContentType::Json => self.decode(bytes),
            ContentType::Protobuf => self.decode_protobuf(bytes),
            other => return Err(DecodeError::UnsupportedContentType(other)),
        };
        decoded.map_err(|error| DecodeError::Invalid(Box::new(error)))
    }
}

impl Kind for NodeKind {
    type Object = NodeRecord;

    fn gvr(&self) -> &GroupVersionResource {
        &NODES
    }

    fn key(&self, node: &NodeRecord) -> ObjectKey {
        ObjectKey::new(None, &node.name)
    }

    fn has_key(&self, node: &NodeRecord, key: &str) -> bool {
        ObjectKey::is_text_of(key, None, &node.name)
    }

    fn resource_version<'a>(&self, node: &'a NodeRecord) -> &'a str {
        &node.resource_version
    }

    fn accept(&self) -> Accept {
        Accept::default().protobuf(self.asks_for_protobuf())
    }

    fn decode(&self, content_type: ContentType, bytes: &[u8]) -> Result<NodeRecord, DecodeError> {
        let decoded = match content_type {
            ContentType::Json => self.decode(bytes),
            ContentType::Protobuf => self.decode_protobuf(bytes),
            other => return Err(DecodeError::UnsupportedContentType(other)),
        };
        decoded.map_err(|error| DecodeError::Invalid(Box::new(error)))
    }
}

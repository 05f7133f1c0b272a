//! Kinds that are decoded from protobuf, and their counterparts in JSON.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_informers::protobuf::ObjectMeta;
use kube_informers::{
    Accept, ContentType, DecodeError, GroupVersionResource, Identified, Kind, ObjectKey, Protobuf,
};
use parking_lot::Mutex;
use prost::Message;
use serde::Deserialize;

/// A kind that prefers another form than the wrapped one, and keeps the last object's bytes.
pub(crate) struct Asking<K> {
    kind: K,
    accept: Accept,
    sent: Mutex<Vec<u8>>,
}

impl<K: Kind> Asking<K> {
    /// Whole objects in JSON.
    pub(crate) fn json(kind: K) -> Self {
        Self { kind, accept: Accept::default(), sent: Mutex::default() }
    }

    /// Whole objects in protobuf.
    pub(crate) fn whole(kind: K) -> Self {
        Self { accept: Accept::default().protobuf(true), ..Self::json(kind) }
    }

    /// The form of the wrapped kind.
    pub(crate) fn as_is(kind: K) -> Self {
        Self { accept: kind.accept(), ..Self::json(kind) }
    }

    /// The last object as received.
    pub(crate) fn sent(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock()).into_owned()
    }
}

impl<K: Kind> Kind for Asking<K> {
    type Object = K::Object;

    fn gvr(&self) -> &GroupVersionResource {
        self.kind.gvr()
    }

    fn key(&self, object: &K::Object) -> ObjectKey {
        self.kind.key(object)
    }

    fn resource_version<'a>(&self, object: &'a K::Object) -> &'a str {
        self.kind.resource_version(object)
    }

    fn accept(&self) -> Accept {
        self.accept
    }

    fn decode(&self, content_type: ContentType, bytes: &[u8]) -> Result<K::Object, DecodeError> {
        bytes.clone_into(&mut self.sent.lock());
        self.kind.decode(content_type, bytes)
    }
}

/// A pod, a node, or any object with a name and possibly a node.
#[derive(Clone, PartialEq, Message, Deserialize)]
pub(crate) struct Slim {
    #[prost(message, required, tag = "1")]
    pub(crate) metadata: SlimMeta,
    #[serde(default)]
    #[prost(message, required, tag = "2")]
    pub(crate) spec: SlimSpec,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimMeta {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, tag = "6")]
    pub(crate) resource_version: String,
    #[prost(btree_map = "string, string", tag = "11")]
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimSpec {
    #[prost(string, tag = "10")]
    pub(crate) node_name: String,
}

impl Identified for Slim {
    fn key(&self) -> ObjectKey {
        ObjectKey::new(Some(&self.metadata.namespace), &self.metadata.name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

pub(crate) fn slim(resource: &'static str) -> Protobuf<Slim> {
    Protobuf::new(match resource {
        "nodes" => GroupVersionResource::cluster("", "v1", resource),
        _ => GroupVersionResource::namespaced("", "v1", resource),
    })
}

/// The message of a config map, for objects of the usual type.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConfigMapMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(btree_map = "string, string", tag = "2")]
    data: BTreeMap<String, String>,
}

impl TryFrom<ConfigMapMessage> for ConfigMap {
    type Error = DecodeError;

    fn try_from(message: ConfigMapMessage) -> Result<Self, DecodeError> {
        if message.data.contains_key("unacceptable") {
            return Err(DecodeError::Invalid("unacceptable".into()));
        }
        Ok(Self {
            metadata: message.metadata.unwrap_or_default().try_into()?,
            data: Some(message.data).filter(|data| !data.is_empty()),
            ..Self::default()
        })
    }
}

pub(crate) fn config_maps() -> Protobuf<ConfigMap, ConfigMapMessage> {
    Protobuf::new(GroupVersionResource::of::<ConfigMap>())
}

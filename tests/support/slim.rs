//! Objects with only the fields that tests read, in both encodings.

use kube_informers::{Identified, ObjectKey};
use prost::Message;
use serde::Deserialize;

/// A pod or a node.
#[derive(Clone, PartialEq, Message, Deserialize)]
pub(crate) struct Slim {
    #[prost(message, required, tag = "1")]
    pub(crate) metadata: Metadata,
    #[prost(message, required, tag = "2")]
    #[serde(default)]
    pub(crate) spec: Spec,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// Empty for a node.
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, tag = "5")]
    pub(crate) uid: String,
    #[prost(string, tag = "6")]
    pub(crate) resource_version: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    /// Empty for an unbound pod.
    #[prost(string, tag = "10")]
    pub(crate) node_name: String,
}

impl Identified for Slim {
    fn key(&self) -> ObjectKey {
        let Metadata { name, namespace, .. } = &self.metadata;
        ObjectKey::new(Some(namespace.as_str()).filter(|namespace| !namespace.is_empty()), name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

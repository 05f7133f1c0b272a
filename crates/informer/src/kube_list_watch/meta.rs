//! The part of an object's metadata that the transport itself reads.

use std::collections::BTreeMap;

use prost::Message;
use serde::Deserialize;

use crate::key::ObjectKey;
use crate::kind::{ContentType, DecodeError};
use crate::list_watch::Undecodable;
use crate::protobuf::wire::find_bytes;

/// Marks the bookmark at the end of the initial events, with the value "true".
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The identity of an object, and the annotation of a bookmark.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) resource_version: String,
    pub(super) initial_events_end: bool,
}

#[derive(Deserialize)]
struct JsonObject {
    metadata: JsonMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JsonMeta {
    name: String,
    namespace: Option<String>,
    resource_version: String,
    annotations: Option<JsonAnnotations>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JsonAnnotations {
    #[serde(rename = "k8s.io/initial-events-end")]
    initial_events_end: String,
}

#[derive(Clone, PartialEq, Message)]
struct ProtobufMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
}

impl Meta {
    pub(super) fn read(content_type: ContentType, object: &[u8]) -> Result<Self, DecodeError> {
        match content_type {
            ContentType::Json => {
                let JsonObject { metadata } = serde_json::from_slice(object)?;
                let annotations = metadata.annotations.unwrap_or_default();
                Ok(Self {
                    name: metadata.name,
                    namespace: metadata.namespace.unwrap_or_default(),
                    resource_version: metadata.resource_version,
                    initial_events_end: annotations.initial_events_end == "true",
                })
            }
            ContentType::Protobuf => {
                let no_metadata = || DecodeError::Invalid("object without metadata".into());
                let metadata = find_bytes(object, 1).ok_or_else(no_metadata)?;
                let metadata = ProtobufMeta::decode(metadata)?;
                let mark = metadata.annotations.get(INITIAL_EVENTS_END);
                Ok(Self {
                    initial_events_end: mark.is_some_and(|mark| mark == "true"),
                    name: metadata.name,
                    namespace: metadata.namespace,
                    resource_version: metadata.resource_version,
                })
            }
        }
    }
}

/// Identifies an object that failed to decode. `Err` if that is impossible: its metadata cannot be
/// read, so the object may be any stored one.
pub(super) fn identify(
    content_type: ContentType,
    object: &[u8],
    error: DecodeError,
) -> Result<Undecodable, DecodeError> {
    let meta = Meta::read(content_type, object).unwrap_or_default();
    let named = !meta.name.is_empty();
    let item = Undecodable {
        key: named.then(|| ObjectKey::new(Some(&meta.namespace), &meta.name)),
        resource_version: Some(meta.resource_version).filter(|version| !version.is_empty()),
        error,
    };
    // An object of another type is ignored, whatever its name.
    if named || item.is_of_another_type() { Ok(item) } else { Err(item.error) }
}

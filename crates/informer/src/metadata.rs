//! Informers of objects' metadata alone.

use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta, PartialObjectMetaExt};
use prost::Message;
use serde::Deserialize;

use crate::key::ObjectKey;
use crate::kind::{Accept, ContentType, DecodeError, GroupVersionResource, Kind, resource_key};
use crate::protobuf;

/// Describes the metadata of any resource's objects, same as client-go's metadata informers.
///
/// Requests `PartialObjectMetadata`, preferably in protobuf. From servers that send whole objects
/// instead, only the metadata is kept. All objects have the kind `PartialObjectMetadata`;
/// [`Kind::gvr`] has their actual resource.
///
/// ```
/// use kube_informers::{ContentType, GroupVersionResource, Kind, Metadata};
///
/// # fn main() -> Result<(), kube_informers::DecodeError> {
/// let deployments = Metadata::new(GroupVersionResource::namespaced("apps", "v1", "deployments"));
/// let bytes = br#"{"metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 3}}"#;
/// let object = deployments.decode(ContentType::Json, bytes)?;
/// assert_eq!(deployments.key(&object).as_str(), "shop/web");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Metadata {
    gvr: GroupVersionResource,
}

impl Metadata {
    /// The metadata of this resource's objects.
    pub fn new(gvr: GroupVersionResource) -> Self {
        Self { gvr }
    }
}

/// All other members are ignored.
#[derive(Deserialize)]
struct WithMetadata {
    metadata: ObjectMeta,
}

impl Kind for Metadata {
    type Object = PartialObjectMeta<DynamicObject>;

    fn gvr(&self) -> &GroupVersionResource {
        &self.gvr
    }

    fn key(&self, object: &Self::Object) -> ObjectKey {
        resource_key(object)
    }

    fn resource_version<'a>(&self, object: &'a Self::Object) -> &'a str {
        object.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn accept(&self) -> Accept {
        Accept { protobuf: true, metadata_only: true }
    }

    fn decode(&self, content_type: ContentType, bytes: &[u8]) -> Result<Self::Object, DecodeError> {
        let metadata = match content_type {
            ContentType::Json => serde_json::from_slice::<WithMetadata>(bytes)?.metadata,
            ContentType::Protobuf => {
                let message = protobuf::PartialObjectMetadata::decode(bytes)?;
                message.metadata.unwrap_or_default().try_into()?
            }
        };
        Ok(metadata.into_response_partial())
    }
}

//! Objects in protobuf, the other encoding of Kubernetes. It takes about half the bytes of JSON and
//! a fraction of the time. [`wire`] reads and writes single messages.

use std::error::Error;
use std::marker::PhantomData;

use kube::Resource;
use serde::de::DeserializeOwned;

use crate::key::ObjectKey;
use crate::kind::{Accept, ContentType, DecodeError, GroupVersionResource, Kind, resource_key};

mod envelope;
mod list;
mod meta;
pub mod wire;

pub(crate) use envelope::status;
pub use envelope::{MAGIC, MEDIA_TYPE, envelope, open_envelope, watch_event};
pub(crate) use list::{ListSplitter, TOO_LARGE};
pub(crate) use meta::PartialObjectMetadata;
pub use meta::{FieldsV1, ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};

/// An object that knows its own identity. All types that `kube` knows statically do.
pub trait Identified {
    /// The object's key.
    fn key(&self) -> ObjectKey;

    /// The object's resource version, empty if it has none.
    fn resource_version(&self) -> &str;
}

impl<K: Resource> Identified for K {
    fn key(&self) -> ObjectKey {
        resource_key(self)
    }

    fn resource_version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }
}

/// Describes objects of type `O` that are decoded from protobuf messages of type `M`.
///
/// Prefers protobuf. Where the server supports only JSON, as for custom resources, objects are
/// decoded by `serde`. The message declares the fields that are kept, with the numbers and types of
/// the API's `.proto` files. All other fields are skipped. Objects have their metadata in field 1.
///
/// Without a conversion, one type can be both:
///
/// ```
/// use kube_informers::{ContentType, GroupVersionResource, Identified, Kind, ObjectKey, Protobuf};
/// use prost::Message;
/// use serde::Deserialize;
///
/// /// What a program reads of a pod.
/// #[derive(Clone, PartialEq, Message, Deserialize)]
/// struct Pod {
///     #[prost(message, required, tag = "1")]
///     metadata: Metadata,
///     #[prost(message, required, tag = "2")]
///     spec: Spec,
/// }
///
/// #[derive(Clone, PartialEq, Message, Deserialize)]
/// #[serde(rename_all = "camelCase", default)]
/// struct Metadata {
///     #[prost(string, tag = "1")]
///     name: String,
///     #[prost(string, tag = "3")]
///     namespace: String,
///     #[prost(string, tag = "6")]
///     resource_version: String,
///     #[prost(btree_map = "string, string", tag = "11")]
///     labels: std::collections::BTreeMap<String, String>,
/// }
///
/// #[derive(Clone, PartialEq, Message, Deserialize)]
/// #[serde(rename_all = "camelCase", default)]
/// struct Spec {
///     /// Empty for a pod without a node: Go does not distinguish empty from absent.
///     #[prost(string, tag = "10")]
///     node_name: String,
/// }
///
/// impl Identified for Pod {
///     fn key(&self) -> ObjectKey {
///         ObjectKey::new(Some(&self.metadata.namespace), &self.metadata.name)
///     }
///
///     fn resource_version(&self) -> &str {
///         &self.metadata.resource_version
///     }
/// }
///
/// # fn main() -> Result<(), kube_informers::DecodeError> {
/// let pods = Protobuf::<Pod>::new(GroupVersionResource::namespaced("", "v1", "pods"));
/// assert!(pods.accept().protobuf);
///
/// let json = br#"{"metadata": {"name": "a", "namespace": "ns"}, "spec": {"nodeName": "n1", "hostPID": true}}"#;
/// let pod = pods.decode(ContentType::Json, json)?;
/// assert_eq!(pod.spec.node_name, "n1");
/// // The same pod in protobuf; hostPID is field 12.
/// let message = b"\x0a\x07\x0a\x01a\x1a\x02ns\x12\x06\x52\x02n1\x60\x01";
/// assert_eq!(pods.decode(ContentType::Protobuf, message)?, pod);
/// # Ok(())
/// # }
/// ```
///
/// For a conversion, `O` requires a `From<M>` or a `TryFrom<M>`, whose errors make objects
/// [undecodable](crate::Undecodable). Go writes strings and numbers that are not pointers even if
/// they are unset: declare them without `optional`, and treat empty as absent. Unset pointers are
/// omitted, so an absent message differs from an empty one, for example in selectors: declare them
/// with `optional`.
pub struct Protobuf<O, M = O> {
    gvr: GroupVersionResource,
    // `fn`, because the descriptor holds no value of these types, and must be `Send` and `Sync`
    // regardless of them.
    types: PhantomData<fn(M) -> O>,
}

impl<O, M> Protobuf<O, M> {
    /// The descriptor of this resource. [`GroupVersionResource::of`] returns the resource of a type
    /// of `kube`.
    pub fn new(gvr: GroupVersionResource) -> Self {
        Self { gvr, types: PhantomData }
    }

    pub(crate) fn resource(&self) -> &GroupVersionResource {
        &self.gvr
    }
}

impl<O, M> Kind for Protobuf<O, M>
where
    O: Identified + DeserializeOwned + TryFrom<M> + Send + Sync + 'static,
    O::Error: Into<Box<dyn Error + Send + Sync>>,
    M: prost::Message + Default + 'static,
{
    type Object = O;

    fn gvr(&self) -> &GroupVersionResource {
        &self.gvr
    }

    fn key(&self, object: &O) -> ObjectKey {
        object.key()
    }

    fn resource_version<'a>(&self, object: &'a O) -> &'a str {
        object.resource_version()
    }

    fn accept(&self) -> Accept {
        Accept { protobuf: true, metadata_only: false }
    }

    fn decode(&self, content_type: ContentType, bytes: &[u8]) -> Result<O, DecodeError> {
        match content_type {
            ContentType::Json => Ok(serde_json::from_slice(bytes)?),
            ContentType::Protobuf => O::try_from(M::decode(bytes)?).map_err(|error| {
                // A `DecodeError` passes through unchanged.
                error.into().downcast().map_or_else(DecodeError::Invalid, |error: Box<DecodeError>| *error)
            }),
        }
    }
}

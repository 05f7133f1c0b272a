//! Descriptors of kinds: what an informer must know about its objects.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use kube::Resource;
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope, TypeMeta};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::key::ObjectKey;

/// A resource of the API server: the name in requests, and the key of informers in a factory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    /// The API group, empty for the core group.
    pub group: Cow<'static, str>,
    /// The version within the group.
    pub version: Cow<'static, str>,
    /// The plural, lower-case name.
    pub resource: Cow<'static, str>,
    /// Whether the objects are namespaced.
    pub namespaced: bool,
}

impl GroupVersionResource {
    /// A namespaced resource.
    pub fn namespaced(
        group: impl Into<Cow<'static, str>>,
        version: impl Into<Cow<'static, str>>,
        resource: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into(), namespaced: true }
    }

    /// A cluster-scoped resource.
    pub fn cluster(
        group: impl Into<Cow<'static, str>>,
        version: impl Into<Cow<'static, str>>,
        resource: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { namespaced: false, ..Self::namespaced(group, version, resource) }
    }

    /// The resource of a type that `kube` knows statically.
    pub fn of<K: Resource<DynamicType = ()>>() -> Self
    where
        K::Scope: 'static,
    {
        Self {
            group: K::group(&()).into_owned().into(),
            version: K::version(&()).into_owned().into(),
            resource: K::plural(&()).into_owned().into(),
            namespaced: TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>(),
        }
    }

    /// The path of the collection. `namespace` is ignored for cluster-scoped resources.
    pub fn url_path(&self, namespace: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if let Some(namespace) = namespace.filter(|namespace| self.namespaced && !namespace.is_empty()) {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(&self.resource);
        path
    }
}

impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}/{}", self.version, self.resource)
        } else {
            write!(f, "{}/{}/{}", self.group, self.version, self.resource)
        }
    }
}

/// The encoding of an object's bytes, as the response declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContentType {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`: the object's message, without the envelope of the API
    /// server.
    Protobuf,
}

/// The preferred form of responses. [`Kind::decode`] receives the actual one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accept {
    /// Prefer protobuf, if the server supports it for this resource, over JSON.
    pub protobuf: bool,
    /// Only the objects' metadata, as `PartialObjectMetadata`.
    pub metadata_only: bool,
}

impl Accept {
    /// Sets [`protobuf`](field@Self::protobuf).
    pub fn protobuf(self, on: bool) -> Self {
        Self { protobuf: on, ..self }
    }

    /// Sets [`metadata_only`](field@Self::metadata_only).
    pub fn metadata_only(self, on: bool) -> Self {
        Self { metadata_only: on, ..self }
    }
}

/// Why one object could not be decoded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are not valid JSON of such an object.
    #[error("cannot decode JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The bytes are not a valid protobuf message of such an object.
    #[error("cannot decode protobuf: {0}")]
    Protobuf(#[from] prost::DecodeError),
    /// The kind does not support this encoding.
    #[error("no decoder for {0:?}")]
    UnsupportedContentType(ContentType),
    /// A valid object of another type. The store ignores it.
    #[error("expected {expected}, found {actual}")]
    UnexpectedType {
        /// The expected API version and kind.
        expected: String,
        /// The API version and kind of the object.
        actual: String,
    },
    /// Decoded, but rejected by the kind.
    #[error("rejected by the kind: {0}")]
    Invalid(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Describes a kind of objects: how to name, decode and identify them.
///
/// Informers are generic over the descriptor instead of the object, so objects can have any form. A
/// descriptor may have state, such as an interner that `decode` fills.
pub trait Kind: Send + Sync + 'static {
    /// The object that the store holds and handlers receive, behind an `Arc`.
    type Object: Send + Sync + 'static;

    /// The resource in requests.
    fn gvr(&self) -> &GroupVersionResource;

    /// The object's key.
    fn key(&self, object: &Self::Object) -> ObjectKey;

    /// Whether this text is the object's key. Stores call it in lookups, so implement it without
    /// building a key if possible.
    fn has_key(&self, object: &Self::Object, key: &str) -> bool {
        self.key(object).as_str() == key
    }

    /// The object's resource version, empty if it has none.
    fn resource_version<'a>(&self, object: &'a Self::Object) -> &'a str;

    /// The preferred form of responses. The default is whole objects in JSON.
    fn accept(&self) -> Accept {
        Accept::default()
    }

    /// Decodes one object. An error affects only this object, which is logged, counted and skipped.
    fn decode(&self, content_type: ContentType, bytes: &[u8]) -> Result<Self::Object, DecodeError>;
}

/// The descriptor of a type that `kube` knows statically, such as those of `k8s-openapi`.
pub struct Typed<K> {
    gvr: GroupVersionResource,
    // `fn() -> K` because the descriptor holds no `K`, and is `Send` and `Sync` whatever `K` is.
    object: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()> + 'static> Typed<K> {
    /// The descriptor of `K`.
    pub fn new() -> Self {
        Self { gvr: GroupVersionResource::of::<K>(), object: PhantomData }
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Default for Typed<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Kind for Typed<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    type Object = K;

    fn gvr(&self) -> &GroupVersionResource {
        &self.gvr
    }

    fn key(&self, object: &K) -> ObjectKey {
        resource_key(object)
    }

    fn has_key(&self, object: &K, key: &str) -> bool {
        resource_has_key(object, key)
    }

    fn resource_version<'a>(&self, object: &'a K) -> &'a str {
        object.meta().resource_version.as_deref().unwrap_or_default()
    }

    fn decode(&self, content_type: ContentType, bytes: &[u8]) -> Result<K, DecodeError> {
        match content_type {
            ContentType::Json => serde_json::from_slice(bytes).map_err(|error| {
                let expected =
                    TypeMeta { api_version: K::api_version(&()).into(), kind: K::kind(&()).into() };
                let actual = serde_json::from_slice::<TypeMeta>(bytes).ok();
                check_type(&expected, actual.as_ref()).err().unwrap_or(error.into())
            }),
            ContentType::Protobuf => Err(DecodeError::UnsupportedContentType(content_type)),
        }
    }
}

/// An object that names its type must have the expected one.
fn check_type(expected: &TypeMeta, actual: Option<&TypeMeta>) -> Result<(), DecodeError> {
    let name = |types: &TypeMeta| format!("{} {}", types.api_version, types.kind);
    match actual {
        Some(actual) if actual != expected => {
            Err(DecodeError::UnexpectedType { expected: name(expected), actual: name(actual) })
        }
        _ => Ok(()),
    }
}

/// The descriptor of a resource that is known only at run time, such as a custom resource.
#[derive(Clone, Debug)]
pub struct Dynamic {
    gvr: GroupVersionResource,
    types: TypeMeta,
}

impl Dynamic {
    /// A namespaced resource.
    pub fn namespaced(resource: ApiResource) -> Self {
        Self::new(resource, true)
    }

    /// A cluster-scoped resource.
    pub fn cluster(resource: ApiResource) -> Self {
        Self::new(resource, false)
    }

    fn new(resource: ApiResource, namespaced: bool) -> Self {
        let types = TypeMeta { api_version: resource.api_version, kind: resource.kind };
        let gvr = GroupVersionResource {
            group: resource.group.into(),
            version: resource.version.into(),
            resource: resource.plural.into(),
            namespaced,
        };
        Self { gvr, types }
    }
}

impl Kind for Dynamic {
    type Object = DynamicObject;

    fn gvr(&self) -> &GroupVersionResource {
        &self.gvr
    }

    fn key(&self, object: &DynamicObject) -> ObjectKey {
        resource_key(object)
    }

    fn has_key(&self, object: &DynamicObject, key: &str) -> bool {
        resource_has_key(object, key)
    }

    fn resource_version<'a>(&self, object: &'a DynamicObject) -> &'a str {
        object.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn decode(&self, content_type: ContentType, bytes: &[u8]) -> Result<DynamicObject, DecodeError> {
        let mut object: DynamicObject = match content_type {
            ContentType::Json => serde_json::from_slice(bytes)?,
            ContentType::Protobuf => return Err(DecodeError::UnsupportedContentType(content_type)),
        };
        check_type(&self.types, object.types.as_ref())?;
        // Items of a list omit their type.
        object.types.get_or_insert_with(|| self.types.clone());
        Ok(object)
    }
}

fn resource_has_key(object: &impl Resource, key: &str) -> bool {
    let meta = object.meta();
    ObjectKey::is_text_of(key, meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

pub(crate) fn resource_key(object: &impl Resource) -> ObjectKey {
    let meta = object.meta();
    ObjectKey::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::core::GroupVersionKind;

    use super::*;

    #[test]
    fn typed_kinds_have_their_path_and_scope() {
        let pods = Typed::<Pod>::new();
        assert_eq!(pods.gvr().url_path(None), "/api/v1/pods");
        assert_eq!(pods.gvr().url_path(Some("ns")), "/api/v1/namespaces/ns/pods");
        let nodes = Typed::<Node>::new();
        assert_eq!(nodes.gvr().url_path(Some("ns")), "/api/v1/nodes");
        assert_eq!(nodes.gvr(), &GroupVersionResource::cluster("", "v1", "nodes"));
        let deployments = Typed::<Deployment>::new();
        assert_eq!(deployments.gvr().url_path(Some("")), "/apis/apps/v1/deployments");
        assert_eq!(deployments.gvr().to_string(), "apps/v1/deployments");
    }

    #[test]
    fn dynamic_objects_from_a_list_get_their_type() {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.dev", "v1", "Widget"));
        let widgets = Dynamic::namespaced(resource);
        let bytes = br#"{"metadata":{"name":"w","namespace":"ns","resourceVersion":"7"},"spec":{"size":3}}"#;
        let widget = widgets.decode(ContentType::Json, bytes).unwrap();
        assert_eq!(widget.types.as_ref().map(|types| types.kind.as_str()), Some("Widget"));
        assert_eq!(widgets.key(&widget).as_str(), "ns/w");
        assert_eq!(widgets.resource_version(&widget), "7");
        assert_eq!(widgets.gvr().url_path(None), "/apis/example.dev/v1/widgets");
    }

    #[test]
    fn broken_bytes_are_a_decode_error() {
        let error = Typed::<Pod>::new().decode(ContentType::Json, b"{\"spec\":3}").unwrap_err();
        assert!(matches!(error, DecodeError::Json(_)), "{error}");
    }
}

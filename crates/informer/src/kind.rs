//! What an informer has to know about the objects it handles.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use kube::Resource;
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope, TypeMeta};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::key::ObjectKey;

/// A resource of the API server: what requests name, and what informers are keyed by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    /// The API group, empty for the core group.
    pub group: Cow<'static, str>,
    /// The version within the group.
    pub version: Cow<'static, str>,
    /// The plural, lower-case name.
    pub resource: Cow<'static, str>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

impl GroupVersionResource {
    /// A resource whose objects live in namespaces.
    pub fn namespaced(
        group: impl Into<Cow<'static, str>>,
        version: impl Into<Cow<'static, str>>,
        resource: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into(), namespaced: true }
    }

    /// A resource whose objects belong to the whole cluster.
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

    /// The path of the collection; `namespace` counts only where objects live in namespaces.
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

/// How the bytes of an object are encoded, by what the server said and not by what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContentType {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`: the object's own message, taken out of the envelope that the API
    /// server puts around it.
    Protobuf,
}

/// How the server is to answer, as far as it can. What it did answer with is told to [`Kind::decode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    /// In protobuf if the server has it for this resource, else in JSON.
    pub protobuf: bool,
    /// Only the objects' metadata, as `PartialObjectMetadata`.
    pub metadata_only: bool,
}

/// Why one object could not be decoded.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// The bytes are not the JSON of such an object.
    #[error("cannot decode JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The bytes are not the protobuf message of such an object.
    #[error("cannot decode protobuf: {0}")]
    Protobuf(#[from] prost::DecodeError),
    /// The kind does not read this encoding.
    #[error("no decoder for {0:?}")]
    UnsupportedContentType(ContentType),
    /// Sound, but of another type. Such an object changes nothing.
    #[error("expected {expected}, but this is {actual}")]
    UnexpectedType {
        /// API version and kind that the descriptor stands for.
        expected: String,
        /// What the object calls itself.
        actual: String,
    },
    /// Decoded, but not acceptable to the kind.
    #[error("not acceptable: {0}")]
    Invalid(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A descriptor of one kind of object: how to name, decode and identify it.
///
/// Informers are generic over the descriptor and not over the object, so an object may be whatever its users
/// want to keep. A descriptor may carry state, say an interner that `decode` fills.
pub trait Kind: Send + Sync + 'static {
    /// What the store keeps and handlers are shown, behind an `Arc`.
    type Object: Send + Sync + 'static;

    /// The resource that requests name.
    fn gvr(&self) -> &GroupVersionResource;

    /// The object's key.
    fn key(&self, object: &Self::Object) -> ObjectKey;

    /// Whether the object's key has this text. Stores ask it of the objects that they look for: a kind that need not make a key
    /// for the answer should not.
    fn has_key(&self, object: &Self::Object, key: &str) -> bool {
        self.key(object).as_str() == key
    }

    /// The object's resource version, empty if it has none.
    fn resource_version<'a>(&self, object: &'a Self::Object) -> &'a str;

    /// How the server is to answer: as JSON and whole, unless the kind says otherwise.
    fn accept(&self) -> Accept {
        Accept::default()
    }

    /// Decodes one object. A failure concerns this object only: it is logged, counted and skipped.
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

/// An object that names a type has to name this one.
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
pub struct Dynamic {
    gvr: GroupVersionResource,
    types: TypeMeta,
}

impl Dynamic {
    /// A resource whose objects live in namespaces.
    pub fn namespaced(resource: ApiResource) -> Self {
        Self::new(resource, true)
    }

    /// A resource whose objects belong to the whole cluster.
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
        // Items of a list do not name their type.
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
    fn a_typed_kind_knows_its_path_and_scope() {
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
    fn a_dynamic_object_from_a_list_is_given_its_type() {
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

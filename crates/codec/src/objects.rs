//! Decodes all kinds that plugins read, other than pods and nodes.
//!
//! They are read as JSON: custom resources have no protobuf encoding, claims are written back
//! whole, and there are few others that change often.

mod csi;
mod devices;
mod document;
mod in_tree;
mod pod_groups;
mod resource_claims;
mod resource_slices;
mod storage;
mod table;
mod workloads;

use std::fmt;
use std::sync::Arc;

use kube_informers::{ContentType, DecodeError, GroupVersionResource, Kind, ObjectKey};
use parking_lot::Mutex;
use serde::Deserialize;
use supercargo_framework::Text;
use supercargo_framework::objects::{Body, Object};
use supercargo_framework::raw_object::RawObject;

use self::document::Document;
use super::error::{FieldError, WireError, parse};
use super::interners::Interners;
use super::json::Obj;
use super::metadata::{Metadata, required};
use super::raw::Whole;
use super::text::text;

/// Decodes objects of one kind and shares equal parts of them.
pub struct ObjectKind {
    /// The name of the kind, as in [`supercargo_framework::objects::resources`].
    resource: Text,
    gvr: GroupVersionResource,
    decode: Decode,
    shared: Mutex<Interners>,
}

type Decode = fn(&ObjectKind, &str) -> Result<Object, WireError>;

impl ObjectKind {
    /// The built-in kind of this name.
    pub fn of(resource: &str) -> Option<Self> {
        let entry = table::KINDS.iter().find(|entry| *entry.resource == *resource)?;
        Some(Self::new(entry.resource.clone(), entry.gvr(), entry.decode))
    }

    /// The built-in kind of objects with this `apiVersion` and `kind`, in any version.
    pub fn of_type(api_version: &str, kind: &str) -> Option<Self> {
        match api_version.split_once('/') {
            Some((group, _)) => Self::of(&format!("{group}/{kind}")),
            None => Self::of(kind),
        }
    }

    /// A kind that only a plugin knows, named as the plugin requests it. Its objects are kept
    /// whole.
    pub fn dynamic(resource: Text, gvr: GroupVersionResource) -> Self {
        Self::new(resource, gvr, |kind, json| kind.read::<Unknown<'_>>(json))
    }

    fn new(resource: Text, gvr: GroupVersionResource, decode: Decode) -> Self {
        Self { resource, gvr, decode, shared: Mutex::default() }
    }

    /// The kind's name.
    pub fn resource(&self) -> &Text {
        &self.resource
    }

    /// Decodes an object in JSON.
    pub fn decode(&self, json: &[u8]) -> Result<Object, WireError> {
        (self.decode)(self, &text(json))
    }

    /// The number of interned values.
    pub fn interned(&self) -> usize {
        self.shared.lock().len()
    }

    /// Drops unused values. Interners also do so as they grow.
    pub fn sweep(&self) {
        self.shared.lock().sweep();
    }

    fn read<'a, T: Document<'a>>(&self, json: &'a str) -> Result<Object, WireError> {
        let document: Obj<T> = parse(&self.resource, json)?;
        let raw = if T::KEEPS_RAW { Some(self.raw(json, T::TYPE)?) } else { None };
        let metadata = document.metadata();
        self.object(&document.0, raw)
            .map_err(|error| error.in_object(&self.resource, &metadata.namespace, &metadata.name))
    }

    /// The whole object. Sets its type if `api_type` is given: items of a list lack it, but writes
    /// need it.
    fn raw(&self, json: &str, api_type: Option<(&str, &str)>) -> Result<RawObject, WireError> {
        let mut whole = Whole::parse(&self.resource, json)?;
        if let Some((api_version, kind)) = api_type {
            whole.set("apiVersion", api_version);
            whole.set("kind", kind);
        }
        Ok(RawObject::new(whole.to_text()))
    }

    fn object<'a>(&self, document: &impl Document<'a>, raw: Option<RawObject>) -> Result<Object, FieldError> {
        let metadata = document.metadata();
        required("metadata.name", &metadata.name)?;
        let namespace = if self.gvr.namespaced {
            required("metadata.namespace", &metadata.namespace)?;
            Some(&*metadata.namespace)
        } else {
            None
        };
        let mut shared = self.shared.lock();
        Ok(Object {
            resource: self.resource.clone(),
            key: Arc::from(ObjectKey::new(namespace, &metadata.name).as_str()),
            uid: Arc::from(&*metadata.uid),
            resource_version: Arc::from(&*metadata.resource_version),
            labels: shared.labels(metadata.labels.iter()),
            annotations: document.annotations(&mut shared),
            terminating: metadata.deletion_timestamp.non_empty().is_some(),
            controller: metadata.controller().map(|owner| shared.owner(owner)),
            node_name: document.node_name().map(|name| shared.text(name)),
            body: document.body(&mut shared, raw)?,
        })
    }
}

impl fmt::Debug for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectKind")
            .field("resource", &self.resource)
            .field("gvr", &self.gvr)
            .finish_non_exhaustive()
    }
}

impl Kind for ObjectKind {
    type Object = Object;

    fn gvr(&self) -> &GroupVersionResource {
        &self.gvr
    }

    fn key(&self, object: &Object) -> ObjectKey {
        let namespace = Some(object.namespace()).filter(|_| self.gvr.namespaced);
        ObjectKey::new(namespace, object.name())
    }

    fn resource_version<'a>(&self, object: &'a Object) -> &'a str {
        &object.resource_version
    }

    fn decode(&self, content_type: ContentType, bytes: &[u8]) -> Result<Object, DecodeError> {
        match content_type {
            ContentType::Json => self.decode(bytes).map_err(|error| DecodeError::Invalid(Box::new(error))),
            other => Err(DecodeError::UnsupportedContentType(other)),
        }
    }
}

/// An object of an unknown kind: only its metadata is known.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Unknown<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
}

impl<'a> Document<'a> for Unknown<'a> {
    const KEEPS_RAW: bool = true;

    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, _: &mut Interners, raw: Option<RawObject>) -> Result<Body, FieldError> {
        Ok(Body::Other(Arc::new(raw.unwrap_or_default().value())))
    }
}

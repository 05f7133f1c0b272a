//! Object metadata.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use super::error::{DecodeErrorKind, FieldError};
use super::json::{List, Obj, Pairs, Str};
use super::proto::message;

/// The `metadata` of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub(super) namespace: Str<'a>,
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) uid: Str<'a>,
    #[serde(borrow)]
    pub(super) resource_version: Str<'a>,
    pub(super) generation: Option<i64>,
    #[serde(borrow)]
    pub(super) deletion_timestamp: Str<'a>,
    #[serde(borrow)]
    pub(super) creation_timestamp: Str<'a>,
    #[serde(borrow)]
    pub(super) labels: Pairs<'a>,
    #[serde(borrow)]
    pub(super) annotations: Pairs<'a>,
    #[serde(borrow)]
    owner_references: List<Obj<OwnerReference<'a>>>,
    #[serde(borrow)]
    pub(super) finalizers: List<Str<'a>>,
}

// No kind that is read as protobuf needs the other fields.
message!(Metadata { 1 => name, 3 => namespace, 5 => uid, 6 => resource_version, 7 => generation, 9 => deletion_timestamp as time, 11 => labels, 12 => annotations, 13 => owner_references });

/// An entry of `metadata.ownerReferences`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct OwnerReference<'a> {
    #[serde(borrow)]
    pub(super) api_version: Str<'a>,
    #[serde(borrow)]
    pub(super) kind: Str<'a>,
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) uid: Str<'a>,
    controller: Option<bool>,
}

message!(OwnerReference { 1 => kind, 3 => name, 4 => uid, 5 => api_version, 6 => controller });

impl Metadata<'_> {
    /// The owner reference of the controller.
    pub(super) fn controller(&self) -> Option<&OwnerReference<'_>> {
        self.owner_references.iter().map(|owner| &**owner).find(|owner| owner.controller == Some(true))
    }
}

/// Fails if a field that identifies the object is empty.
pub(super) fn required(path: &'static str, text: &str) -> Result<(), FieldError> {
    if text.is_empty() {
        return Err(FieldError::new(path, DecodeErrorKind::Missing));
    }
    Ok(())
}

/// A time; `None` if there is none.
pub(super) fn time(text: &Str<'_>, path: impl fmt::Display) -> Result<Option<jiff::Timestamp>, FieldError> {
    let time = text.non_empty().map(str::parse).transpose();
    time.map_err(|error| FieldError::new(path, DecodeErrorKind::Time(error)))
}

/// The annotation keys that plugins declared. Other annotations are dropped.
#[derive(Debug)]
pub(super) struct DeclaredKeys(Box<[Arc<str>]>);

impl<K: Into<Arc<str>>> FromIterator<K> for DeclaredKeys {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let mut keys: Vec<Arc<str>> = keys.into_iter().map(Into::into).collect();
        keys.sort();
        Self(keys.into())
    }
}

impl DeclaredKeys {
    pub(super) fn contains(&self, key: &str) -> bool {
        self.0.binary_search_by(|known| (**known).cmp(key)).is_ok()
    }
}

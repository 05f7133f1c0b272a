//! `metav1`'s messages, and their conversions to the types of `k8s-openapi`.
//!
//! Go writes every string and number that is not a pointer, which makes empty and absent values
//! equal. The conversions omit them, as JSON does.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as api;
use k8s_openapi::jiff::Timestamp;
use kube::core::Status as KubeStatus;
use kube::core::response::{
    StatusCause as KubeCause, StatusDetails as KubeDetails, StatusSummary as KubeSummary,
};
use prost::Message;

use crate::kind::DecodeError;

/// `metav1.ObjectMeta`, for kinds that keep all metadata. It is field 1 of objects.
#[derive(Clone, PartialEq, Message)]
pub struct ObjectMeta {
    /// The name, unique within the namespace.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The prefix of a generated name.
    #[prost(string, tag = "2")]
    pub generate_name: String,
    /// The namespace; empty for cluster-scoped objects.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// Not set by servers since 1.20.
    #[prost(string, tag = "4")]
    pub self_link: String,
    /// The UID, unique across time and space.
    #[prost(string, tag = "5")]
    pub uid: String,
    /// The resource version, which changes on every write.
    #[prost(string, tag = "6")]
    pub resource_version: String,
    /// Counts changes of the desired state.
    #[prost(int64, tag = "7")]
    pub generation: i64,
    /// The creation time.
    #[prost(message, optional, tag = "8")]
    pub creation_timestamp: Option<Time>,
    /// The time of the graceful deletion, in the past or the future.
    #[prost(message, optional, tag = "9")]
    pub deletion_timestamp: Option<Time>,
    /// The grace period in seconds.
    #[prost(int64, optional, tag = "10")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// The labels, which selectors match.
    #[prost(btree_map = "string, string", tag = "11")]
    pub labels: BTreeMap<String, String>,
    /// The annotations, which they do not.
    #[prost(btree_map = "string, string", tag = "12")]
    pub annotations: BTreeMap<String, String>,
    /// The objects on which this one depends.
    #[prost(message, repeated, tag = "13")]
    pub owner_references: Vec<OwnerReference>,
    /// The finalizers that must be removed before the deletion.
    #[prost(string, repeated, tag = "14")]
    pub finalizers: Vec<String>,
    /// The managers of the object's fields.
    #[prost(message, repeated, tag = "17")]
    pub managed_fields: Vec<ManagedFieldsEntry>,
}

/// `metav1.Time`. Without seconds, it is Go's zero time, which is null in JSON.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Time {
    /// Seconds since 1970.
    #[prost(int64, optional, tag = "1")]
    pub seconds: Option<i64>,
    /// Always 0: JSON has no room for nanoseconds, so Go drops them.
    #[prost(int32, optional, tag = "2")]
    pub nanos: Option<i32>,
}

/// `metav1.OwnerReference`.
#[derive(Clone, PartialEq, Message)]
pub struct OwnerReference {
    /// The owner's kind.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// The owner's name.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The owner's UID.
    #[prost(string, tag = "4")]
    pub uid: String,
    /// The owner's group and version.
    #[prost(string, tag = "5")]
    pub api_version: String,
    /// Whether the owner is the controller.
    #[prost(bool, optional, tag = "6")]
    pub controller: Option<bool>,
    /// Whether the owner's deletion waits for this object.
    #[prost(bool, optional, tag = "7")]
    pub block_owner_deletion: Option<bool>,
}

/// `metav1.ManagedFieldsEntry`.
#[derive(Clone, PartialEq, Message)]
pub struct ManagedFieldsEntry {
    /// The manager's name.
    #[prost(string, tag = "1")]
    pub manager: String,
    /// `Apply` or `Update`.
    #[prost(string, tag = "2")]
    pub operation: String,
    /// The API version of the fields.
    #[prost(string, tag = "3")]
    pub api_version: String,
    /// The time of the last change.
    #[prost(message, optional, tag = "4")]
    pub time: Option<Time>,
    /// Always `FieldsV1`.
    #[prost(string, tag = "6")]
    pub fields_type: String,
    /// The managed fields.
    #[prost(message, optional, tag = "7")]
    pub fields_v1: Option<FieldsV1>,
    /// The subresource through which the fields were set, if any.
    #[prost(string, tag = "8")]
    pub subresource: String,
}

/// `metav1.FieldsV1`.
#[derive(Clone, PartialEq, Message)]
pub struct FieldsV1 {
    /// The fields in JSON.
    #[prost(bytes = "vec", tag = "1")]
    pub raw: Vec<u8>,
}

/// `metav1.PartialObjectMetadata`. Nearly all objects have this prefix, so it decodes whole
/// objects, too.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartialObjectMetadata {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ObjectMeta>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListMeta {
    #[prost(string, tag = "2")]
    pub(crate) resource_version: String,
    #[prost(string, tag = "3")]
    pub(crate) continue_token: String,
    #[prost(int64, optional, tag = "4")]
    remaining_item_count: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
    #[prost(string, tag = "2")]
    summary: String,
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(message, optional, tag = "5")]
    details: Option<StatusDetails>,
    #[prost(int32, tag = "6")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct StatusDetails {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    group: String,
    #[prost(string, tag = "3")]
    kind: String,
    #[prost(message, repeated, tag = "4")]
    causes: Vec<StatusCause>,
    #[prost(int32, tag = "5")]
    retry_after_seconds: i32,
    #[prost(string, tag = "6")]
    uid: String,
}

#[derive(Clone, PartialEq, Message)]
struct StatusCause {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(string, tag = "3")]
    field: String,
}

fn text(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn some<T>(all: Vec<T>) -> Option<Vec<T>> {
    Some(all).filter(|all| !all.is_empty())
}

fn map(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    Some(map).filter(|map| !map.is_empty())
}

fn time(time: Option<Time>) -> Result<Option<api::Time>, DecodeError> {
    let Some(seconds) = time.and_then(|time| time.seconds) else { return Ok(None) };
    let time = Timestamp::from_second(seconds).map_err(|error| DecodeError::Invalid(Box::new(error)))?;
    Ok(Some(api::Time(time)))
}

impl TryFrom<ObjectMeta> for api::ObjectMeta {
    type Error = DecodeError;

    fn try_from(meta: ObjectMeta) -> Result<Self, DecodeError> {
        let owners = meta.owner_references.into_iter().map(Into::into).collect();
        let managed = meta.managed_fields.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?;
        Ok(Self {
            name: text(meta.name),
            generate_name: text(meta.generate_name),
            namespace: text(meta.namespace),
            self_link: text(meta.self_link),
            uid: text(meta.uid),
            resource_version: text(meta.resource_version),
            generation: Some(meta.generation).filter(|generation| *generation != 0),
            creation_timestamp: time(meta.creation_timestamp)?,
            deletion_timestamp: time(meta.deletion_timestamp)?,
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            labels: map(meta.labels),
            annotations: map(meta.annotations),
            owner_references: some(owners),
            finalizers: some(meta.finalizers),
            managed_fields: some(managed),
        })
    }
}

impl From<OwnerReference> for api::OwnerReference {
    fn from(owner: OwnerReference) -> Self {
        Self {
            api_version: owner.api_version,
            block_owner_deletion: owner.block_owner_deletion,
            controller: owner.controller,
            kind: owner.kind,
            name: owner.name,
            uid: owner.uid,
        }
    }
}

impl TryFrom<ManagedFieldsEntry> for api::ManagedFieldsEntry {
    type Error = DecodeError;

    fn try_from(entry: ManagedFieldsEntry) -> Result<Self, DecodeError> {
        let fields = entry.fields_v1.map(|fields| serde_json::from_slice(&fields.raw)).transpose()?;
        Ok(Self {
            api_version: text(entry.api_version),
            fields_type: text(entry.fields_type),
            fields_v1: fields.map(api::FieldsV1),
            manager: text(entry.manager),
            operation: text(entry.operation),
            subresource: text(entry.subresource),
            time: time(entry.time)?,
        })
    }
}

impl From<ListMeta> for api::ListMeta {
    fn from(meta: ListMeta) -> Self {
        Self {
            continue_: text(meta.continue_token),
            remaining_item_count: meta.remaining_item_count,
            resource_version: text(meta.resource_version),
            ..Self::default()
        }
    }
}

impl From<Status> for KubeStatus {
    fn from(status: Status) -> Self {
        Self {
            status: match status.summary.as_str() {
                "Success" => Some(KubeSummary::Success),
                "Failure" => Some(KubeSummary::Failure),
                _ => None,
            },
            code: u16::try_from(status.code).unwrap_or_default(),
            message: status.message,
            metadata: status.metadata.map(Into::into),
            reason: status.reason,
            details: status.details.map(Into::into),
        }
    }
}

impl From<StatusDetails> for KubeDetails {
    fn from(details: StatusDetails) -> Self {
        let cause = |cause: StatusCause| KubeCause {
            reason: cause.reason,
            message: cause.message,
            field: cause.field,
        };
        Self {
            name: details.name,
            group: details.group,
            kind: details.kind,
            uid: details.uid,
            causes: details.causes.into_iter().map(cause).collect(),
            retry_after_seconds: u32::try_from(details.retry_after_seconds).unwrap_or_default(),
        }
    }
}

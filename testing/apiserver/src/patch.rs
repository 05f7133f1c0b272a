//! Patches: JSON patch, merge patch, strategic merge patch and server-side apply.
//!
//! The first three derive a new object from the current one ([`apply_to`]). Server-side apply also
//! tracks field owners ([`apply`], [`managed`]). All operate on JSON as sent. The decoder, not this
//! module, handles unknown fields, nulls and values of the wrong type; [`undecodable`] words its
//! errors.
//!
//! Not implemented: `fieldValidation` (bodies are always read with the default, `Warn`), CBOR, and
//! detection of duplicate keys, of which the last wins.

pub(crate) mod apply;
mod errors;
mod fields;
mod golang;
mod json;
pub(crate) mod managed;
mod merge;
mod owners;
mod strategic;
mod typed;

use http::StatusCode;
use serde_json::{Map, Value};

pub(crate) use json::Operation;

use crate::schema::TypeId;
use crate::status::{Result, Status, StatusCause};
use errors::{status, unsupported};
use golang::Shown;

/// JSON patch, RFC 6902.
pub(crate) const JSON: &str = "application/json-patch+json";
/// JSON merge patch, RFC 7386.
pub(crate) const MERGE: &str = "application/merge-patch+json";
/// Strategic merge patch.
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Server-side apply.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A parsed patch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Patch {
    /// Operations, applied in order.
    Json(Vec<Operation>),
    /// Fields to set; null removes a field.
    Merge(Map<String, Value>),
    /// As `Merge`, but lists are merged by their patch strategy.
    Strategic(Map<String, Value>),
    /// The fields that the caller wants to own, for [`apply::apply`].
    Apply(Value),
}

/// Parses the body of a patch request. Custom resources do not support strategic merge patch.
pub(crate) fn parse(content_type: &str, body: &[u8], custom: bool) -> Result<Patch> {
    let media_type = content_type.split(';').next().unwrap_or_default();
    match media_type {
        JSON => json::parse(body).map(Patch::Json),
        MERGE => merge::parse(body).map(Patch::Merge),
        STRATEGIC if !custom => strategic::parse(body).map(Patch::Strategic),
        APPLY => apply::parse(body).map(Patch::Apply),
        _ if custom => Err(Status::unsupported_media_type(&[JSON, MERGE, APPLY])),
        // Upstream's router rejects these before the handler of built-in kinds can list the
        // supported types.
        _ => Err(unsupported()),
    }
}

/// Applies a JSON, merge or strategic merge patch to the current object. A strategic merge patch
/// requires a type, which custom resources lack.
pub(crate) fn apply_to(patch: &Patch, current: &Value, type_id: Option<TypeId>) -> Result<Value> {
    match patch {
        Patch::Json(operations) => json::apply(operations, current),
        Patch::Merge(patch) => Ok(merge::apply(patch, current)),
        Patch::Strategic(patch) => match type_id {
            Some(type_id) => strategic::apply(type_id, patch, current),
            None => Err(Status::bad_request("strategic merge patch format is not supported")),
        },
        Patch::Apply(_) => Err(Status::internal("server-side apply needs a field manager")),
    }
}

/// Checks the options of a patch as upstream does: apply requires a field manager, and only apply
/// can be forced.
pub(crate) fn check_options(patch: &Patch, field_manager: &str, force: Option<bool>) -> Result<()> {
    let cause = match patch {
        Patch::Apply(_) if field_manager.is_empty() => {
            StatusCause::required("fieldManager", "is required for apply patch")
        }
        Patch::Json(_) | Patch::Merge(_) | Patch::Strategic(_) if force.is_some() => {
            StatusCause::forbidden("force", "may not be specified for non-apply patch")
        }
        _ => return Ok(()),
    };
    let message = format!("PatchOptions.meta.k8s.io \"\" is invalid: {}: {}", cause.field, cause.message);
    let mut status = status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).because(vec![cause]);
    "meta.k8s.io".clone_into(&mut status.details.group);
    "PatchOptions".clone_into(&mut status.details.kind);
    Err(status)
}

/// 422: the patched object has a value of the wrong type. `why` is the decoder's error.
pub(crate) fn undecodable(patch: &Patch, patched: &Value, why: &str) -> Status {
    let value = match patch {
        Patch::Strategic(patch) => Shown::map(patch).to_string(),
        _ => patched.to_string(),
    };
    let cause = StatusCause::invalid("patch", &value.into(), why);
    let message = format!(" \"\" is invalid: {}: {}", cause.field, cause.message);
    status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).because(vec![cause])
}

#[cfg(test)]
mod tests;

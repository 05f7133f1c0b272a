//! Patches: JSON patch, merge patch, strategic merge patch, server-side apply.
//!
//! The first three make a new object from the current one ([`apply_to`]); the last also tracks who owns which field
//! ([`apply`], [`managed`]). All work on JSON as it goes over the wire. What a patch leaves behind is not checked here:
//! unknown fields, nulls and values of the wrong type are the pruning's part ([`undecodable`] words the last).
//!
//! Left out: `fieldValidation` (bodies are read as with `Warn`, which is the default), CBOR, and duplicate keys, of which
//! the last counts.

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
use crate::status::{Cause, Result, Status};
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

/// What is to be changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Patch {
    /// Operations, one after the other.
    Json(Vec<Operation>),
    /// Fields to set, or with null to remove.
    Merge(Map<String, Value>),
    /// The same, with lists merged as their type says.
    Strategic(Map<String, Value>),
    /// All that the caller wants to own, for [`apply::apply`].
    Apply(Value),
}

/// Reads the body of a patch request. Custom resources have no strategic merge patch.
pub(crate) fn parse(content_type: &str, body: &[u8], custom: bool) -> Result<Patch> {
    let media_type = content_type.split(';').next().unwrap_or_default();
    match media_type {
        JSON => json::parse(body).map(Patch::Json),
        MERGE => merge::parse(body).map(Patch::Merge),
        STRATEGIC if !custom => strategic::parse(body).map(Patch::Strategic),
        APPLY => apply::parse(body).map(Patch::Apply),
        _ if custom => Err(Status::unsupported_media_type(&[JSON, MERGE, APPLY])),
        // Upstream's router refuses before the handler of built-in kinds could list what it reads.
        _ => Err(unsupported()),
    }
}

/// The object that a JSON, merge or strategic merge patch makes of the current one. Without a type, as custom resources
/// are, a strategic merge patch is refused.
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

/// What upstream checks of a patch's options: apply needs a field manager, and only apply can be forced.
pub(crate) fn check_options(patch: &Patch, field_manager: &str, force: Option<bool>) -> Result<()> {
    let cause = match patch {
        Patch::Apply(_) if field_manager.is_empty() => {
            Cause::required("fieldManager", "is required for apply patch")
        }
        Patch::Json(_) | Patch::Merge(_) | Patch::Strategic(_) if force.is_some() => {
            Cause::forbidden("force", "may not be specified for non-apply patch")
        }
        _ => return Ok(()),
    };
    let message = format!("PatchOptions.meta.k8s.io \"\" is invalid: {}: {}", cause.field, cause.message);
    let mut status = status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).because(vec![cause]);
    "meta.k8s.io".clone_into(&mut status.details.group);
    "PatchOptions".clone_into(&mut status.details.kind);
    Err(status)
}

/// 422: the patched object has a value of the wrong type. `why` is the decoder's word.
pub(crate) fn undecodable(patch: &Patch, patched: &Value, why: &str) -> Status {
    let value = match patch {
        Patch::Strategic(patch) => Shown::map(patch).to_string(),
        _ => patched.to_string(),
    };
    let cause = Cause::invalid("patch", &value.into(), why);
    let message = format!(" \"\" is invalid: {}: {}", cause.field, cause.message);
    status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).because(vec![cause])
}

#[cfg(test)]
mod tests;

//! The errors of the API server: `metav1.Status`, with upstream's reasons and messages.

use std::fmt;

use http::StatusCode;
use serde_json::{Value, json};
use thiserror::Error;

use crate::kinds::Kind;

/// A failed request's error; upstream's `metav1.Status`.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{message}")]
pub struct Status {
    /// The HTTP status.
    pub code: StatusCode,
    /// Upstream's `metav1.StatusReason`, for example `NotFound`; empty for none.
    pub reason: &'static str,
    /// The message for humans.
    pub message: String,
    /// The details for programs.
    pub details: Box<Details>,
}

/// The details of a [`Status`]; upstream's `metav1.StatusDetails`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// The object's name.
    pub name: String,
    /// The API group.
    pub group: String,
    /// The resource; for invalid objects, the kind.
    pub kind: String,
    /// The object's UID.
    pub uid: String,
    /// The field errors.
    pub causes: Vec<StatusCause>,
    /// The seconds to wait before a retry; 0 for none.
    pub retry_after_seconds: u32,
    /// Whether the details are written even when empty.
    pub generic: bool,
    /// The token to continue an expired list inconsistently. It goes into the metadata of the
    /// Status.
    pub continues: String,
}

/// A single error, usually about a field.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusCause {
    /// For example `FieldValueRequired`.
    pub reason: &'static str,
    /// For example `Required value`.
    pub message: String,
    /// For example `spec.containers[0].name`.
    pub field: String,
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, Status>;

impl Status {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Box::default() }
    }

    fn about(mut self, kind: &Kind, name: &str) -> Self {
        name.clone_into(&mut self.details.name);
        self.details.group = kind.group.to_string();
        self.details.kind = kind.resource.to_string();
        self
    }

    /// 404: no such object.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(kind, name)
    }

    /// 404: the group version has no such resource.
    pub fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
            .generic()
    }

    /// An error without a reason.
    pub fn unknown(code: StatusCode, message: impl Into<String>) -> Self {
        Self::new(code, "", message)
    }

    /// Writes empty details, as the errors of upstream's router do.
    #[must_use]
    pub fn generic(mut self) -> Self {
        self.details.generic = true;
        self
    }

    /// 409: an object of this name exists.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.qualified());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(kind, name)
    }

    /// 409: the object is not in the state that the request requires.
    pub fn conflict(kind: &Kind, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.qualified());
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(kind, name)
    }

    /// 409: the object was modified after the caller read it.
    pub fn stale(kind: &Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// 422: the object is invalid. `causes` must not be empty.
    pub fn invalid(kind: &Kind, name: &str, causes: Vec<StatusCause>) -> Self {
        // Validation uses the group of the stored version.
        Self::invalid_of(&kind.stored_in_group, &kind.kind, name, causes)
    }

    /// 422 for a type that is not a served kind.
    pub fn invalid_of(group: &str, kind: &str, name: &str, causes: Vec<StatusCause>) -> Self {
        // Upstream drops duplicates.
        let causes = StatusCause::union(Vec::new(), causes);
        let shown = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message));
        let mut wrong: Vec<String> = shown.collect();
        let wrong = if wrong.len() == 1 { wrong.remove(0) } else { format!("[{}]", wrong.join(", ")) };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{qualified} {name:?} is invalid: {wrong}");
        let mut status = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        *status.details = Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..Details::default()
        };
        status
    }

    /// 400: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401: the token is missing or wrong.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403: the operation is forbidden for every caller.
    pub fn forbidden(kind: &Kind, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", kind.qualified());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(kind, name)
    }

    /// 405: the resource does not support the verb.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).generic()
    }

    /// 406: none of the accepted content types is available.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", accepted.join(", "));
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message).generic()
    }

    /// 406: the content type is available, but not in the requested form.
    pub fn form_not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 410: the resourceVersion or continue token is older than the history.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 415: the content type of the body is not supported.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// 429: retry later.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut status = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        status.details.retry_after_seconds = retry_after_seconds;
        status
    }

    /// 500: an internal error.
    pub fn internal(message: impl fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// 501: a feature of the real server that this server does not implement.
    pub fn not_implemented(what: impl fmt::Display) -> Self {
        let message = format!("{what}: not implemented by the API server in memory");
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message)
    }

    /// 504: a timeout; the request may have taken effect.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    /// Sets the causes.
    #[must_use]
    pub fn because(mut self, causes: Vec<StatusCause>) -> Self {
        self.details.causes = causes;
        self
    }

    /// The `metav1.Status` as sent to clients.
    pub fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if !self.details.continues.is_empty() {
            status["metadata"]["continue"] = self.details.continues.as_str().into();
        }
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        let details = self.details.to_json();
        if self.details.generic || details.as_object().is_some_and(|fields| !fields.is_empty()) {
            status["details"] = details;
        }
        status
    }
}

impl Details {
    fn to_json(&self) -> Value {
        let mut details = json!({});
        let texts = [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)];
        for (key, text) in texts {
            if !text.is_empty() {
                details[key] = text.as_str().into();
            }
        }
        if !self.causes.is_empty() {
            details["causes"] = self.causes.iter().map(StatusCause::to_json).collect();
        }
        if self.retry_after_seconds > 0 {
            details["retryAfterSeconds"] = self.retry_after_seconds.into();
        }
        details
    }
}

impl StatusCause {
    fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self { reason, message, field: field.into() }
    }

    /// A required field is missing.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueRequired", field, with_detail("Required value", detail))
    }

    /// A value is invalid.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            "FieldValueInvalid",
            field,
            with_detail(&format!("Invalid value: {}", shown(value)), detail),
        )
    }

    /// A value is not one of the supported ones.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message = format!("Unsupported value: {}: supported values: {}", shown(value), quoted.join(", "));
        Self::new("FieldValueNotSupported", field, message)
    }

    /// A value is a duplicate.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {}", shown(value)))
    }

    /// A field must not be set or changed.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, with_detail("Forbidden", detail))
    }

    /// The causes of two checks, without duplicates.
    pub(crate) fn union(mut causes: Vec<Self>, more: Vec<Self>) -> Vec<Self> {
        for cause in more {
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
        causes
    }

    fn to_json(&self) -> Value {
        let mut cause = json!({"reason": self.reason, "message": self.message});
        if !self.field.is_empty() {
            cause["field"] = self.field.as_str().into();
        }
        cause
    }
}

fn with_detail(message: &str, detail: &str) -> String {
    if detail.is_empty() { message.to_owned() } else { format!("{message}: {detail}") }
}

/// A value in upstream's format: strings quoted, other values as JSON.
fn shown(value: &Value) -> String {
    value.to_string()
}

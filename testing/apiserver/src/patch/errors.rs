//! The errors of patches, in upstream's words.

use http::StatusCode;
use serde_json::Value;

use crate::decode::kind_of;
use crate::status::Status;

pub(super) fn status(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Status {
    Status { code, reason, message: message.into(), details: Box::default() }
}

/// 500 without a reason: upstream's response to errors that have no status.
pub(super) fn unknown(message: impl Into<String>) -> Status {
    status(StatusCode::INTERNAL_SERVER_ERROR, "", message)
}

/// 422 without details: upstream's response to a patch that does not fit the object.
pub(super) fn rejected() -> Status {
    let message = "the server rejected our request due to an error in our request";
    status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).generic()
}

pub(super) fn unsupported() -> Status {
    status(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", "415: Unsupported Media Type")
        .generic()
}

/// Parses JSON, with Go's error text where both parsers report the same error.
pub(super) fn decode(body: &[u8]) -> std::result::Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| {
        if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() }
    })
}

pub(super) fn cannot_unmarshal(value: &Value, into: &str) -> String {
    format!("json: cannot unmarshal {} into Go {into}", kind_of(value))
}

//! Decodes the `Status` of failed requests.

use http::Response;
use http::header::RETRY_AFTER;
use kube::client::Body;
use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails};

use super::chunk::next_chunk;
use crate::kind::{ContentType, DecodeError};
use crate::protobuf;

/// The maximum number of bytes read from an error's body.
const MAX_ERROR_BODY: usize = 64 << 10;

/// The `Status` of a failed request. Proxies do not send one, so theirs is built from the HTTP
/// status and the body's text.
pub(super) async fn refusal(answer: Response<Body>) -> Status {
    let code = answer.status();
    let wait = answer.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse::<u32>().ok());
    let mut body = answer.into_body();
    let mut text = Vec::new();
    while let Ok(Some(chunk)) = next_chunk(&mut body).await {
        text.extend_from_slice(chunk.as_ref());
        if text.len() > MAX_ERROR_BODY {
            text.truncate(MAX_ERROR_BODY);
            break;
        }
    }
    // The content type of an error can be missing or wrong, so the body decides.
    let decoded = if text.starts_with(protobuf::MAGIC) {
        protobuf::open_envelope(&text)
            .map_err(Into::into)
            .and_then(|(content_type, object)| decode(content_type, object))
    } else {
        decode(ContentType::Json, &text)
    };
    // Other JSON decodes as a `Status` without any field set.
    let decoded = decoded.ok().filter(|status| !status.message.is_empty() || !status.reason.is_empty());
    let mut status = decoded.unwrap_or_else(|| match std::str::from_utf8(&text) {
        Ok(text) if !text.contains('\0') => Status::failure(text.trim(), ""),
        _ => Status::failure(code.canonical_reason().unwrap_or_default(), ""),
    });
    if status.code == 0 {
        status.code = code.as_u16();
    }
    if let Some(seconds) = wait {
        status.details.get_or_insert_with(no_details).retry_after_seconds = seconds;
    }
    status
}

/// Decodes a `Status` without its envelope.
pub(super) fn decode(content_type: ContentType, object: &[u8]) -> Result<Status, DecodeError> {
    match content_type {
        ContentType::Json => Ok(serde_json::from_slice(object)?),
        ContentType::Protobuf => protobuf::status(object),
    }
}

/// client-go's words for an event that cannot be decoded. The reflector treats it as a server error
/// and lists, because the affected object is unknown.
pub(super) fn unreadable_event(why: &DecodeError) -> Status {
    let message = format!("unable to decode an event from the watch stream: {why}");
    let cause = StatusCause {
        reason: "ClientWatchDecoding".to_owned(),
        message: message.clone(),
        field: String::new(),
    };
    let details = StatusDetails { causes: vec![cause], ..no_details() };
    Status::failure(&message, "InternalError").with_code(500).with_details(details)
}

fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

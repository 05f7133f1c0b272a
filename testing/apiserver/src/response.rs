//! Complete responses, and the body type of all responses.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use thiserror::Error;

use crate::encode::value_bytes;
use crate::media::Encoding;
use crate::status::Status;

/// The body of a response.
pub type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Disconnect>;

/// The connection closes without a response, or in the middle of one.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the server closed the connection")]
pub struct Disconnect;

/// A response with a complete body.
pub(crate) fn answer(code: StatusCode, content_type: &'static str, body: Bytes) -> Response<Body> {
    let body = Body::new(Full::new(body).map_err(|never| match never {}));
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The response for unknown paths, which is not a Status.
pub(crate) fn page_not_found() -> Response<Body> {
    answer(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n".into())
}

/// The response to a failed request.
pub(crate) fn error_response(status: &Status, encoding: Encoding) -> Response<Body> {
    let mut response = answer(status.code, encoding.name(), value_bytes(&status.to_json(), encoding));
    let retry_after = status.details.retry_after_seconds;
    if retry_after > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, retry_after.into());
    }
    response
}

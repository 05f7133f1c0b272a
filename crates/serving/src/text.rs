//! Responses: plain text, JSON, and the API's Status.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// The content type of plain text, as upstream.
pub(super) const PLAIN: &str = "text/plain; charset=utf-8";
/// The content type of JSON.
pub(super) const JSON: &str = "application/json";

/// A response with this type and body.
pub(super) fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A response with this text.
pub(super) fn plain(status: StatusCode, text: impl Into<Body>) -> Response {
    answer(status, PLAIN, text)
}

/// A response with this text and a line break.
pub(super) fn plain_line(status: StatusCode, mut text: String) -> Response {
    text.push('\n');
    plain(status, text)
}

/// A response with this JSON.
pub(super) fn json(value: &Value) -> Response {
    answer(StatusCode::OK, JSON, value.to_string())
}

/// 404, in Go's words.
pub(super) fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// 401.
pub(super) fn unauthorized() -> Response {
    let body = status_body(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
    answer(StatusCode::UNAUTHORIZED, JSON, format!("{body}\n"))
}

/// 429, in upstream's words.
pub(super) fn too_many_requests() -> Response {
    let text = "Too many requests, please try again later.".to_owned();
    let mut response = plain_line(StatusCode::TOO_MANY_REQUESTS, text);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// 403; `why` is the API server's reason, or empty.
pub(super) fn forbidden(user: &str, verb: &str, path: &str, why: &str) -> Response {
    let separator = if why.is_empty() { "" } else { ": " };
    let message = format!("forbidden: User {user:?} cannot {verb} path {path:?}{separator}{why}");
    let mut body = status_body(StatusCode::FORBIDDEN, "Forbidden", &message);
    body["details"] = json!({});
    answer(StatusCode::FORBIDDEN, JSON, format!("{body}\n"))
}

fn status_body(code: StatusCode, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    })
}

/// The second line of z-pages, in upstream's words.
const ZPAGE_WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting \
     compatibility guarantees and is for debugging purposes only.";

/// A z-page: title, warning and content.
pub(super) fn zpage(name: &str, text: &str) -> Response {
    plain(StatusCode::OK, format!("\nsupercargo {name}\n{ZPAGE_WARNING}\n\n{text}"))
}

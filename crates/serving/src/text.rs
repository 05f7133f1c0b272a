//! Answers: plain text, JSON, and the API's own Status.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// As upstream's, for everything that people read.
pub(super) const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// An answer with this type and body.
pub(super) fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Text as it is.
pub(super) fn plain(status: StatusCode, text: impl Into<Body>) -> Response {
    answer(status, PLAIN, text)
}

/// Text with an end of line.
pub(super) fn plain_line(status: StatusCode, mut text: String) -> Response {
    text.push('\n');
    plain(status, text)
}

/// JSON.
pub(super) fn json(value: &Value) -> Response {
    answer(StatusCode::OK, JSON, value.to_string())
}

/// There is nothing there, in Go's words.
pub(super) fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// It is not known who asks.
pub(super) fn unauthorized() -> Response {
    let body = status_body(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
    answer(StatusCode::UNAUTHORIZED, JSON, format!("{body}\n"))
}

/// Whoever asks may not; `why` is the API server's word, or empty.
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

/// A page for people: what it is, a warning, and what it says.
pub(super) fn zpage(name: &str, text: &str) -> Response {
    plain(
        StatusCode::OK,
        format!(
            "\nsupercargo {name}\nWarning: this is for people; its form may change from version to version.\n\n{text}"
        ),
    )
}

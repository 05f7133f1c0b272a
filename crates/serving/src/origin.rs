//! Detects requests from pages of other sites. Browsers name the site in headers; other programs
//! send none of them.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::text::plain_line;

/// The header in which a browser says whether the page is of the same site.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The answer to such a page.
pub(super) const REFUSAL: &str = "the request is from another site";

/// Whether a page of another site than `own`, such as `https://host:10259`, sends the request.
/// Other sites may link to a start.
pub(super) fn is_foreign(headers: &HeaderMap, own: &str, is_start: bool) -> bool {
    let is_other = |origin: &HeaderValue| origin.as_bytes() != own.as_bytes();
    let is_cross = |site: &HeaderValue| !matches!(site.as_bytes(), b"same-origin" | b"none");
    headers.get(header::ORIGIN).is_some_and(is_other)
        || (!is_start && headers.get(FETCH_SITE).is_some_and(is_cross))
}

/// Answers own pages only. A browser with a client certificate sends it for every site's requests.
/// Paths of starts end with `/`.
pub(super) async fn refuse_foreign(request: Request, next: Next) -> Response {
    let host = || request.headers().get(header::HOST)?.to_str().ok();
    // HTTP/2 has no Host.
    let host = request.uri().authority().map(Authority::as_str).or_else(host).unwrap_or_default();
    let is_start = request.uri().path().ends_with('/');
    if is_foreign(request.headers(), &format!("https://{host}"), is_start) {
        return plain_line(StatusCode::FORBIDDEN, REFUSAL.to_owned());
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn pages_of_other_sites_are_refused() {
        let routes = Router::new()
            .route("/insight/", get(async || "page"))
            .route("/insight/what-if", get(async || "answer"))
            .layer(axum::middleware::from_fn(refuse_foreign));
        let (page, answer) = ("/insight/", "/insight/what-if");
        for (status, path, name, value) in [
            (200, answer, "user-agent", "curl"),
            (200, answer, "sec-fetch-site", "same-origin"),
            (200, answer, "sec-fetch-site", "none"),
            (200, answer, "origin", "https://host:10259"),
            (403, answer, "sec-fetch-site", "cross-site"),
            (403, answer, "sec-fetch-site", "same-site"),
            (403, answer, "origin", "https://host"),
            (403, answer, "origin", "http://host:10259"),
            (403, answer, "origin", "null"),
            (200, page, "sec-fetch-site", "cross-site"),
            (403, page, "origin", "https://other"),
        ] {
            for (uri, host) in
                [(path.to_owned(), Some("host:10259")), (format!("https://host:10259{path}"), None)]
            {
                let mut request = Request::get(uri).header(name, value);
                if let Some(host) = host {
                    request = request.header("host", host);
                }
                let response = routes.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
                assert_eq!(response.status(), status, "{path} {name}: {value}, {host:?}");
            }
        }
    }
}

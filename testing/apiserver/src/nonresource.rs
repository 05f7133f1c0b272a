//! Paths outside of resources: discovery, OpenAPI, version, health.

use std::sync::Arc;

use http::{HeaderMap, Method, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::encode::value_bytes;
use crate::kinds::Kind;
use crate::media::{Encoding, Form, Media};
use crate::request::ApiRequest;
use crate::response::{Body, answer, page_not_found};
use crate::server::Shared;
use crate::status::{Result, Status};
use crate::{discovery, openapi};

/// Responds to a request for such a path.
pub(crate) fn answer_path(shared: &Shared, request: &ApiRequest, path: &str) -> Result<Response<Body>> {
    let path = path.trim_end_matches('/');
    if let Some(endpoint) =
        ["/healthz", "/livez", "/readyz"].into_iter().find(|endpoint| path.starts_with(*endpoint))
    {
        let verbose = request.options.flag("verbose").unwrap_or_default();
        let text = discovery::health(&endpoint[1..], &["ping"], verbose);
        return Ok(answer(StatusCode::OK, "text/plain; charset=utf-8", text.into()));
    }
    let kinds: Vec<Arc<Kind>> = shared.state.lock().registry.kinds().to_vec();
    let kinds = || kinds.iter().map(|kind| &**kind);
    let custom = |kind: &Kind| shared.definition(kind)?["schema"].get("openAPIV3Schema").cloned();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match segments.as_slice() {
        ["api"] | ["apis"] => {
            let media = discovery_media(&request.headers)?;
            let core = path == "/api";
            let (value, content_type) = match (media.form, core) {
                (Form::Aggregated(_), true) => (discovery::aggregated_core(kinds()), discovery::AGGREGATED),
                (Form::Aggregated(_), false) => {
                    (discovery::aggregated_groups(kinds()), discovery::AGGREGATED)
                }
                (_, true) => (discovery::api_versions(&host(&request.headers)), media.encoding.name()),
                (_, false) => (discovery::api_group_list(kinds()), media.encoding.name()),
            };
            Ok(answer(StatusCode::OK, content_type, value_bytes(&value, media.encoding)))
        }
        ["apis", group] => found(request, discovery::api_group(kinds(), group)),
        ["api", version] => found(request, discovery::api_resource_list(kinds(), "", version)),
        ["apis", group, version] => found(request, discovery::api_resource_list(kinds(), group, version)),
        ["openapi", "v2"] if accepts(&request.headers, "proto-openapi") => {
            Ok(answer(StatusCode::OK, openapi::V2_PROTOBUF, openapi::v2_protobuf().into()))
        }
        ["openapi", "v2"] => found(request, Some(openapi::v2(kinds()))),
        ["openapi", "v3"] => found(request, Some(openapi::v3_index(kinds(), &custom))),
        ["openapi", "v3", "api", version] => found(request, openapi::v3(kinds(), "", version, &custom)),
        ["openapi", "v3", "apis", group, version] => {
            found(request, openapi::v3(kinds(), group, version, &custom))
        }
        ["version"] => found(request, Some(discovery::version())),
        [""] | [] => {
            found(request, Some(json!({"paths": ["/api", "/apis", "/healthz", "/openapi/v3", "/version"]})))
        }
        _ => Ok(page_not_found()),
    }
}

/// The media type of plain discovery, always JSON or YAML.
fn discovery_media(headers: &HeaderMap) -> Result<Media> {
    let media = Media::negotiate(headers, false).or_else(|status| {
        // Callers that accept only protobuf get JSON: clients read the content type.
        let protobuf = Media::negotiate(headers, true).map_err(|_| status)?;
        Ok(Media { encoding: Encoding::Json, ..protobuf })
    })?;
    Ok(media)
}

fn found(request: &ApiRequest, value: Option<Value>) -> Result<Response<Body>> {
    let Some(value) = value else { return Ok(page_not_found()) };
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    let encoding = discovery_media(&request.headers)?.encoding;
    Ok(answer(StatusCode::OK, encoding.name(), value_bytes(&value, encoding)))
}

/// Whether the caller's Accept header contains a word.
fn accepts(headers: &HeaderMap, word: &str) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|accept| accept.to_str().is_ok_and(|accept| accept.contains(word)))
}

/// The address under which the caller reached this server.
fn host(headers: &HeaderMap) -> String {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned()
}

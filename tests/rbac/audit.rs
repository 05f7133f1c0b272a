//! What a user asked of the API server, by its audit log.

use serde_json::Value;
use supercargo_controlplane::ControlPlane;

use super::manifests::text;
use super::rules::Access;

/// A request that has been answered.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// What it did to what; the resource is empty when it was no resource.
    pub(super) access: Access,
    /// The path.
    pub(super) uri: String,
    /// The status code of the answer.
    pub(super) code: u64,
}

impl Request {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether it asked what the server serves, which every authenticated user may know.
    pub(super) fn is_discovery(&self) -> bool {
        let path = self.uri.split('?').next().unwrap_or_default();
        self.access.1.is_empty() && (path.starts_with("/api/") || path.starts_with("/apis/"))
    }

    /// Whether it looked up whose certificates the endpoints believe. That takes a role of the cluster's own, and scheduling goes
    /// on without; see tests/e2e/endpoints.rs.
    pub(super) fn is_lookup(&self) -> bool {
        self.uri.ends_with("/configmaps/extension-apiserver-authentication")
    }

    /// Whether the user may not do this, or is none.
    pub(super) fn is_denied(&self) -> bool {
        [401, 403].contains(&self.code)
    }
}

/// What a user has asked for so far. A watch counts when it has ended.
pub(super) fn requests_of(plane: &ControlPlane, user: &str) -> Vec<Request> {
    let log = plane.audit_log().unwrap();
    log.iter().filter(|event| event["user"]["username"] == user).map(request).collect()
}

fn request(event: &Value) -> Request {
    let object = &event["objectRef"];
    let word = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let resource = match object["subresource"].as_str() {
        Some(subresource) => format!("{}/{subresource}", word("resource")),
        None => word("resource"),
    };
    Request {
        access: (word("apiGroup"), resource, text(&event["verb"]).to_owned()),
        uri: text(&event["requestURI"]).to_owned(),
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
    }
}

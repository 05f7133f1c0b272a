//! The requests of a user in the audit log.

use serde_json::Value;
use supercargo_controlplane::ControlPlane;

use super::manifests::text;
use super::rules::Access;

/// An answered request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Verb and resource; the resource is empty for other paths.
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

    /// Whether it is a discovery request, which every authenticated user may send.
    pub(super) fn is_discovery(&self) -> bool {
        let path = self.uri.split('?').next().unwrap_or_default();
        self.access.1.is_empty() && (path.starts_with("/api/") || path.starts_with("/apis/"))
    }

    /// Whether it reads the ConfigMap with the cluster's client CA. That needs another role, and
    /// scheduling works without it; see tests/e2e/endpoints.rs.
    pub(super) fn is_lookup(&self) -> bool {
        self.uri.ends_with("/configmaps/extension-apiserver-authentication")
    }

    /// Whether it was rejected as unauthenticated or forbidden.
    pub(super) fn is_denied(&self) -> bool {
        [401, 403].contains(&self.code)
    }
}

/// The requests of a user so far. A watch is logged when it ends.
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

//! Requests of the simulation itself, which no fault meets.

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use serde::de::DeserializeOwned;
use serde_json::Value;
use supercargo_apiserver::ApiServer;
use tower::util::ServiceExt as _;

/// The pods of the workload.
pub const PODS: &str = "/api/v1/namespaces/default/pods";
/// Its pods of groups, by their label.
pub const MEMBERS: &str = "/api/v1/namespaces/default/pods?labelSelector=member%3Dyes";
/// The extended resource that the class of devices backs, by its own name and by that of the class.
pub const EXTENDED_RESOURCES: [&str; 2] =
    ["supercargo.dev/gpu", "deviceclass.resource.kubernetes.io/gpu.supercargo.dev"];
/// Its claims for devices.
pub const RESOURCE_CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
/// The roots of its trees of gangs.
pub const COMPOSITES: &str = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default/compositepodgroups";
/// Its PodGroups.
pub const POD_GROUPS: &str = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups";

/// Sends a request and reads the response.
pub async fn ask(
    server: &ApiServer,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> (StatusCode, Value) {
    let (status, body) = send(server, method, path, body).await;
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

/// Sends a request. The response is not parsed, which takes long for large objects.
pub async fn tell(server: &ApiServer, method: Method, path: &str, body: Option<&Value>) -> StatusCode {
    send(server, method, path, body).await.0
}

/// Reads an object, or only those fields of it that its type has.
pub async fn get<T: DeserializeOwned>(server: &ApiServer, path: &str) -> Option<T> {
    let (status, body) = send(server, Method::GET, path, None).await;
    status.is_success().then(|| serde_json::from_slice(&body).ok()).flatten()
}

async fn send(server: &ApiServer, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, Bytes) {
    let content_type =
        if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .body(Full::<Bytes>::from(body.map_or_else(String::new, Value::to_string)))
        .expect("paths are valid");
    // The server restarts only between requests.
    let Ok(response) = server.service().oneshot(request).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, Bytes::new());
    };
    let status = response.status();
    let body = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => Bytes::new(),
    };
    (status, body)
}

/// The items of a list.
pub async fn list(server: &ApiServer, path: &str) -> Vec<Value> {
    match ask(server, Method::GET, path, None).await.1["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// A text in an object; empty if it is missing.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The UID of an object.
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// The node of a pod; empty if it has none.
pub fn node_of(pod: &Value) -> &str {
    text(pod, "/spec/nodeName")
}

//! The namespace of every pod.

/// Its name.
pub(super) const NAMESPACE: &str = "parity";

/// The path of a pod in the API.
pub(super) fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}")
}

//! What a kubelet demands of a pod's claims before it prepares the devices and starts the pod.

use serde_json::Value;

use super::Kubelets;
use crate::json::{list, present, text, text_at};
use crate::sim::claims::status_of;

impl Kubelets {
    /// Whether each claim of a pod has an allocation and is reserved for the pod. Otherwise its
    /// containers do not start, and the kubelet tries again.
    pub(super) fn can_prepare(&self, pod: &Value) -> bool {
        let extended = text(&pod["status"]["extendedResourceClaimStatus"], "resourceClaimName");
        list(&pod["spec"], "resourceClaims").iter().all(|entry| self.is_ready(pod, entry))
            && (extended.is_empty() || self.is_usable(pod, extended))
    }

    fn is_ready(&self, pod: &Value, entry: &Value) -> bool {
        let given = present(entry, "resourceClaimName").and_then(Value::as_str);
        let name = match (given, status_of(pod, text(entry, "name"))) {
            (Some(name), _) => name,
            (None, None) => return false,
            (None, Some(status)) => match text(status, "resourceClaimName") {
                // None is needed.
                "" => return true,
                name => name,
            },
        };
        self.is_usable(pod, name)
    }

    fn is_usable(&self, pod: &Value, name: &str) -> bool {
        let Some(kind) = &self.claim_kind else { return true };
        let Some(claim) = self.objects.get(kind, text_at(pod, "/metadata/namespace"), name) else {
            return false;
        };
        let status = &claim.value(kind)["status"];
        present(status, "allocation").is_some()
            && list(status, "reservedFor")
                .iter()
                .any(|consumer| text(consumer, "uid") == text_at(pod, "/metadata/uid"))
    }
}

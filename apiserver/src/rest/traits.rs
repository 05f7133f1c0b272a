//! In what the kinds' main verbs differ, beside their strategies.

use crate::kinds::Kind;

/// Whether an update without resourceVersion overwrites whatever there is.
pub(super) fn updates_unconditionally(kind: &Kind) -> bool {
    let resource = &*kind.resource;
    !kind.custom
        && !matches!(
            resource,
            "csidrivers"
                | "csinodes"
                | "csistoragecapacities"
                | "customresourcedefinitions"
                | "leases"
                | "poddisruptionbudgets"
                | "volumeattachments"
        )
}

/// Whether an update of what is not there creates it.
pub(super) fn creates_on_update(kind: &Kind) -> bool {
    matches!(
        &*kind.resource,
        "clusterrolebindings"
            | "clusterroles"
            | "endpoints"
            | "events"
            | "leases"
            | "limitranges"
            | "rolebindings"
            | "roles"
            | "services"
    ) && !kind.custom
}

/// Whether deletion answers with the object rather than with a Status.
pub(super) fn returns_deleted(kind: &Kind) -> bool {
    matches!(
        &*kind.resource,
        "csidrivers"
            | "csinodes"
            | "deviceclasses"
            | "namespaces"
            | "persistentvolumeclaims"
            | "persistentvolumes"
            | "pods"
            | "podtemplates"
            | "resourceclaims"
            | "resourceclaimtemplates"
            | "resourcequotas"
            | "resourceslices"
            | "serviceaccounts"
            | "services"
            | "storageclasses"
            | "volumeattachments"
    ) && !kind.custom
}

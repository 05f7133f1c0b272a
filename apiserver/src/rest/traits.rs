//! What deletion answers with.

use crate::kinds::Kind;

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

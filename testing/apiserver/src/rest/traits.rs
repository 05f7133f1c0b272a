//! In what the deletion of some kinds differs.

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

/// Whether dependents stay when the caller does not say what happens to them.
pub(super) fn orphans_by_default(kind: &Kind) -> bool {
    !kind.custom
        && matches!((&*kind.group, &*kind.resource), ("batch", "jobs") | ("", "replicationcontrollers"))
}

//! The result of waiting for informers.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

use crate::kind::GroupVersionResource;

/// The result of waiting for informers. Omits informers that were not started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncResult {
    /// The informers that have synced.
    pub synced: Vec<GroupVersionResource>,
    /// The informers that had not synced when the wait ended, or have failed since.
    pub failed: Vec<SyncFailure>,
}

impl SyncResult {
    /// Whether everything has synced.
    pub fn is_synced(&self) -> bool {
        self.failed.is_empty()
    }

    /// Each resource, and whether it has synced; same as client-go's `WaitForCacheSync`. Several
    /// informers of one resource count as synced when all are.
    pub fn by_resource(&self) -> BTreeMap<&GroupVersionResource, bool> {
        let synced = self.synced.iter().map(|resource| (resource, true));
        // Failures come last and overwrite successes.
        synced.chain(self.failed.iter().map(|failure| (&failure.resource, false))).collect()
    }

    /// An error that names the informers that have not synced, with the cause. Same as client-go's
    /// `SyncResult.AsError`.
    pub fn into_result(self) -> Result<(), SyncError> {
        if self.failed.is_empty() { Ok(()) } else { Err(SyncError { failed: self.failed }) }
    }
}

/// An informer that has not synced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncFailure {
    /// Its resource.
    pub resource: GroupVersionResource,
    /// The informer's failure, or its current list or watch error, if known.
    pub reason: Option<String>,
}

impl fmt::Display for SyncFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason.as_deref().unwrap_or("no failure, but not synced when the wait ended");
        write!(f, "{} ({reason})", self.resource)
    }
}

/// Not all informers have synced.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("failed to sync all caches: {}", .failed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
#[non_exhaustive]
pub struct SyncError {
    /// The informers that have not synced.
    pub failed: Vec<SyncFailure>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_result_names_unsynced_informers_and_causes() {
        let pods = GroupVersionResource::namespaced("", "v1", "pods");
        let nodes = GroupVersionResource::cluster("", "v1", "nodes");
        let claims = GroupVersionResource::namespaced("resource.k8s.io", "v1", "resourceclaims");
        assert_eq!(SyncResult::default().into_result(), Ok(()));
        let failed = |resource: &GroupVersionResource, reason: Option<&str>| SyncFailure {
            resource: resource.clone(),
            reason: reason.map(str::to_owned),
        };
        let one = SyncResult {
            synced: vec![nodes.clone()],
            failed: vec![failed(&pods, Some("failed to list: no response from the server"))],
        };
        assert_eq!(one.by_resource(), BTreeMap::from([(&nodes, true), (&pods, false)]));
        let error = one.into_result().unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to sync all caches: v1/pods (failed to list: no response from the server)"
        );
        let many = SyncResult {
            synced: vec![nodes.clone()],
            failed: vec![failed(&nodes, None), failed(&claims, None)],
        };
        assert!(!many.by_resource()[&nodes], "one of two informers of nodes has not synced");
        let text = many.into_result().unwrap_err().to_string();
        assert!(text.contains("v1/nodes (no failure, but not synced when the wait ended), resource.k8s"));
    }
}

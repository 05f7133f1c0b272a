//! Allocations that bindings in flight are about to write.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::change_log::{ChangedKeys, Revision};
use super::{Object, ObjectBody, Objects, ResourceClaim, resources, uid_of_extended_resource_claim};

/// Allocated copies of claims by the UID of the claim (upstream's in-flight allocations).
///
/// They are apart from the claims: other pods do not see these claims as allocated, and no hint
/// runs, but the devices are taken.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingAllocations {
    by_uid: BTreeMap<Arc<str>, Arc<Object>>,
    /// UIDs of claims.
    changes: ChangedKeys,
}

impl PendingAllocations {
    /// Ends the pending allocation of a claim that is now known as allocated.
    pub(super) fn settle(&mut self, object: &Object) {
        if self.by_uid.is_empty() || !is_allocated(object) {
            return;
        }
        self.remove(&object.uid);
        if let Some(pod) = object.controller.as_ref().filter(|_| object.is_extended_resource_claim()) {
            self.remove(&uid_of_extended_resource_claim(&pod.uid));
        }
    }

    fn remove(&mut self, uid: &str) -> Option<Arc<Object>> {
        let removed = self.by_uid.remove(uid)?;
        self.changes.add(&removed.uid);
        Some(removed)
    }
}

fn is_allocated(object: &Object) -> bool {
    ResourceClaim::of(&object.body).is_some_and(|claim| claim.allocation.is_some())
}

impl Objects {
    /// Notes that a binding is about to write the allocation in this copy of a claim. The claim
    /// does not have to exist: it may be one that the binding creates. Returns `false` if an
    /// allocation of it is pending or known.
    ///
    /// The allocation is pending until it is [removed](Self::remove_pending), or until the claim is
    /// known as allocated.
    pub fn add_pending(&mut self, claim: Arc<Object>) -> bool {
        let known = self.get(&resources::RESOURCE_CLAIM, &claim.key);
        let is_known = known.is_some_and(|known| known.uid == claim.uid && is_allocated(known));
        if is_known || self.pending.by_uid.contains_key(&claim.uid) {
            return false;
        }
        self.pending.changes.add(&claim.uid);
        self.pending.by_uid.insert(Arc::clone(&claim.uid), claim);
        true
    }

    /// Ends a pending allocation: it was written, or its binding failed.
    pub fn remove_pending(&mut self, claim_uid: &str) -> Option<Arc<Object>> {
        self.pending.remove(claim_uid)
    }

    /// The pending allocation of a claim, by its UID.
    pub fn pending(&self, claim_uid: &str) -> Option<&Arc<Object>> {
        self.pending.by_uid.get(claim_uid)
    }

    /// All pending allocations, ordered by UID.
    pub fn list_pending(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.pending.by_uid.values()
    }

    /// The position in the changes of pending allocations.
    pub fn pending_revision(&self) -> Revision {
        self.pending.changes.revision()
    }

    /// The UIDs of claims whose pending allocation was added or has ended since a revision, as
    /// [`changes_since`](Self::changes_since) has keys.
    pub fn pending_since(&self, revision: Option<&Revision>) -> Option<Vec<&Arc<str>>> {
        match revision {
            None => Some(self.pending.by_uid.keys().collect()),
            Some(revision) => Some(self.pending.changes.since(revision)?.collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Body, ClaimAllocation, EXTENDED_RESOURCE_CLAIM};
    use super::*;
    use crate::pod::OwnerRef;
    use crate::testing::object;

    fn claim(name: &str, version: &str, allocated: bool) -> Arc<Object> {
        let allocation = allocated.then(ClaimAllocation::default);
        let body = Body::ResourceClaim(ResourceClaim { allocation, ..ResourceClaim::default() });
        let object = object(&resources::RESOURCE_CLAIM, &format!("ns/{name}"), body);
        Arc::new(Object { resource_version: version.into(), ..object })
    }

    fn uids(objects: &Objects) -> Vec<&str> {
        objects.list_pending().map(|claim| &*claim.uid).collect()
    }

    fn with_pending() -> Objects {
        let mut objects = Objects::default();
        for name in ["b", "a"] {
            objects.insert(claim(name, "5", false));
            assert!(objects.add_pending(claim(name, "5", true)));
        }
        objects
    }

    #[test]
    fn pending_allocations_are_not_those_of_claims() {
        let objects = with_pending();
        assert_eq!(uids(&objects), ["uid-ns/a", "uid-ns/b"]);
        assert!(objects.pending("uid-ns/a").is_some_and(|claim| is_allocated(claim)));
        assert!(objects.list(&resources::RESOURCE_CLAIM).all(|claim| !is_allocated(claim)));
    }

    #[test]
    fn a_claim_has_one_allocation() {
        let mut objects = with_pending();
        assert!(!objects.add_pending(claim("a", "5", true)), "one is pending");
        objects.insert(claim("c", "5", true));
        assert!(!objects.add_pending(claim("c", "5", true)), "it is allocated");
        let namesake = Arc::new(Object { uid: "other".into(), ..(*claim("c", "4", true)).clone() });
        assert!(objects.add_pending(namesake), "an earlier claim of that name");
        assert!(objects.add_pending(claim("new", "", true)), "a claim that does not exist yet");
    }

    #[test]
    fn pending_allocations_last_until_the_claim_is_allocated() {
        let mut objects = with_pending();
        objects.insert(claim("a", "6", false));
        assert_eq!(uids(&objects).len(), 2, "another change");
        objects.insert(claim("a", "7", true));
        assert_eq!(uids(&objects), ["uid-ns/b"]);
        assert!(objects.assume(claim("b", "6", true)));
        assert_eq!(uids(&objects), [""; 0]);
    }

    #[test]
    fn the_claim_that_a_binding_creates_ends_its_pending_allocation() {
        let mut objects = Objects::default();
        let uid = uid_of_extended_resource_claim("uid-p");
        assert!(objects.add_pending(Arc::new(Object { uid, ..(*claim("<new>", "", true)).clone() })));
        let created = |version: &str, allocated| {
            let owner = OwnerRef { uid: "uid-p".into(), ..OwnerRef::default() };
            Arc::new(Object {
                controller: Some(Arc::new(owner)),
                annotations: [(EXTENDED_RESOURCE_CLAIM, "true")].into_iter().collect(),
                ..(*claim("p-x7", version, allocated)).clone()
            })
        };
        objects.insert(created("1", false));
        assert_eq!(objects.list_pending().count(), 1);
        objects.insert(created("2", true));
        assert_eq!(objects.list_pending().count(), 0);
    }

    #[test]
    fn pending_allocations_outlive_their_claim_until_removed() {
        let mut objects = with_pending();
        objects.remove(&resources::RESOURCE_CLAIM, "ns/a");
        assert!(objects.remove_pending("uid-ns/a").is_some());
        assert!(objects.remove_pending("uid-ns/a").is_none());
        assert_eq!(uids(&objects), ["uid-ns/b"]);
    }
}

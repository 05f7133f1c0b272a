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
    by_uid: BTreeMap<Arc<str>, Pending>,
    /// Whether a group may have some to share.
    are_shared: bool,
    /// UIDs of claims.
    changes: ChangedKeys,
}

#[derive(Clone, Debug)]
struct Pending {
    claim: Arc<Object>,
    /// How many pods are about to use it.
    pods: usize,
    /// The key of the group whose pods may share it: that of the current cycle.
    group: Option<Arc<str>>,
}

impl PendingAllocations {
    fn add(&mut self, claim: Arc<Object>, group: Option<Arc<str>>) {
        self.are_shared |= group.is_some();
        self.changes.add(&claim.uid);
        self.by_uid.insert(Arc::clone(&claim.uid), Pending { claim, pods: 1, group });
    }

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
        let Pending { claim, .. } = self.by_uid.remove(uid)?;
        self.changes.add(&claim.uid);
        Some(claim)
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
        self.add_pending_of(None, claim)
    }

    /// Does the same for a pod of the group with this key. Until
    /// [`end_sharing`](Self::end_sharing), other pods of the group may use the allocation: it is
    /// pending until it was removed for each.
    pub fn add_pending_of(&mut self, group: Option<Arc<str>>, claim: Arc<Object>) -> bool {
        let known = self.get(&resources::RESOURCE_CLAIM, &claim.key);
        let is_known = known.is_some_and(|known| known.uid == claim.uid && is_allocated(known));
        match self.pending.by_uid.get_mut(&claim.uid) {
            Some(pending) if group.is_some() && pending.group == group => pending.pods += 1,
            None if !is_known => self.pending.add(claim, group),
            _ => return false,
        }
        true
    }

    /// The cycle of a group ends: pods do not share the pending allocations of earlier cycles.
    pub fn end_sharing(&mut self) {
        if std::mem::take(&mut self.pending.are_shared) {
            self.pending.by_uid.values_mut().for_each(|pending| pending.group = None);
        }
    }

    /// Ends a pending allocation, as far as one pod uses it: it was written, or the pod's binding
    /// failed. Returns it if no other pod does.
    pub fn remove_pending(&mut self, claim_uid: &str) -> Option<Arc<Object>> {
        let pending = self.pending.by_uid.get_mut(claim_uid)?;
        pending.pods -= 1;
        if pending.pods == 0 { self.pending.remove(claim_uid) } else { None }
    }

    /// The pending allocation of a claim, by its UID.
    pub fn pending(&self, claim_uid: &str) -> Option<&Arc<Object>> {
        self.pending.by_uid.get(claim_uid).map(|pending| &pending.claim)
    }

    /// The same if the pods of a group, by its key, may share it.
    pub fn shared_pending(&self, claim_uid: &str, group: &str) -> Option<&Arc<Object>> {
        let pending = self.pending.by_uid.get(claim_uid)?;
        (pending.group.as_deref() == Some(group)).then_some(&pending.claim)
    }

    /// All pending allocations, ordered by UID.
    pub fn list_pending(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.pending.by_uid.values().map(|pending| &pending.claim)
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
    fn pods_of_a_group_share_a_pending_allocation_in_one_cycle() {
        let mut objects = with_pending();
        let share = |objects: &mut Objects, name: &str, group: &str| {
            objects.add_pending_of(Some(group.into()), claim(name, "5", true))
        };
        objects.insert(claim("c", "5", false));
        assert!(!share(&mut objects, "a", "ns/g"), "it is that of another pod");
        assert!(share(&mut objects, "c", "ns/g") && share(&mut objects, "c", "ns/g"));
        assert!(!share(&mut objects, "c", "ns/h"), "another group");
        let is_shared = |objects: &Objects| objects.shared_pending("uid-ns/c", "ns/g").is_some();
        assert!(is_shared(&objects) && objects.shared_pending("uid-ns/c", "ns/h").is_none());
        objects.end_sharing();
        assert!(!is_shared(&objects) && !share(&mut objects, "c", "ns/g"));
        assert!(objects.remove_pending("uid-ns/c").is_none(), "the other pod still uses it");
        assert!(objects.pending("uid-ns/c").is_some());
        assert!(objects.remove_pending("uid-ns/c").is_some());
        assert!(objects.pending("uid-ns/c").is_none());
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

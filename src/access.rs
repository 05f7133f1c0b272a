//! Everything the scheduler does to the API, as one table.
//!
//! Tests hold the RBAC manifest against it, and the audit log of a real API server, so that what the code does, what this
//! says, and what a cluster allows are the same.

/// A kind of request to the API server, in RBAC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, with its subresource.
    pub resource: &'static str,
    /// The verb.
    pub verb: &'static str,
    /// Why.
    pub reason: &'static str,
}

const fn access(
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
    reason: &'static str,
) -> Access {
    Access { group, resource, verb, reason }
}

/// Every kind of request that a scheduler makes.
pub const ACCESS: &[Access] = &[
    access("", "pods", "list", "pod informer"),
    access("", "pods", "watch", "pod informer"),
    access("", "pods", "get", "quorum read after a bind whose fate is unknown"),
    access("", "nodes", "list", "node informer"),
    access("", "nodes", "watch", "node informer"),
    access("", "pods/binding", "create", "bind"),
    access("", "pods/status", "patch", "PodScheduled condition and nominated node"),
    access("", "persistentvolumes", "update", "give a claim its volume"),
    access("", "persistentvolumeclaims", "update", "have a volume provisioned for the pod's node"),
    access("events.k8s.io", "events", "create", "record an event"),
    access("events.k8s.io", "events", "patch", "count an event that repeats"),
];

//! Every kind of request that the scheduler sends to the API server.
//!
//! Tests compare this table with the RBAC manifests, with the audit log of a real API server, and with
//! `docs/security.md`.

/// A kind of request to the API server, in RBAC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Access {
    /// The API group; empty for the core group.
    pub(crate) group: &'static str,
    /// The resource, with its subresource.
    pub(crate) resource: &'static str,
    /// The verb.
    pub(crate) verb: &'static str,
    /// Why.
    pub(crate) reason: &'static str,
}

const fn access(
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
    reason: &'static str,
) -> Access {
    Access { group, resource, verb, reason }
}

/// Every kind of request that a scheduler makes, with the plugins that are on by default. A plugin from outside the tree that
/// watches a kind of its own needs a role of its own. What the server serves it tells every authenticated user.
pub(crate) const ACCESS: &[Access] = &[
    access("", "pods", "list", "pod informer"),
    access("", "pods", "watch", "pod informer"),
    access("", "pods", "get", "quorum read after a bind whose fate is unknown"),
    access("", "nodes", "list", "node informer"),
    access("", "nodes", "watch", "node informer"),
    access("", "persistentvolumes", "list", "volumes that claims are bound to or could be"),
    access("", "persistentvolumes", "watch", "volumes that claims are bound to or could be"),
    access("", "persistentvolumeclaims", "list", "claims of pods"),
    access("", "persistentvolumeclaims", "watch", "claims of pods"),
    access("", "services", "list", "what to spread by default"),
    access("", "services", "watch", "what to spread by default"),
    access("", "replicationcontrollers", "list", "what to spread by default"),
    access("", "replicationcontrollers", "watch", "what to spread by default"),
    access("", "namespaces", "list", "namespace selectors of pod affinity"),
    access("", "namespaces", "watch", "namespace selectors of pod affinity"),
    access("apps", "replicasets", "list", "what to spread by default"),
    access("apps", "replicasets", "watch", "what to spread by default"),
    access("apps", "statefulsets", "list", "what to spread by default"),
    access("apps", "statefulsets", "watch", "what to spread by default"),
    access("policy", "poddisruptionbudgets", "list", "what preemption should spare"),
    access("policy", "poddisruptionbudgets", "watch", "what preemption should spare"),
    access("storage.k8s.io", "storageclasses", "list", "when and where volumes are made"),
    access("storage.k8s.io", "storageclasses", "watch", "when and where volumes are made"),
    access("storage.k8s.io", "csinodes", "list", "how many volumes a node takes"),
    access("storage.k8s.io", "csinodes", "watch", "how many volumes a node takes"),
    access("storage.k8s.io", "csidrivers", "list", "whether capacities count"),
    access("storage.k8s.io", "csidrivers", "watch", "whether capacities count"),
    access("storage.k8s.io", "csistoragecapacities", "list", "where there is room for a volume"),
    access("storage.k8s.io", "csistoragecapacities", "watch", "where there is room for a volume"),
    access("storage.k8s.io", "volumeattachments", "list", "volumes that are on a node already"),
    access("storage.k8s.io", "volumeattachments", "watch", "volumes that are on a node already"),
    access("", "persistentvolumes", "update", "bind a volume to a claim"),
    access("", "persistentvolumeclaims", "update", "say on which node a volume is to be made"),
    access("", "pods", "delete", "preemption"),
    access("", "pods/binding", "create", "bind"),
    access("", "pods/status", "patch", "PodScheduled and DisruptionTarget conditions, nominated node"),
    access("events.k8s.io", "events", "create", "record an event"),
    access("events.k8s.io", "events", "patch", "count an event that repeats"),
];

/// Every kind of request about the lease, in the lease's namespace; all but `create`, which cannot be confined to a name, of the
/// one lease.
pub(crate) const ELECTION_ACCESS: &[Access] = &[
    access("coordination.k8s.io", "leases", "create", "run for leader where there is no lease yet"),
    access("coordination.k8s.io", "leases", "get", "see who leads"),
    access("coordination.k8s.io", "leases", "update", "take the lease, renew it, give it up"),
    access("coordination.k8s.io", "leases", "list", "hear of changes at once"),
    access("coordination.k8s.io", "leases", "watch", "hear of changes at once"),
];

/// What the endpoints ask about whoever asks them. Without it they answer 401 and 500, and scheduling goes on.
pub(crate) const REVIEWS: &[Access] = &[
    access(
        "authentication.k8s.io",
        "tokenreviews",
        "create",
        "who it is that shows a token to the endpoints",
    ),
    access(
        "authorization.k8s.io",
        "subjectaccessreviews",
        "create",
        "whether whoever asks the endpoints may have what it asks for",
    ),
];

/// The ConfigMap in kube-system, `extension-apiserver-authentication`, that says whose certificates the cluster believes. Its
/// reader is a role that every cluster has, `extension-apiserver-authentication-reader`. Without it clients of the endpoints are
/// known by their tokens only.
pub(crate) const LOOKUP: Access =
    access("", "configmaps", "get", "whose client certificates the endpoints believe");

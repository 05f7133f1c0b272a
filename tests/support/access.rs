//! Every kind of request to the API server, as one table.
//!
//! Tests compare it with the RBAC manifests and with the audit log of a real API server.
//! `docs/security.md` lists the reasons.

/// A kind of request to the API server, in the terms of RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Access {
    /// The API group; empty for the core group.
    pub(crate) group: &'static str,
    /// The resource, including the subresource.
    pub(crate) resource: &'static str,
    /// The verb.
    pub(crate) verb: &'static str,
    /// Why the scheduler sends it.
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

/// Requests of a scheduler with the default plugins. Out-of-tree plugins that watch other kinds
/// need an additional role. Discovery needs no role: it is open to all authenticated users.
pub(crate) const ACCESS: &[Access] = &[
    access("", "pods", "list", "pod informer"),
    access("", "pods", "watch", "pod informer"),
    access("", "pods", "get", "quorum read after a bind with unknown outcome"),
    access("", "nodes", "list", "node informer"),
    access("", "nodes", "watch", "node informer"),
    access("", "persistentvolumes", "list", "volumes that claims are or can be bound to"),
    access("", "persistentvolumes", "watch", "volumes that claims are or can be bound to"),
    access("", "persistentvolumeclaims", "list", "claims of pods"),
    access("", "persistentvolumeclaims", "watch", "claims of pods"),
    access("", "services", "list", "default topology spreading"),
    access("", "services", "watch", "default topology spreading"),
    access("", "replicationcontrollers", "list", "default topology spreading"),
    access("", "replicationcontrollers", "watch", "default topology spreading"),
    access("", "namespaces", "list", "namespace selectors of pod affinity"),
    access("", "namespaces", "watch", "namespace selectors of pod affinity"),
    access("apps", "replicasets", "list", "default topology spreading"),
    access("apps", "replicasets", "watch", "default topology spreading"),
    access("apps", "statefulsets", "list", "default topology spreading"),
    access("apps", "statefulsets", "watch", "default topology spreading"),
    access("policy", "poddisruptionbudgets", "list", "pods that preemption should not evict"),
    access("policy", "poddisruptionbudgets", "watch", "pods that preemption should not evict"),
    access("resource.k8s.io", "deviceclasses", "list", "classes of devices"),
    access("resource.k8s.io", "deviceclasses", "watch", "classes of devices"),
    access("resource.k8s.io", "devicetaintrules", "list", "taints of devices"),
    access("resource.k8s.io", "devicetaintrules", "watch", "taints of devices"),
    access("resource.k8s.io", "resourceslices", "list", "devices"),
    access("resource.k8s.io", "resourceslices", "watch", "devices"),
    access("resource.k8s.io", "resourceclaims", "list", "claims of pods"),
    access("resource.k8s.io", "resourceclaims", "watch", "claims of pods"),
    access("resource.k8s.io", "resourceclaims", "get", "a claim after a conflicting write"),
    access("resource.k8s.io", "resourceclaims", "update", "the finalizer of an allocated claim"),
    access("resource.k8s.io", "resourceclaims", "create", "a claim for extended resources of a pod"),
    access("resource.k8s.io", "resourceclaims", "delete", "the same after a failed binding"),
    access("resource.k8s.io", "resourceclaims/status", "update", "allocations and reservations"),
    access("resource.k8s.io", "resourceclaims/status", "patch", "a reservation that is given back"),
    access("resource.k8s.io", "resourceclaims/binding", "update", "allocations and reservations"),
    access("resource.k8s.io", "resourceclaims/binding", "patch", "a reservation that is given back"),
    access("storage.k8s.io", "storageclasses", "list", "volume binding mode and allowed topologies"),
    access("storage.k8s.io", "storageclasses", "watch", "volume binding mode and allowed topologies"),
    access("storage.k8s.io", "csinodes", "list", "volume limits of nodes"),
    access("storage.k8s.io", "csinodes", "watch", "volume limits of nodes"),
    access("storage.k8s.io", "csidrivers", "list", "whether storage capacity is checked"),
    access("storage.k8s.io", "csidrivers", "watch", "whether storage capacity is checked"),
    access("storage.k8s.io", "csistoragecapacities", "list", "storage capacity by topology"),
    access("storage.k8s.io", "csistoragecapacities", "watch", "storage capacity by topology"),
    access("storage.k8s.io", "volumeattachments", "list", "volumes attached to nodes"),
    access("storage.k8s.io", "volumeattachments", "watch", "volumes attached to nodes"),
    access("", "persistentvolumes", "update", "bind a volume to a claim"),
    access("", "persistentvolumeclaims", "update", "select the node for which a volume is provisioned"),
    access("", "pods", "delete", "preemption"),
    access("", "pods/binding", "create", "bind"),
    access("", "pods/status", "patch", "PodScheduled and DisruptionTarget conditions, nominated node"),
    access("events.k8s.io", "events", "create", "record an event"),
    access("events.k8s.io", "events", "patch", "count an event that repeats"),
];

/// Further requests with the feature gates GenericWorkload and CompositePodGroup.
pub(crate) const GROUP_ACCESS: &[Access] = &[
    access("scheduling.k8s.io", "podgroups", "list", "groups of pods"),
    access("scheduling.k8s.io", "podgroups", "watch", "groups of pods"),
    access("scheduling.k8s.io", "compositepodgroups", "list", "groups of groups"),
    access("scheduling.k8s.io", "compositepodgroups", "watch", "groups of groups"),
    access("scheduling.k8s.io", "podgroups/status", "patch", "PodGroupInitiallyScheduled condition"),
];

/// Requests for the lease, in its namespace. All but `create`, which RBAC cannot restrict by name,
/// are limited to this lease.
pub(crate) const ELECTION_ACCESS: &[Access] = &[
    access("coordination.k8s.io", "leases", "create", "create the lease if it does not exist"),
    access("coordination.k8s.io", "leases", "get", "read the current leader"),
    access("coordination.k8s.io", "leases", "update", "acquire, renew and release the lease"),
    access("coordination.k8s.io", "leases", "list", "notice changes immediately"),
    access("coordination.k8s.io", "leases", "watch", "notice changes immediately"),
];

/// Reviews of clients of the endpoints. Without this access they respond with 401 and 500;
/// scheduling is not affected.
pub(crate) const REVIEWS: &[Access] = &[
    access(
        "authentication.k8s.io",
        "tokenreviews",
        "create",
        "authenticate bearer tokens of the endpoints' clients",
    ),
    access("authorization.k8s.io", "subjectaccessreviews", "create", "authorize requests to the endpoints"),
];

/// The ConfigMap `extension-apiserver-authentication` in kube-system, which has the client CA
/// bundle of the cluster. Every cluster has a role for it,
/// `extension-apiserver-authentication-reader`. Without this access only tokens authenticate.
pub(crate) const LOOKUP: Access = access("", "configmaps", "get", "client CA bundle for the endpoints");

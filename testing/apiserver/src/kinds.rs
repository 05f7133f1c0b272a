//! The table of built-in kinds, and the description of a kind.

use std::borrow::Cow;
use std::sync::LazyLock;

type Text = Cow<'static, str>;

/// One resource in one version; upstream's `metav1.APIResource`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: Text,
    /// For example `v1`.
    pub version: Text,
    /// The plural in paths, for example `pods`.
    pub resource: Text,
    /// For example `Pod`.
    pub kind: Text,
    /// For example `pod`.
    pub singular: Text,
    /// For example `po`.
    pub short_names: Cow<'static, [Text]>,
    /// For example `all`.
    pub categories: Cow<'static, [Text]>,
    /// Whether the kind is namespaced.
    pub namespaced: bool,
    /// The supported verbs.
    pub verbs: Verbs,
    /// The supported subresources.
    pub subresources: Cow<'static, [Subresource]>,
    /// The group of the stored version, if another version of the resource is stored:
    /// `events.k8s.io` objects are stored in the core group.
    pub stored_in_group: Text,
    /// Whether a CustomResourceDefinition defines it: no defaults, no validation, no protobuf.
    pub custom: bool,
    /// Whether it is only served with [`Settings::pod_groups`](crate::Settings::pod_groups).
    pub gated: bool,
}

/// The verbs of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// All verbs.
    All,
    /// Only create: the response is computed and nothing is stored (reviews).
    Create,
}

/// A subresource of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresource {
    /// The status.
    Status,
    /// The number of replicas.
    Scale,
    /// Pods only: assigns the node.
    Binding,
    /// Pods only: a deletion that disruption budgets can reject.
    Eviction,
    /// Pods only: adds containers to a running pod.
    EphemeralContainers,
    /// Pods only: changes requests and limits of a running pod.
    Resize,
    /// Namespaces only: removes finalizers.
    Finalize,
    /// Service accounts only: a token.
    Token,
}

impl Subresource {
    /// The name in paths.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Binding => "binding",
            Self::Eviction => "eviction",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
            Self::Finalize => "finalize",
            Self::Token => "token",
        }
    }
}

impl Kind {
    /// The resource with its group, for example `deployments.apps`; upstream's GroupResource.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_string()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    /// For example `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The kind of its lists.
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// The path prefix of the group version, for example `/apis/apps/v1`.
    pub fn root(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// Whether objects are stored in another group.
    pub fn is_converted(&self) -> bool {
        self.group != self.stored_in_group
    }

    /// Whether the kind has the subresource.
    pub fn has(&self, subresource: Subresource) -> bool {
        self.subresources.contains(&subresource)
    }

    /// The group and resource that objects are stored under; all versions of a resource share them.
    pub fn store_key(&self) -> (&str, &str) {
        (&self.stored_in_group, &self.resource)
    }

    fn of(
        group: &'static str,
        version: &'static str,
        resource: &'static str,
        kind: &'static str,
        singular: &'static str,
    ) -> Self {
        Self {
            group: Text::Borrowed(group),
            version: Text::Borrowed(version),
            resource: Text::Borrowed(resource),
            kind: Text::Borrowed(kind),
            singular: Text::Borrowed(singular),
            short_names: Cow::Borrowed(&[]),
            categories: Cow::Borrowed(&[]),
            namespaced: false,
            verbs: Verbs::All,
            subresources: Cow::Borrowed(&[]),
            stored_in_group: Text::Borrowed(group),
            custom: false,
            gated: false,
        }
    }

    fn namespaced(mut self) -> Self {
        self.namespaced = true;
        self
    }

    fn short(mut self, names: &[&'static str]) -> Self {
        self.short_names = names.iter().map(|name| Text::Borrowed(*name)).collect();
        self
    }

    fn in_all(self) -> Self {
        self.in_category("all")
    }

    fn in_category(mut self, category: &'static str) -> Self {
        self.categories = vec![Text::Borrowed(category)].into();
        self
    }

    fn with(mut self, subresources: &'static [Subresource]) -> Self {
        self.subresources = Cow::Borrowed(subresources);
        self
    }

    fn create_only(mut self) -> Self {
        self.verbs = Verbs::Create;
        self
    }

    fn gated(mut self) -> Self {
        self.gated = true;
        self
    }

    fn stored_in(mut self, group: &'static str) -> Self {
        self.stored_in_group = Text::Borrowed(group);
        self
    }
}

/// Every built-in kind, in discovery order: within a group the preferred version is first. It
/// includes those that are off by default.
pub fn built_in() -> &'static [Kind] {
    static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(table);
    &KINDS
}

fn table() -> Vec<Kind> {
    use Subresource::{Binding, EphemeralContainers, Eviction, Finalize, Resize, Scale, Status, Token};
    const STATUS: &[Subresource] = &[Status];
    const SCALE: &[Subresource] = &[Status, Scale];
    const CORE: &str = "";
    const AUTHN: &str = "authentication.k8s.io";
    const AUTHZ: &str = "authorization.k8s.io";
    const STORAGE: &str = "storage.k8s.io";
    const RESOURCE: &str = "resource.k8s.io";
    const RBAC: &str = "rbac.authorization.k8s.io";
    const SCHEDULING: &str = "scheduling.k8s.io";
    vec![
        Kind::of(CORE, "v1", "configmaps", "ConfigMap", "configmap").namespaced().short(&["cm"]),
        Kind::of(CORE, "v1", "endpoints", "Endpoints", "endpoints").namespaced().short(&["ep"]),
        Kind::of(CORE, "v1", "events", "Event", "event").namespaced().short(&["ev"]),
        Kind::of(CORE, "v1", "limitranges", "LimitRange", "limitrange").namespaced().short(&["limits"]),
        Kind::of(CORE, "v1", "namespaces", "Namespace", "namespace").short(&["ns"]).with(&[Status, Finalize]),
        Kind::of(CORE, "v1", "nodes", "Node", "node").short(&["no"]).with(STATUS),
        Kind::of(CORE, "v1", "persistentvolumeclaims", "PersistentVolumeClaim", "persistentvolumeclaim")
            .namespaced()
            .short(&["pvc"])
            .with(STATUS),
        Kind::of(CORE, "v1", "persistentvolumes", "PersistentVolume", "persistentvolume")
            .short(&["pv"])
            .with(STATUS),
        Kind::of(CORE, "v1", "pods", "Pod", "pod").namespaced().short(&["po"]).in_all().with(&[
            Status,
            Binding,
            Eviction,
            EphemeralContainers,
            Resize,
        ]),
        Kind::of(CORE, "v1", "podtemplates", "PodTemplate", "podtemplate").namespaced(),
        Kind::of(CORE, "v1", "replicationcontrollers", "ReplicationController", "replicationcontroller")
            .namespaced()
            .short(&["rc"])
            .in_all()
            .with(SCALE),
        Kind::of(CORE, "v1", "resourcequotas", "ResourceQuota", "resourcequota")
            .namespaced()
            .short(&["quota"])
            .with(STATUS),
        Kind::of(CORE, "v1", "secrets", "Secret", "secret").namespaced(),
        Kind::of(CORE, "v1", "serviceaccounts", "ServiceAccount", "serviceaccount")
            .namespaced()
            .short(&["sa"])
            .with(&[Token]),
        Kind::of(CORE, "v1", "services", "Service", "service")
            .namespaced()
            .short(&["svc"])
            .in_all()
            .with(STATUS),
        Kind::of("apps", "v1", "controllerrevisions", "ControllerRevision", "controllerrevision")
            .namespaced(),
        Kind::of("apps", "v1", "daemonsets", "DaemonSet", "daemonset")
            .namespaced()
            .short(&["ds"])
            .in_all()
            .with(STATUS),
        Kind::of("apps", "v1", "deployments", "Deployment", "deployment")
            .namespaced()
            .short(&["deploy"])
            .in_all()
            .with(SCALE),
        Kind::of("apps", "v1", "replicasets", "ReplicaSet", "replicaset")
            .namespaced()
            .short(&["rs"])
            .in_all()
            .with(SCALE),
        Kind::of("apps", "v1", "statefulsets", "StatefulSet", "statefulset")
            .namespaced()
            .short(&["sts"])
            .in_all()
            .with(SCALE),
        Kind::of("events.k8s.io", "v1", "events", "Event", "event")
            .namespaced()
            .short(&["ev"])
            .stored_in(CORE),
        Kind::of(AUTHN, "v1", "selfsubjectreviews", "SelfSubjectReview", "selfsubjectreview").create_only(),
        Kind::of(AUTHN, "v1", "tokenreviews", "TokenReview", "tokenreview").create_only(),
        Kind::of(
            AUTHZ,
            "v1",
            "localsubjectaccessreviews",
            "LocalSubjectAccessReview",
            "localsubjectaccessreview",
        )
        .namespaced()
        .create_only(),
        Kind::of(
            AUTHZ,
            "v1",
            "selfsubjectaccessreviews",
            "SelfSubjectAccessReview",
            "selfsubjectaccessreview",
        )
        .create_only(),
        Kind::of(AUTHZ, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", "selfsubjectrulesreview")
            .create_only(),
        Kind::of(AUTHZ, "v1", "subjectaccessreviews", "SubjectAccessReview", "subjectaccessreview")
            .create_only(),
        Kind::of(
            "autoscaling",
            "v2",
            "horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscaler",
        )
        .namespaced()
        .short(&["hpa"])
        .in_all()
        .with(STATUS),
        Kind::of("batch", "v1", "cronjobs", "CronJob", "cronjob")
            .namespaced()
            .short(&["cj"])
            .in_all()
            .with(STATUS),
        Kind::of("batch", "v1", "jobs", "Job", "job").namespaced().in_all().with(STATUS),
        Kind::of("networking.k8s.io", "v1", "ingresses", "Ingress", "ingress")
            .namespaced()
            .short(&["ing"])
            .with(STATUS),
        Kind::of("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", "networkpolicy")
            .namespaced()
            .short(&["netpol"]),
        Kind::of("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", "poddisruptionbudget")
            .namespaced()
            .short(&["pdb"])
            .with(STATUS),
        Kind::of(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", "clusterrolebinding"),
        Kind::of(RBAC, "v1", "clusterroles", "ClusterRole", "clusterrole"),
        Kind::of(RBAC, "v1", "rolebindings", "RoleBinding", "rolebinding").namespaced(),
        Kind::of(RBAC, "v1", "roles", "Role", "role").namespaced(),
        Kind::of(STORAGE, "v1", "csidrivers", "CSIDriver", "csidriver"),
        Kind::of(STORAGE, "v1", "csinodes", "CSINode", "csinode"),
        Kind::of(STORAGE, "v1", "csistoragecapacities", "CSIStorageCapacity", "csistoragecapacity")
            .namespaced(),
        Kind::of(STORAGE, "v1", "storageclasses", "StorageClass", "storageclass").short(&["sc"]),
        Kind::of(STORAGE, "v1", "volumeattachments", "VolumeAttachment", "volumeattachment").with(STATUS),
        Kind::of(
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            "customresourcedefinition",
        )
        .short(&["crd", "crds"])
        .in_category("api-extensions")
        .with(STATUS),
        Kind::of(SCHEDULING, "v1", "priorityclasses", "PriorityClass", "priorityclass").short(&["pc"]),
        Kind::of(SCHEDULING, "v1beta1", "podgroups", "PodGroup", "podgroup")
            .namespaced()
            .with(STATUS)
            .gated(),
        Kind::of(SCHEDULING, "v1beta1", "workloads", "Workload", "workload").namespaced().gated(),
        Kind::of(SCHEDULING, "v1alpha3", "compositepodgroups", "CompositePodGroup", "compositepodgroup")
            .namespaced()
            .with(STATUS)
            .gated(),
        Kind::of(SCHEDULING, "v1alpha3", "podgroups", "PodGroup", "podgroup")
            .namespaced()
            .with(STATUS)
            .gated(),
        Kind::of(SCHEDULING, "v1alpha3", "workloads", "Workload", "workload").namespaced().gated(),
        Kind::of("coordination.k8s.io", "v1", "leases", "Lease", "lease").namespaced(),
        Kind::of("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", "runtimeclass"),
        Kind::of("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", "endpointslice").namespaced(),
        Kind::of(RESOURCE, "v1", "deviceclasses", "DeviceClass", "deviceclass"),
        Kind::of(RESOURCE, "v1", "devicetaintrules", "DeviceTaintRule", "devicetaintrule").with(STATUS),
        Kind::of(RESOURCE, "v1", "resourceclaims", "ResourceClaim", "resourceclaim")
            .namespaced()
            .with(STATUS),
        Kind::of(RESOURCE, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", "resourceclaimtemplate")
            .namespaced(),
        Kind::of(RESOURCE, "v1", "resourceslices", "ResourceSlice", "resourceslice"),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn kinds_have_distinct_paths() {
        let paths: BTreeSet<String> =
            built_in().iter().map(|kind| format!("{}/{}", kind.root(), kind.resource)).collect();
        assert_eq!(paths.len(), built_in().len());
    }

    #[test]
    fn qualified_names_match_upstream() {
        let pods = built_in().iter().find(|kind| kind.resource == "pods").unwrap();
        assert_eq!(
            (pods.qualified(), pods.api_version(), pods.root()),
            ("pods".into(), "v1".into(), "/api/v1".into())
        );
        let deployments = built_in().iter().find(|kind| kind.resource == "deployments").unwrap();
        assert_eq!(deployments.qualified(), "deployments.apps");
        assert_eq!(deployments.root(), "/apis/apps/v1");
    }
}

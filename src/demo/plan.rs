//! The plan of a demo: which objects are created, and when.

use std::time::Duration;

use serde_json::Value;

/// All changes that a demo makes to the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Objects created before the scheduler starts: nodes, namespaces, classes, and
    /// what claims for devices and groups of pods need.
    pub(crate) first: Vec<Manifest>,
    /// Later changes, in order.
    pub(crate) steps: Vec<TimedAction>,
    /// Number of pods that the plan creates, directly or by workloads.
    pub(crate) pods: usize,
    /// Notes for the user.
    pub(crate) notes: Vec<String>,
}

/// A change at a point in time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TimedAction {
    /// Time since the start, at speed 1.
    pub(crate) at: Duration,
    /// The change.
    pub(crate) action: Action,
}

/// A change of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Creates an object.
    Create(Manifest),
    /// Removes the scheduling gates of pods.
    LiftGates {
        /// Text shown to the user.
        note: String,
        /// Namespace and name of each.
        pods: Vec<(String, String)>,
    },
}

/// An object to create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manifest {
    /// The object in the JSON format of the API.
    pub(crate) value: Value,
    /// Position in the manifests: `file:line:column`.
    pub(crate) source: Option<String>,
}

impl Manifest {
    /// A generated object.
    pub(crate) fn new(value: Value) -> Self {
        Self { value, source: None }
    }

    /// Its kind.
    pub(crate) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Its namespace; defaults to `default`.
    pub(crate) fn namespace(&self) -> &str {
        self.value["metadata"]["namespace"].as_str().unwrap_or("default")
    }

    /// The API path for creating it.
    pub(crate) fn collection(&self) -> String {
        let (version, resource) = match self.kind() {
            "Node" => return "/api/v1/nodes".to_owned(),
            "Namespace" => return "/api/v1/namespaces".to_owned(),
            "DeviceClass" => return "/apis/resource.k8s.io/v1/deviceclasses".to_owned(),
            "ResourceSlice" => return "/apis/resource.k8s.io/v1/resourceslices".to_owned(),
            "PriorityClass" => return "/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(),
            "DaemonSet" => ("apis/apps/v1", "daemonsets"),
            "Deployment" => ("apis/apps/v1", "deployments"),
            "Job" => ("apis/batch/v1", "jobs"),
            "PodGroup" => ("apis/scheduling.k8s.io/v1beta1", "podgroups"),
            "ReplicaSet" => ("apis/apps/v1", "replicasets"),
            "ReplicationController" => ("api/v1", "replicationcontrollers"),
            "ResourceClaim" => ("apis/resource.k8s.io/v1", "resourceclaims"),
            "ResourceClaimTemplate" => ("apis/resource.k8s.io/v1", "resourceclaimtemplates"),
            "StatefulSet" => ("apis/apps/v1", "statefulsets"),
            _ => ("api/v1", "pods"),
        };
        format!("/{version}/namespaces/{}/{resource}", self.namespace())
    }

    /// An error message for a failed creation.
    pub(crate) fn not_created(&self, error: &str) -> String {
        let source = self.source.as_ref().map_or_else(String::new, |source| format!("{source}: "));
        format!("{source}cannot create {} {}: {error}", self.kind().to_lowercase(), self.name())
    }
}

impl Plan {
    /// Number of objects of a kind.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.objects().filter(|object| object.kind() == kind).count()
    }

    /// All objects.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Manifest> {
        let later = self.steps.iter().filter_map(|step| match &step.action {
            Action::Create(object) => Some(object),
            Action::LiftGates { .. } => None,
        });
        self.first.iter().chain(later)
    }
}

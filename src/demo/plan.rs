//! What is to be created, and when.

use std::time::Duration;

use serde_json::Value;

/// Everything that a demo does to the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// What is there before the scheduler starts: nodes, and what pods need beside them.
    pub(crate) first: Vec<Manifest>,
    /// What happens then, in order.
    pub(crate) steps: Vec<Step>,
    /// What people should know of it.
    pub(crate) notes: Vec<String>,
}

/// Something at its time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// When, at speed 1.
    pub(crate) at: Duration,
    /// What.
    pub(crate) action: Action,
}

/// What can be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// An object is created.
    Create(Manifest),
    /// The scheduling gates of these pods are lifted.
    LiftGates {
        /// What is told of it.
        note: String,
        /// Namespace and name of each.
        pods: Vec<(String, String)>,
    },
}

/// An object to create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manifest {
    /// As the API has it.
    pub(crate) value: Value,
    /// Where it was written: `file:line:column`.
    pub(crate) source: Option<String>,
}

impl Manifest {
    /// One that no file has.
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

    /// Its namespace; `default` if none is said.
    pub(crate) fn namespace(&self) -> &str {
        self.value["metadata"]["namespace"].as_str().unwrap_or("default")
    }

    /// Where such objects are created.
    pub(crate) fn collection(&self) -> String {
        match self.kind() {
            "Node" => "/api/v1/nodes".to_owned(),
            "Namespace" => "/api/v1/namespaces".to_owned(),
            "PriorityClass" => "/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(),
            _ => format!("/api/v1/namespaces/{}/pods", self.namespace()),
        }
    }

    /// What it is called in an error.
    pub(crate) fn describe(&self) -> String {
        let source = self.source.as_ref().map_or_else(String::new, |source| format!("{source}: "));
        format!("{source}{} {}", self.kind().to_lowercase(), self.name())
    }
}

impl Plan {
    /// How many objects of a kind will be there in the end.
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

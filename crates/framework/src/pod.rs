//! Pods.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::affinity::NodeAffinity;
use crate::indexed::Indexed;
use crate::labels::Labels;
use crate::node::NodeRecord;
use crate::pod_affinity::PodAffinity;
use crate::pod_claims::{PodClaim, PodClaimStatuses};
use crate::ports::HostPort;
use crate::requests::PodRequests;
use crate::resource::Resource;
use crate::resource_version::ResourceVersion;
use crate::taint::Toleration;
use crate::time::Timestamp;
use crate::topology_spread::TopologySpreadConstraint;
use crate::volume::Volumes;

pub use crate::uid::{Uid, UidText};

/// The parts of `spec` that a scheduling decision can depend on, as one shared value.
///
/// Pods of one template share one `Arc<PodSpec>`. Fields that differ between such pods, or change
/// while a pod is pending, are in [`PodInfo`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodSpec {
    /// `schedulerName`.
    pub scheduler_name: Arc<str>,
    /// Whether `preemptionPolicy` is `Never`.
    pub never_preempts: bool,
    /// `nodeSelector`.
    pub node_selector: Labels,
    /// `affinity.nodeAffinity`.
    pub node_affinity: Option<NodeAffinity>,
    /// `affinity.podAffinity` and `affinity.podAntiAffinity`; `None` if neither is set.
    pub pod_affinity: Option<Box<PodAffinity>>,
    /// `topologySpreadConstraints`.
    pub topology_spread: Box<[TopologySpreadConstraint]>,
    /// The volumes that restrict nodes.
    pub volumes: Volumes,
    /// The node features that the pod requires, as inferred by upstream's `nodedeclaredfeatures`;
    /// sorted.
    pub required_features: Box<[Arc<str>]>,
    /// `tolerations`.
    pub tolerations: Indexed<Toleration>,
    /// Host ports of containers and sidecars.
    pub host_ports: Indexed<HostPort>,
    /// Images of init containers, containers and image volumes, normalised, in that order.
    pub images: Indexed<Arc<str>>,
    /// The effective request of the spec, pod-level resources included.
    pub requests: PodRequests,
    /// The same without pod-level resources; `None` if equal.
    pub container_requests: Option<Box<PodRequests>>,
    /// The pod's limits, if any. Used by metrics only, not by decisions.
    pub limits: Option<Box<Resource>>,
    /// Fields that few pods have; `None` if all of them are empty.
    pub rare: Option<Box<RareSpec>>,
}

/// The fields of a spec that few pods have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RareSpec {
    /// `resourceClaims`.
    pub resource_claims: Box<[PodClaim]>,
    /// The extended resources that containers request, init containers first, by name within each.
    pub extended_resources: Box<[ExtendedResource]>,
    /// `schedulingGroup.podGroupName`.
    pub group: Option<Arc<str>>,
    /// Field paths of constraints that no plugin evaluates yet. A pod with such a constraint is
    /// rejected, not misplaced.
    pub unsupported: Box<[Arc<str>]>,
}

impl RareSpec {
    /// The fields as a spec has them.
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// A container's request of an extended resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExtendedResource {
    /// The container's name.
    pub container: Arc<str>,
    /// Its place among init containers and then containers.
    pub place: u32,
    /// Whether it ends before the pod's containers start: an init container that is not a sidecar.
    pub is_short_lived: bool,
    /// The resource.
    pub resource: Arc<str>,
    /// The place of the resource among the names of all that the container requests.
    pub resource_place: u32,
    /// The amount; never 0.
    pub count: i64,
}

/// The owner that controls an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OwnerRef {
    /// `apiVersion`.
    pub api_version: Arc<str>,
    /// `kind`.
    pub kind: Arc<str>,
    /// `name`.
    pub name: Arc<str>,
    /// `uid`.
    pub uid: Arc<str>,
}

/// A condition: why a pod is pending, or why it is about to be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodCondition {
    /// `True`, `False` or `Unknown`.
    pub status: Arc<str>,
    /// The machine-readable reason.
    pub reason: Arc<str>,
    /// The human-readable message.
    pub message: Arc<str>,
    /// `observedGeneration`.
    pub observed_generation: Option<i64>,
    /// The last transition of the status. Values from the server are kept for `False` only.
    pub last_transition: Option<Timestamp>,
}

/// The parts of `status` that scheduling reads: the start time, and the [`SharedStatus`] that many
/// pods share, to which it dereferences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStatus {
    /// `startTime`.
    pub start_time: Option<Timestamp>,
    /// The other fields.
    #[serde(flatten)]
    pub shared: Arc<SharedStatus>,
}

impl Deref for PodStatus {
    type Target = SharedStatus;

    fn deref(&self) -> &SharedStatus {
        &self.shared
    }
}

/// Other pods that share the value keep it unchanged.
impl DerefMut for PodStatus {
    fn deref_mut(&mut self) -> &mut SharedStatus {
        Arc::make_mut(&mut self.shared)
    }
}

/// The parts of `status` that are equal for nearly all pods on nodes, and for many pending pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SharedStatus {
    /// Whether the phase is Succeeded or Failed. The informer's selector excludes such pods.
    pub terminal: bool,
    /// `nominatedNodeName`.
    pub nominated_node_name: Option<Arc<str>>,
    /// The `PodScheduled` condition.
    pub pod_scheduled: Option<PodCondition>,
    /// The `DisruptionTarget` condition, if it is true.
    pub disruption_target: Option<Box<PodCondition>>,
    /// What the status says of resource claims, if anything.
    pub claims: Option<Box<PodClaimStatuses>>,
}

/// A pod. Immutable: an update is a new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodInfo {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// `metadata.generation`.
    pub generation: i64,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// `metadata.labels`.
    pub labels: Labels,
    /// The `metadata.annotations` that a plugin declares.
    pub annotations: Labels,
    /// The controlling owner.
    pub controller: Option<Arc<OwnerRef>>,
    /// `spec.nodeName`.
    pub node_name: Option<Arc<str>>,
    /// `spec.priority`, 0 when unset.
    pub priority: i32,
    /// `spec.schedulingGates`.
    pub scheduling_gates: Box<[Arc<str>]>,
    /// The shared parts of the spec.
    pub spec: Arc<PodSpec>,
    /// The effective request with the kubelet's status, which counts on the pod's node. `None` if
    /// equal to `spec.requests`.
    pub status_requests: Option<Arc<PodRequests>>,
    /// The status.
    pub status: PodStatus,
    /// The whole pod as JSON, if an extender needs it.
    pub raw: Option<Arc<str>>,
}

impl PodInfo {
    /// The request that counts on the pod's node.
    pub fn requests(&self) -> &PodRequests {
        self.status_requests.as_deref().unwrap_or(&self.spec.requests)
    }

    /// Whether the pod has a node (upstream's `assignedPod`).
    pub fn is_assigned(&self) -> bool {
        self.node_name.is_some()
    }

    /// The key of the pod's group: `namespace/name`.
    pub fn group_key(&self) -> Option<Arc<str>> {
        self.spec.group().map(|name| format!("{}/{name}", self.namespace).into())
    }

    /// Whether the pod's controller is of one of these kinds.
    pub fn is_controlled_by(&self, kinds: &[&str]) -> bool {
        self.controller.as_ref().is_some_and(|owner| kinds.contains(&&*owner.kind))
    }

    /// `namespace/name`, the pod's key in the queue and in messages.
    pub fn key(&self) -> PodKey {
        PodKey { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name) }
    }
}

impl PodSpec {
    /// Whether `nodeSelector` and required node affinity admit this node. A term that cannot be
    /// evaluated matches nothing.
    pub fn admits_node(&self, node: &NodeRecord) -> bool {
        self.node_selector.is_subset_of(&node.labels)
            && self.node_affinity.as_ref().is_none_or(|affinity| affinity.required_matches(node))
    }

    /// `resourceClaims`.
    pub fn resource_claims(&self) -> &[PodClaim] {
        self.rare.as_ref().map_or(&[], |rare| &rare.resource_claims)
    }

    /// The extended resources that containers request.
    pub fn extended_resources(&self) -> &[ExtendedResource] {
        self.rare.as_ref().map_or(&[], |rare| &rare.extended_resources)
    }

    /// The name of the pod's group, in its namespace.
    pub fn group(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.group.as_ref()
    }

    /// Field paths of constraints that no plugin evaluates yet.
    pub fn unsupported(&self) -> &[Arc<str>] {
        self.rare.as_ref().map_or(&[], |rare| &rare.unsupported)
    }

    /// The effective request without pod-level resources.
    pub fn container_requests(&self) -> &PodRequests {
        self.container_requests.as_deref().unwrap_or(&self.requests)
    }
}

/// A pod's namespace and name: unique at a time, not over time.
#[derive(Clone, Debug, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl PartialEq for PodKey {
    fn eq(&self, other: &Self) -> bool {
        // Names differ more often than namespaces.
        self.name == other.name && self.namespace == other.namespace
    }
}

impl Hash for PodKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.namespace.hash(state);
        self.name.hash(state);
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An image name, with `:latest` if it has neither tag nor digest.
pub fn normalized_image_name(name: &str) -> String {
    let has_tag = match (name.rfind(':'), name.rfind('/')) {
        (Some(colon), slash) => slash.is_none_or(|slash| colon > slash),
        (None, _) => false,
    };
    if has_tag { name.to_owned() } else { format!("{name}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_latest() {
        for (name, expected) in [
            ("nginx", "nginx:latest"),
            ("nginx:1.29", "nginx:1.29"),
            ("localhost:5000/nginx", "localhost:5000/nginx:latest"),
            ("localhost:5000/nginx:1", "localhost:5000/nginx:1"),
            ("nginx@sha256:abc", "nginx@sha256:abc"),
        ] {
            assert_eq!(normalized_image_name(name), expected);
        }
    }
}

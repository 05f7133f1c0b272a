//! What a kind adds to the general handling of objects: defaults, checks, and what it never lets a caller write. Upstream's
//! word is strategy.

pub(crate) mod autoscaling;
pub(crate) mod checks;
pub(crate) mod config;
pub(crate) mod crd;
pub(crate) mod event;
pub(crate) mod labels;
pub(crate) mod lease;
pub(crate) mod meta;
pub(crate) mod names;
pub(crate) mod namespace;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod path;
pub(crate) mod pod;
pub(crate) mod policy;
pub(crate) mod priority_class;
pub(crate) mod quantity;
pub(crate) mod rbac;
pub(crate) mod resource;
pub(crate) mod resources;
pub(crate) mod reviews;
pub(crate) mod runtime_class;
pub(crate) mod scale;
pub(crate) mod selectors;
pub(crate) mod service;
pub(crate) mod status;
pub(crate) mod storage;
pub(crate) mod taints;
pub(crate) mod workloads;

use serde_json::Value;

use crate::kinds::Kind;
use crate::status::{Cause, Result};
use names::Wrong;

/// Objects that a strategy may look up.
pub(crate) trait Lookup {
    /// One object, as JSON.
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value>;

    /// Some labels of an object, as far as it has them. Empty when it is not there.
    fn labels(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
        keys: &[&'static str],
    ) -> Vec<(&'static str, Value)> {
        let Some(object) = self.get(group, resource, namespace, name) else { return Vec::new() };
        let labels = &object["metadata"]["labels"];
        keys.iter().filter_map(|key| Some((*key, labels.get(key)?.clone()))).collect()
    }

    /// All objects of a resource, in one namespace or, for `""`, in all.
    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Value>;
}

/// What a kind adds. The object is JSON that has been pruned to its schema: known fields have the right types.
pub(crate) trait Strategy: Send + Sync {
    /// Fills in what the caller left out. Runs on each write, before the checks, on objects old and new.
    fn default(&self, _object: &mut Value) {}

    /// Admission of a new object: what depends on other objects, and refusals that are no field errors (403, 404).
    fn admit(&self, _object: &mut Value, _objects: &dyn Lookup) -> Result<()> {
        Ok(())
    }

    /// Admission of a change through the main resource. Runs before `prepare_for_update`.
    fn admit_update(&self, _object: &mut Value, _old: &Value, _objects: &dyn Lookup) -> Result<()> {
        Ok(())
    }

    /// Admission of a deletion.
    fn admit_delete(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    /// Removes or sets what callers may not write when they create (the status, for one). The
    /// object has its name and UID by then.
    fn prepare_for_create(&self, _object: &mut Value) {}

    /// Restores what callers may not change through the main resource (the status, for one).
    fn prepare_for_update(&self, _object: &mut Value, _old: &Value) {}

    /// Restores what callers may not change through the status subresource (all but the status and some metadata).
    fn prepare_for_status_update(&self, _object: &mut Value, _old: &Value) {}

    /// What is wrong with a new object, beside what is wrong with any object's metadata.
    fn validate(&self, _object: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// What is wrong with a change. `validate` is not called beside it.
    fn validate_update(&self, _object: &Value, _old: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// What is wrong with a change of the status.
    fn validate_status_update(&self, _object: &Value, _old: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// The names of the fields that field selectors may name, beside `metadata.name` and `metadata.namespace`.
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The value of a selectable field.
    fn field(&self, _object: &Value, _name: &str) -> String {
        String::new()
    }

    /// Whether `metadata.generation` counts the changes of the spec. True for most kinds that have a status.
    fn has_generation(&self) -> bool {
        false
    }

    /// What is wrong with a name. DNS-1123 subdomains by default.
    fn check_name(&self, name: &str) -> Wrong {
        names::dns1123_subdomain(name)
    }

    /// Whether the main resource's next generation is due. Only asked where there are generations.
    fn changes_generation(&self, object: &Value, old: &Value) -> bool {
        object.get("spec") != old.get("spec")
    }

    /// Whether an update may leave out the resourceVersion.
    fn allows_unconditional_update(&self) -> bool {
        true
    }

    /// Whether an update of what is not there creates it.
    fn allows_create_on_update(&self) -> bool {
        false
    }
}

/// A kind that adds nothing.
struct Plain;

impl Strategy for Plain {}

/// The strategy of a kind.
pub(crate) fn of(kind: &Kind) -> &'static dyn Strategy {
    if kind.custom {
        return &Plain;
    }
    match kind.group.as_ref() {
        "" => core(&kind.resource),
        "apps" => match kind.resource.as_ref() {
            "controllerrevisions" => &workloads::ControllerRevision,
            "daemonsets" => &workloads::DaemonSet,
            "deployments" => &workloads::Deployment,
            "replicasets" => &workloads::ReplicaSet,
            "statefulsets" => &workloads::StatefulSet,
            _ => &Plain,
        },
        "batch" => match kind.resource.as_ref() {
            "cronjobs" => &workloads::CronJob,
            "jobs" => &workloads::Job,
            _ => &Plain,
        },
        "apiextensions.k8s.io" => &crd::CustomResourceDefinition,
        "autoscaling" => &autoscaling::HorizontalPodAutoscaler,
        "coordination.k8s.io" => &lease::Lease,
        "discovery.k8s.io" => &network::EndpointSlice,
        "events.k8s.io" => &event::NewEvent,
        "networking.k8s.io" => match kind.resource.as_ref() {
            "ingresses" => &network::Ingress,
            "networkpolicies" => &network::NetworkPolicy,
            _ => &Plain,
        },
        "node.k8s.io" => &runtime_class::RuntimeClass,
        "policy" => &policy::PodDisruptionBudget,
        "rbac.authorization.k8s.io" => match kind.resource.as_ref() {
            "clusterrolebindings" => &rbac::RoleBinding { namespaced: false },
            "clusterroles" => &rbac::Role { namespaced: false },
            "rolebindings" => &rbac::RoleBinding { namespaced: true },
            "roles" => &rbac::Role { namespaced: true },
            _ => &Plain,
        },
        "resource.k8s.io" => match kind.resource.as_ref() {
            "deviceclasses" => &resource::DeviceClass,
            "resourceclaims" => &resource::ResourceClaim,
            "resourceclaimtemplates" => &resource::ResourceClaimTemplate,
            "resourceslices" => &resource::ResourceSlice,
            _ => &Plain,
        },
        "scheduling.k8s.io" => &priority_class::PriorityClass,
        "storage.k8s.io" => match kind.resource.as_ref() {
            "csidrivers" => &storage::CsiDriver,
            "csinodes" => &storage::CsiNode,
            "csistoragecapacities" => &storage::CsiStorageCapacity,
            "storageclasses" => &storage::StorageClass,
            "volumeattachments" => &storage::VolumeAttachment,
            _ => &Plain,
        },
        _ => &Plain,
    }
}

/// The strategies of the core group.
fn core(resource: &str) -> &'static dyn Strategy {
    match resource {
        "endpoints" => &network::Endpoints,
        "configmaps" => &config::ConfigMap,
        "events" => &event::CoreEvent,
        "limitranges" => &config::LimitRange,
        "namespaces" => &namespace::Namespace,
        "nodes" => &node::Node,
        "persistentvolumeclaims" => &storage::PersistentVolumeClaim,
        "persistentvolumes" => &storage::PersistentVolume,
        "pods" => &pod::Pods,
        "podtemplates" => &workloads::PodTemplate,
        "replicationcontrollers" => &workloads::ReplicationController,
        "resourcequotas" => &config::ResourceQuota,
        "secrets" => &config::Secret,
        "services" => &service::Service,
        _ => &Plain,
    }
}

#[cfg(test)]
mod tests;

//! The strategy of each kind: its defaults, validation, and the fields that callers must not write.

pub(crate) mod autoscaling;
pub(crate) mod checks;
pub(crate) mod config;
pub(crate) mod crd;
pub(crate) mod device_taint_rule;
pub(crate) mod event;
pub(crate) mod groups;
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
mod traits;
pub(crate) mod workloads;

pub(crate) use traits::{Lookup, Strategy};

use crate::kinds::Kind;
use traits::Plain;

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
            "devicetaintrules" => &device_taint_rule::DeviceTaintRule,
            "resourceclaims" => &resource::ResourceClaim,
            "resourceclaimtemplates" => &resource::ResourceClaimTemplate,
            "resourceslices" => &resource::ResourceSlice,
            _ => &Plain,
        },
        "scheduling.k8s.io" => match kind.resource.as_ref() {
            "compositepodgroups" => &groups::CompositePodGroup,
            "podgroups" => &groups::PodGroup,
            "priorityclasses" => &priority_class::PriorityClass,
            "workloads" => &groups::Workload,
            _ => &Plain,
        },
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

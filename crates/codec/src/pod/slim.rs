//! Slim types of pods: the fields that scheduling reads.

#![allow(clippy::struct_field_names)] // the names are the API's

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::pod_affinity::{SpreadConstraint, WirePodAffinity};
use super::volumes::WireVolume;
use crate::json::{List, Obj, Pairs, Str};
use crate::metadata::Metadata;
use crate::proto::message;
use crate::selector::{NodeSelector, SelectorTerm};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod<'a> {
    #[serde(borrow)]
    pub(super) metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    pub(super) spec: Obj<Spec<'a>>,
    #[serde(borrow)]
    pub(super) status: Obj<Status<'a>>,
}

message!(Pod { 1 => metadata, 2 => spec, 3 => status });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec<'a> {
    #[serde(borrow)]
    pub(super) scheduler_name: Str<'a>,
    #[serde(borrow)]
    pub(super) node_name: Str<'a>,
    pub(super) priority: Option<i32>,
    #[serde(borrow)]
    pub(super) preemption_policy: Str<'a>,
    #[serde(borrow)]
    pub(super) node_selector: Pairs<'a>,
    #[serde(borrow)]
    pub(super) affinity: Obj<Affinity<'a>>,
    #[serde(borrow)]
    pub(super) tolerations: List<Obj<WireToleration<'a>>>,
    #[serde(borrow)]
    pub(super) scheduling_gates: List<Obj<SchedulingGate<'a>>>,
    #[serde(borrow)]
    pub(super) init_containers: List<Obj<Container<'a>>>,
    #[serde(borrow)]
    pub(super) containers: List<Obj<Container<'a>>>,
    #[serde(borrow)]
    pub(super) overhead: Pairs<'a>,
    #[serde(borrow)]
    pub(super) resources: Obj<Resources<'a>>,
    #[serde(borrow)]
    pub(super) volumes: List<Obj<WireVolume<'a>>>,
    #[serde(borrow)]
    pub(super) topology_spread_constraints: List<Obj<SpreadConstraint<'a>>>,
    #[serde(borrow)]
    pub(super) resource_claims: List<Obj<WirePodClaim<'a>>>,
    #[serde(borrow)]
    pub(super) scheduling_group: Obj<SchedulingGroup<'a>>,
    pub(super) host_network: Option<bool>,
    pub(super) host_users: Option<bool>,
}

message!(Spec { 1 => volumes, 2 => containers, 7 => node_selector, 10 => node_name, 11 => host_network, 18 => affinity, 19 => scheduler_name, 20 => init_containers, 22 => tolerations, 25 => priority, 31 => preemption_policy, 32 => overhead as quantities, 33 => topology_spread_constraints, 37 => host_users, 38 => scheduling_gates, 39 => resource_claims, 40 => resources, 43 => scheduling_group });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SchedulingGroup<'a> {
    #[serde(borrow)]
    pub(super) pod_group_name: Option<Str<'a>>,
}

message!(SchedulingGroup { 1 => pod_group_name });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WirePodClaim<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) resource_claim_name: Option<Str<'a>>,
    #[serde(borrow)]
    pub(super) resource_claim_template_name: Option<Str<'a>>,
}

message!(WirePodClaim { 1 => name, 3 => resource_claim_name, 4 => resource_claim_template_name });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SchedulingGate<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
}

message!(SchedulingGate { 1 => name });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Affinity<'a> {
    #[serde(borrow)]
    pub(super) node_affinity: Option<Obj<WireNodeAffinity<'a>>>,
    #[serde(borrow)]
    pub(super) pod_affinity: Obj<WirePodAffinity<'a>>,
    #[serde(borrow)]
    pub(super) pod_anti_affinity: Obj<WirePodAffinity<'a>>,
}

message!(Affinity { 1 => node_affinity, 2 => pod_affinity, 3 => pod_anti_affinity });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireNodeAffinity<'a> {
    #[serde(borrow, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(super) required: Option<Obj<NodeSelector<'a>>>,
    #[serde(borrow, rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(super) preferred: List<Obj<PreferredSchedulingTerm<'a>>>,
}

message!(WireNodeAffinity { 1 => required, 2 => preferred });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PreferredSchedulingTerm<'a> {
    pub(super) weight: Option<i32>,
    #[serde(borrow)]
    pub(super) preference: Obj<SelectorTerm<'a>>,
}

message!(PreferredSchedulingTerm { 1 => weight, 2 => preference });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireToleration<'a> {
    #[serde(borrow)]
    pub(super) key: Str<'a>,
    #[serde(borrow)]
    pub(super) operator: Str<'a>,
    #[serde(borrow)]
    pub(super) value: Str<'a>,
    #[serde(borrow)]
    pub(super) effect: Str<'a>,
}

message!(WireToleration { 1 => key, 2 => operator, 3 => value, 4 => effect });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Container<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) image: Str<'a>,
    #[serde(borrow)]
    pub(super) ports: List<Obj<ContainerPort<'a>>>,
    #[serde(borrow)]
    pub(super) resources: Obj<Resources<'a>>,
    volume_mounts: List<Obj<VolumeMount>>,
    #[serde(borrow)]
    restart_policy: Str<'a>,
    #[serde(borrow)]
    restart_policy_rules: List<Obj<RestartRule<'a>>>,
}

message!(Container { 1 => name, 2 => image, 6 => ports, 8 => resources, 9 => volume_mounts, 24 => restart_policy, 25 => restart_policy_rules });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RestartRule<'a> {
    #[serde(borrow)]
    action: Str<'a>,
}

message!(RestartRule { 1 => action });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct VolumeMount {
    bind_mount_options: List<IgnoredAny>,
}

message!(VolumeMount, owned { 8 => bind_mount_options });

impl Container<'_> {
    /// Whether an init container is a sidecar. Only sidecars have this policy.
    pub(super) fn is_sidecar(&self) -> bool {
        &*self.restart_policy == "Always"
    }

    /// Whether the exit of this container can restart all containers of the pod.
    pub(super) fn restarts_all(&self) -> bool {
        self.restart_policy_rules.iter().any(|rule| &*rule.action == "RestartAllContainers")
    }

    /// Whether a volume is mounted with options for its bind mount.
    pub(super) fn has_bind_mount_options(&self) -> bool {
        self.volume_mounts.iter().any(|mount| !mount.bind_mount_options.is_empty())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ContainerPort<'a> {
    pub(super) host_port: Option<i32>,
    #[serde(borrow, rename = "hostIP")]
    pub(super) host_ip: Str<'a>,
    #[serde(borrow)]
    pub(super) protocol: Str<'a>,
}

message!(ContainerPort { 2 => host_port, 4 => protocol, 5 => host_ip });

/// Requests need no defaulting from limits: the API server does it on admission.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Resources<'a> {
    #[serde(borrow)]
    pub(super) limits: Pairs<'a>,
    #[serde(borrow)]
    pub(super) requests: Pairs<'a>,
}

impl Resources<'_> {
    pub(super) fn have_limits(&self) -> bool {
        !self.limits.0.is_empty()
    }
}

message!(Resources { 1 => limits as quantities, 2 => requests as quantities });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status<'a> {
    #[serde(borrow)]
    pub(super) phase: Str<'a>,
    #[serde(borrow)]
    pub(super) nominated_node_name: Str<'a>,
    #[serde(borrow)]
    pub(super) start_time: Str<'a>,
    #[serde(borrow)]
    pub(super) conditions: List<Obj<Condition<'a>>>,
    #[serde(borrow)]
    pub(super) init_container_statuses: List<Obj<ContainerStatus<'a>>>,
    #[serde(borrow)]
    pub(super) container_statuses: List<Obj<ContainerStatus<'a>>>,
    #[serde(borrow)]
    pub(super) resource_claim_statuses: List<Obj<ClaimStatus<'a>>>,
    #[serde(borrow)]
    pub(super) extended_resource_claim_status: Option<Obj<ExtendedClaimStatus<'a>>>,
    #[serde(borrow)]
    pub(super) allocated_resources: Pairs<'a>,
    #[serde(borrow)]
    pub(super) resources: Option<Obj<Resources<'a>>>,
}

message!(Status { 1 => phase, 2 => conditions, 7 => start_time as time, 8 => container_statuses, 10 => init_container_statuses, 11 => nominated_node_name, 15 => resource_claim_statuses, 18 => extended_resource_claim_status, 19 => allocated_resources as quantities, 20 => resources });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Str<'a>,
    #[serde(borrow)]
    pub(crate) status: Str<'a>,
    #[serde(borrow)]
    pub(crate) reason: Str<'a>,
    #[serde(borrow)]
    pub(crate) message: Str<'a>,
    pub(crate) observed_generation: Option<i64>,
    #[serde(borrow)]
    pub(crate) last_transition_time: Str<'a>,
}

message!(Condition { 1 => kind, 2 => status, 4 => last_transition_time as time, 5 => reason, 6 => message, 7 => observed_generation as non_zero });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ContainerStatus<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) resources: Obj<Resources<'a>>,
    #[serde(borrow)]
    pub(super) allocated_resources: Pairs<'a>,
}

message!(ContainerStatus { 1 => name, 10 => allocated_resources as quantities, 11 => resources });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ClaimStatus<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) resource_claim_name: Option<Str<'a>>,
}

message!(ClaimStatus { 1 => name, 2 => resource_claim_name });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ExtendedClaimStatus<'a> {
    #[serde(borrow)]
    pub(super) resource_claim_name: Str<'a>,
    #[serde(borrow)]
    pub(super) request_mappings: List<Obj<RequestMapping<'a>>>,
}

message!(ExtendedClaimStatus { 1 => request_mappings, 2 => resource_claim_name });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RequestMapping<'a> {
    #[serde(borrow)]
    pub(super) container_name: Str<'a>,
    #[serde(borrow)]
    pub(super) resource_name: Str<'a>,
    #[serde(borrow)]
    pub(super) request_name: Str<'a>,
}

message!(RequestMapping { 1 => container_name, 2 => resource_name, 3 => request_name });

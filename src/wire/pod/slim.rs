//! Pods as the API sends them, cut down to what scheduling reads.

#![allow(clippy::struct_field_names)] // the names are the API's

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::wire::json::{List, Obj, Pairs, Str};
use crate::wire::metadata::Metadata;

/// Whether a field is there at all; what is in it does not matter.
pub(super) type Presence = Option<IgnoredAny>;

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
    pub(super) volumes: List<Obj<Volume<'a>>>,
    #[serde(borrow)]
    pub(super) topology_spread_constraints: List<Obj<TopologySpreadConstraint<'a>>>,
    pub(super) resource_claims: List<IgnoredAny>,
    pub(super) scheduling_group: Presence,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SchedulingGate<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Affinity<'a> {
    #[serde(borrow)]
    pub(super) node_affinity: Option<Obj<WireNodeAffinity<'a>>>,
    pub(super) pod_affinity: Obj<PodAffinity>,
    pub(super) pod_anti_affinity: Obj<PodAffinity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireNodeAffinity<'a> {
    #[serde(borrow, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(super) required: Option<Obj<NodeSelector<'a>>>,
    #[serde(borrow, rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(super) preferred: List<Obj<PreferredSchedulingTerm<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeSelector<'a> {
    #[serde(borrow)]
    pub(super) node_selector_terms: List<Obj<SelectorTerm<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PreferredSchedulingTerm<'a> {
    pub(super) weight: Option<i32>,
    #[serde(borrow)]
    pub(super) preference: Obj<SelectorTerm<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SelectorTerm<'a> {
    #[serde(borrow)]
    pub(super) match_expressions: List<Obj<SelectorRequirement<'a>>>,
    #[serde(borrow)]
    pub(super) match_fields: List<Obj<SelectorRequirement<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SelectorRequirement<'a> {
    #[serde(borrow)]
    pub(super) key: Str<'a>,
    #[serde(borrow)]
    pub(super) operator: Str<'a>,
    #[serde(borrow)]
    pub(super) values: List<Str<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(super) required: List<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TopologySpreadConstraint<'a> {
    #[serde(borrow)]
    pub(super) when_unsatisfiable: Str<'a>,
}

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
    #[serde(borrow)]
    restart_policy: Str<'a>,
}

impl Container<'_> {
    /// Whether an init container keeps running beside the others. Only these have this policy.
    pub(super) fn is_sidecar(&self) -> bool {
        &*self.restart_policy == "Always"
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

/// Requests only: on admission the API server gives a container that has a limit and no request its limit as request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Resources<'a> {
    #[serde(borrow)]
    pub(super) requests: Pairs<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Volume<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) image: Obj<ImageVolume<'a>>,
    pub(super) persistent_volume_claim: Presence,
    pub(super) ephemeral: Presence,
    pub(super) gce_persistent_disk: Presence,
    pub(super) aws_elastic_block_store: Presence,
    pub(super) iscsi: Presence,
    pub(super) rbd: Presence,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ImageVolume<'a> {
    #[serde(borrow)]
    pub(super) reference: Str<'a>,
}

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
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow)]
    pub(super) status: Str<'a>,
    #[serde(borrow)]
    pub(super) reason: Str<'a>,
    #[serde(borrow)]
    pub(super) message: Str<'a>,
    pub(super) observed_generation: Option<i64>,
    #[serde(borrow)]
    pub(super) last_transition_time: Str<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ContainerStatus<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) resources: Option<Obj<Resources<'a>>>,
    #[serde(borrow)]
    pub(super) allocated_resources: Pairs<'a>,
}

#[derive(Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClaimStatus<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    resource_claim_name: Option<Str<'a>>,
}

#[derive(Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ExtendedClaimStatus<'a> {
    #[serde(borrow)]
    resource_claim_name: Str<'a>,
    #[serde(borrow)]
    request_mappings: List<Obj<RequestMapping<'a>>>,
}

#[derive(Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RequestMapping<'a> {
    #[serde(borrow)]
    container_name: Str<'a>,
    #[serde(borrow)]
    resource_name: Str<'a>,
    #[serde(borrow)]
    request_name: Str<'a>,
}
